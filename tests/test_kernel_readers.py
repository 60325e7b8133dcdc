"""NVIDIA's tables: read from a miniature of the package's folders, and from the package itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calibration.kernels import aiconfigurator
from models.schema import ModelError
from models.strict_yaml import InputError

GEMM = {"kernel_source": "cublas", "gemm_dtype": "bfloat16", "m": [1, 8], "n": 64, "k": 32}
HEADS = {"num_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "beam_width": 1}
TYPES = {"attn_dtype": "bfloat16", "kv_cache_dtype": ["bfloat16", "fp8"]}
ATTENTION = {"kernel_source": "fa3", "batch_size": 4, **HEADS, **TYPES, "window_size": 0}
GROUP = {"op_name": "all_reduce", "num_gpus": [2, 8], "message_size": 1024}
MOE = {
    "kernel_source": "triton",
    "moe_dtype": "fp8_block",
    "distribution": ["balanced", "power_law_1.2"],
    **{"num_tokens": 2, "hidden_size": 512, "inter_size": 256, "topk": 2, "num_experts": 8},
    **{"moe_tp_size": 2, "moe_ep_size": 1},
}
QUANT = {"m": [1, 2], "k": 64, "quant_dtype": "fp8", "kernel_source": "quant"}
MS = [0.5, 2.0]


def put(root, folder, name, columns):
    path = root / folder / f"{name}_perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"latency": MS, **columns}).to_parquet(path)
    return path


@pytest.fixture
def root(tmp_path):
    for version in ("0.9.0", "0.10.0"):
        put(tmp_path, f"h100_sxm/gemm/vllm/{version}", "gemm", GEMM)
        put(tmp_path, f"h100_sxm/moe/vllm/{version}", "moe", MOE)
    for version in ("0.2.0", "0.8.0", "0.11.0"):
        eager = {"kernel_source": "x", "backend": "vllm_eager", "allreduce_dtype": "bfloat16"}
        put(tmp_path, f"h100_sxm/comm/vllm/{version}", "custom_allreduce", GROUP | eager)
    for folder in ("nccl/2.3", "nccl/2.20", "trtllm/1.0"):
        nccl = {"kernel_source": "NCCL", "nccl_dtype": ["half", "int8"]}
        put(tmp_path, f"h100_sxm/comm/{folder}", "nccl", GROUP | nccl)
    folder = "h100_sxm/attention/vllm/0.10.0"
    put(tmp_path, folder, "context_attention", ATTENTION | {"isl": 128, "step": 0})
    put(tmp_path, folder, "generation_attention", ATTENTION | {"isl": 1, "step": [7, 511]})
    put(tmp_path, "h100_sxm/quantize/vllm/0.10.0", "scale_matrix", QUANT)
    put(tmp_path, "a100_sxm/gemm/sglang/0.5.6.post2", "gemm", GEMM)
    (tmp_path / "l4").mkdir()
    return tmp_path


def read(root, operation, version="0.10.0"):
    timed = aiconfigurator.read("h100_sxm", "vllm", version, root=root)
    return timed[timed["operation"] == operation].reset_index(drop=True)


def test_only_systems_with_tables_are_listed(root):
    assert aiconfigurator.systems(root) == ["a100_sxm", "h100_sxm"]


def test_versions_are_ordered_as_numbers_and_tell_their_operations(root):
    assert aiconfigurator.versions("h100_sxm", root) == {
        "nccl/2.3": ["all_reduce"],
        "nccl/2.20": ["all_reduce"],
        "vllm/0.2.0": ["all_reduce"],
        "vllm/0.8.0": ["all_reduce"],
        "vllm/0.9.0": ["gemm", "moe"],
        "vllm/0.10.0": ["gemm", "attention", "moe", "elementwise"],
        "vllm/0.11.0": ["all_reduce"],
    }


def test_a_gemm_keeps_its_shape_type_and_kernel_in_seconds(root):
    gemm = read(root, "gemm")
    assert gemm[["kernel", "dtype", "m", "n", "k", "time_s"]].to_numpy().tolist() == [
        ["cublas", "bf16", 1, 64, 32, 0.0005],
        ["cublas", "bf16", 8, 64, 32, 0.002],
    ]
    assert gemm["source"].tolist() == ["h100_sxm/gemm/vllm/0.10.0/gemm_perf.parquet"] * 2
    assert set(gemm["device"] + gemm["engine"] + gemm["version"]) == {"h100_sxmvllm0.10.0"}


def test_decode_reads_the_context_before_its_token_and_prefill_has_none(root):
    shape = ["query_tokens", "context_tokens", "batch", "heads", "kv_heads", "kv_dtype"]
    assert read(root, "attention")[shape].to_numpy().tolist() == [
        [128, 0, 4, 8, 2, "bf16"],
        [128, 0, 4, 8, 2, "fp8"],
        [1, 7, 4, 8, 2, "bf16"],
        [1, 511, 4, 8, 2, "fp8"],
    ]


def test_sliding_windows_are_left_out_and_older_tables_have_none(root):
    folder = "h100_sxm/attention/vllm/0.10.0"
    windows = ATTENTION | {"isl": 1, "step": [7, 511], "window_size": [0, 128]}
    put(root, folder, "generation_attention", windows)
    del windows["window_size"]
    put(root, folder, "context_attention", windows | {"isl": 128})
    attention = read(root, "attention")
    assert (attention["query_tokens"] == 128).sum() == 2
    assert attention[attention["query_tokens"] == 1]["context_tokens"].tolist() == [7]


def test_messages_count_two_byte_elements_and_nccl_is_read_at_its_newest(root):
    shape = ["kernel", "engine", "version", "gpus", "message_bytes"]
    assert read(root, "all_reduce")[shape].to_numpy().tolist() == [
        ["vllm_eager", "vllm", "0.8.0", 2, 2048],
        ["vllm_eager", "vllm", "0.8.0", 8, 2048],
        ["nccl", "nccl", "2.20", 2, 2048],
    ]


def test_what_a_version_lacks_comes_from_the_one_before_never_from_a_later(root):
    assert set(read(root, "gemm", "0.9.0")["version"]) == {"0.9.0"}
    assert len(read(root, "attention", "0.9.0")) == 0
    assert set(read(root, "all_reduce", "0.9.0")["version"]) == {"0.8.0", "2.20"}


def test_experts_are_cut_by_tensor_parallelism_and_keep_their_routing(root):
    moe = read(root, "moe")
    assert moe["kernel"].tolist() == ["triton balanced", "triton power_law_1.2"]
    shape = ["m", "n", "k", "experts", "experts_per_token", "dtype"]
    assert moe[shape].to_numpy().tolist() == [[2, 128, 512, 8, 2, "fp8_block"]] * 2
    # two tokens go to 4 experts of 8 if balanced, to 8 (1 - (3/4)^2) on average
    assert moe["bytes"].tolist() == [4 * 3 * 512 * 128, 3.5 * 3 * 512 * 128]


def test_experts_over_several_gpus_are_left_out_and_ungated_ones_have_two_matrices(root):
    kinds = {"moe_ep_size": [1, 4], "kernel_source": "flow_nongated"}
    put(root, "h100_sxm/moe/vllm/0.10.0", "moe", MOE | kinds)
    assert read(root, "moe")["bytes"].tolist() == [4 * 2 * 512 * 128]


def test_quantising_with_an_unknown_scale_adds_to_quantising_with_a_known_one(root):
    folder = "h100_sxm/quantize/vllm/0.10.0"
    put(root, folder, "computescale", QUANT | {"latency": [0.25, -0.1], "m": [2, 1]})
    small = read(root, "elementwise")
    assert small["kernel"].tolist() == ["static_fp8_quant"] * 2 + ["dynamic_fp8_quant"] * 2
    assert small["m"].tolist() == [1, 2, 2, 1]
    np.testing.assert_allclose(small["time_s"], [0.0005, 0.002, 0.00225, 0.0004])
    put(root, folder, "computescale", QUANT | {"latency": [0.0, -0.1]})
    assert set(read(root, "elementwise")["kernel"]) == {"static_fp8_quant"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("h100_sxn", "vllm", "0.10.0"), "there are a100_sxm, h100_sxm; did you mean 'h100_sxm'"),
        (("l4", "vllm", "0.10.0"), "no kernel tables of 'l4'; there are a100_sxm, h100_sxm"),
        (("h100_sxm", "vllm", "0.10.1"), "there are vllm/0.9.0, vllm/0.10.0; did you mean 'vllm/"),
        (("h100_sxm", "vllm", "0.8.0"), "has no GEMM tables, only all_reduce; there are vllm/0.9"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(root, asked, message):
    with pytest.raises(ModelError, match=message) as refused:
        aiconfigurator.read(*asked, root=root)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"latency": [0.5, -1.0]}, "gemm_perf.parquet: latency: row 1: must be a number >= 0"),
        ({"latency": [0.5, np.nan]}, "latency: row 1: must be a number >= 0, got nothing"),
        ({"latency": ["fast", "slow"]}, "latency: row 0: must be a number >= 0, got 'fast'"),
        ({"m": [1.5, 8.0]}, "gemm_perf.parquet: m: row 0: must be a whole number, got 1.5"),
        (
            {"gemm_dtype": "fp7"},
            "gemm_perf.parquet: gemm_dtype: row 0: must be a type such as bf16.*'fp7'",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_file_column_and_row(root, columns, message):
    put(root, "h100_sxm/gemm/vllm/0.10.0", "gemm", GEMM | columns)
    with pytest.raises(InputError, match=message):
        read(root, "gemm")


def test_missing_columns_and_truncated_files_are_refused_by_name(root):
    path = put(root, "h100_sxm/gemm/vllm/0.10.0", "gemm", {"m": [1, 2], "n": 3})
    with pytest.raises(InputError, match="columns missing: kernel_source, gemm_dtype, k; there"):
        read(root, "gemm")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"gemm_perf\.parquet: cannot be read as Parquet"):
        read(root, "gemm")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(aiconfigurator, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"extra 'tables': pip install 'speccast\[tables\]'"):
        aiconfigurator.systems()


@pytest.mark.extras
@pytest.mark.parametrize("system", ["h100_sxm", "h200_sxm", "a100_sxm", "l40s", "b200_sxm"])
@pytest.mark.extras
def test_every_version_of_the_package_itself_can_be_read(system):
    pytest.importorskip("aiconfigurator_core", reason="needs the extra 'tables'")
    for name, operations in aiconfigurator.versions(system).items():
        if "gemm" in operations:
            timed = aiconfigurator.read(system, *name.split("/"))
            assert set(operations) <= set(timed["operation"])
            assert timed["source"].str.startswith("aiconfigurator-core ").all()
            assert (timed[["time_s", "bytes"]] > 0).all().all() and not timed.isna().any().any()
