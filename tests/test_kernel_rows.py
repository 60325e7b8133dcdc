"""Rows of timed kernels: what they are filled with, their least work, the file they are kept in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from by_hand import PROFILE

from calibration.kernels import rows, work
from models import catalog
from models.kernels import Kernels
from models.schema import BYTES_PER_WEIGHT
from models.strict_yaml import InputError
from sim.kernel_rows import KERNELS, OPERATIONS

H100 = Kernels(catalog.hardware("h100_sxm"), PROFILE)
BW, PEAK = 3.35e12, {"bf16": 989.5e12, "fp8": 1979e12}
MIXTRAL = catalog.transformer("mixtral-8x7b")


def gemms(**columns):
    given = {"m": [1, 64], "n": 4096, "k": 8192, "dtype": "bf16", "time_s": [2e-5, 3e-5]}
    return rows.frame("gemm", **(given | columns))


def test_a_frame_has_every_column_of_the_schema_and_its_kind():
    frame = gemms()
    assert list(frame.columns) == KERNELS.names
    assert (frame.dtypes[list(rows.COUNTS)] == np.int64).all()
    assert (frame.dtypes[["bytes", "flops", "time_s", "spread"]] == np.float64).all()
    assert set(rows.TEXTS) == {name for name in frame if frame[name].map(type).eq(str).all()}


def test_what_is_not_given_is_zero_or_no_text():
    frame = gemms(kernel="cublas")
    assert frame["operation"].tolist() == ["gemm", "gemm"]
    assert frame["kernel"].tolist() == ["cublas", "cublas"]
    for name in set(KERNELS.names) - {"operation", "kernel", "bytes", "flops"}:
        if name not in ("m", "n", "k", "dtype", "time_s"):
            assert set(frame[name]) == ({""} if name in rows.TEXTS else {0}), name


def test_attention_is_causal_unless_it_says_otherwise():
    shape = {"batch": 1, "query_tokens": 4, "heads": 8, "kv_heads": 2, "head_dim": 64}
    shape |= {"dtype": "bf16", "kv_dtype": "bf16", "time_s": 1e-5}
    assert rows.frame("attention", **shape)["mask"].tolist() == ["causal"]
    assert rows.frame("attention", **shape, mask="tree")["mask"].tolist() == ["tree"]


def test_bytes_that_are_given_stay_and_the_others_are_worked_out():
    frame = gemms(bytes=[123.0, 0.0])
    least = work.gemm([1, 64], 4096, 8192, "bf16")
    assert frame["bytes"].tolist() == [123.0, least.bytes[1]]
    assert frame["flops"].tolist() == least.flops.tolist()
    assert rows.frame("stream", kernel="copy", bytes=1e9, time_s=1e-3)["bytes"].tolist() == [1e9]
    named = rows.frame("elementwise", kernel="layer", m=1, n=64, bytes=5.0, time_s=1e-5)
    assert named["bytes"].tolist() == [5.0]


@pytest.mark.parametrize(
    ("error", "columns", "message"),
    [
        (TypeError, {"width": 3}, "no such column: width"),
        (ValueError, {"n": [1, 2, 3]}, "n has 3 rows, others 2"),
        (ValueError, {"k": 1.5}, "k must be whole numbers"),
        (ValueError, {"dtype": "fp7"}, "dtype 'fp7'; known are bf16"),
    ],
)
def test_a_frame_refuses_what_it_cannot_hold(error, columns, message):
    with pytest.raises(error, match=message):
        gemms(**columns)


def test_times_are_needed_and_so_are_bytes_that_cannot_be_told():
    with pytest.raises(TypeError, match="time_s is missing"):
        rows.frame("launch", kernel="eager")
    with pytest.raises(ValueError, match="bytes of stream rows must be given"):
        rows.frame("stream", kernel="copy", time_s=1e-3)
    with pytest.raises(ValueError, match="bytes are not known for kernel 'softmax'"):
        rows.frame("elementwise", kernel="softmax", m=1, n=1, time_s=1e-6)
    with pytest.raises(ValueError, match=f"operation must be one of {', '.join(OPERATIONS)}"):
        rows.frame("conv", time_s=1e-3)


def test_rows_come_back_from_a_file_as_they_were(tmp_path):
    frame = rows.join([gemms(device="h100_sxm"), rows.frame("launch", time_s=2e-6, flag="noisy")])
    rows.write(frame, tmp_path / "a.parquet")
    rows.write(frame, tmp_path / "b.parquet")
    pd.testing.assert_frame_equal(rows.read(tmp_path / "a.parquet"), frame)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_no_frames_join_to_no_rows(tmp_path):
    assert list(rows.join([]).columns) == KERNELS.names
    assert len(rows.join([])) == 0


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    whole, part = tmp_path / "whole.parquet", tmp_path / "part.parquet"
    rows.write(gemms(), whole)
    part.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"part.parquet: cannot be read as Parquet") as refused:
        rows.read(part)
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="no such file"):
        rows.read(tmp_path / "none.parquet")


def test_gemm_moves_each_operand_once():
    # 2 x 4096 x 8192 of weights, 64 x 8192 in, 64 x 4096 out
    assert work.gemm(64, 4096, 8192, "bf16") == (2 * (33554432 + 524288 + 262144), 2.0**32)
    assert work.gemm(64, 4096, 8192, "fp8").bytes == 33554432 + 524288 + 2 * 262144
    assert work.gemm(64, 4096, 8192, "int4").bytes == 33554432 / 2 + 2 * (524288 + 262144)


@pytest.mark.parametrize("m", [1, 64, 300, 4096])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_work_of_a_gemm_is_what_the_model_charges(m, dtype):
    fitted, least = H100.profile.gemm[dtype], work.gemm(m, 6144, 4096, dtype)
    expected = max(
        least.flops / (fitted.compute.value * PEAK[dtype]),
        least.bytes / (fitted.memory.value * BW),
    )
    beside = fitted.launch_us.value * 1e-6
    if fitted.quantise_us is not None:
        moved = work.elementwise(m, 4096, "dynamic_fp8_quant").bytes
        beside += fitted.quantise_us.value * 1e-6
        beside += moved / (H100.profile.elementwise.memory.value * BW)
    assert H100.gemm(m, 6144, 4096, dtype) == pytest.approx(expected + beside, rel=1e-12)


@pytest.mark.parametrize("m", [1, 3, 64, 4096])
def test_work_of_experts_is_what_the_model_charges(m):
    fitted = H100.profile.moe
    least = work.moe(m, MIXTRAL.expert_intermediate // 2, MIXTRAL.hidden, 8, 2, "bf16")
    expected = max(
        least.flops / (fitted.compute.value * PEAK["bf16"]),
        least.bytes / (fitted.memory.value * BW),
    )
    beside = 1e-6 * (fitted.fixed_us.value + fitted.router_us.value)
    beside += float(H100.gemm(m, 8, MIXTRAL.hidden, "bf16"))
    assert H100.experts(m, MIXTRAL, "bf16", 2) == pytest.approx(expected + beside, rel=1e-12)


def test_weight_types_have_the_size_the_model_gives_them():
    assert {name: work.OPERANDS[name].weight_bytes for name in BYTES_PER_WEIGHT} == BYTES_PER_WEIGHT


@pytest.mark.parametrize(("context", "q"), [(0, 7), (31, 1), (100, 5)])
def test_attention_counts_every_pair_a_causal_mask_leaves(context, q):
    pairs = sum(context + i for i in range(1, q + 1))
    least = work.attention(3, q, context, 8, 2, 64, "fp8")
    assert least.flops == 3 * 8 * 4 * 64 * pairs
    assert least.bytes == 3 * ((context + q) * 2 * 2 * 64 * 1 + q * 2 * 8 * 64 * 2)


def test_a_ring_sends_the_message_less_one_share_twice():
    assert work.all_reduce(8e6, 2).bytes == 8e6
    assert work.all_reduce(8e6, 8).bytes == 14e6


def test_experts_hit_by_uniform_and_by_balanced_routing():
    rng = np.random.default_rng(1)
    drawn = [len({*rng.permuted(np.tile(np.arange(8), (3, 1)), axis=1)[:, :2].flat})
             for _ in range(4000)]  # fmt: skip
    assert work.experts_hit(3, 8, 2) == pytest.approx(np.mean(drawn), rel=0.01)
    assert work.experts_hit([1, 3, 100], 8, 2, balanced=True).tolist() == [2, 6, 8]


def test_experts_without_a_gate_have_two_matrices():
    gated, plain = (work.moe(4, 512, 1024, 8, 2, "bf16", matrices=n) for n in (3, 2))
    assert plain.bytes / gated.bytes == pytest.approx(2 / 3)
    assert plain.flops / gated.flops == pytest.approx(2 / 3)
    assert gated.flops == 2 * 4 * 2 * 3 * 512 * 1024


def test_small_kernels_and_sampling_read_and_write_their_rows_once():
    assert work.elementwise(4, 100, ["rms_norm", "static_fp8_quant"]).bytes.tolist() == [1600, 1200]
    assert work.sampling(4, 100).bytes == 800
    assert not work.sampling(4, 100).flops.any()
