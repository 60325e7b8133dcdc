"""Which kernels are timed on the device at hand. No torch."""

from __future__ import annotations

import numpy as np
import pytest
from device_cases import BOX, LLAMA

from calibration.kernels.device.grid import CPU, CUDA, grid
from calibration.kernels.device.resume import Timed
from calibration.kernels.device.run import (
    to_rows,
)
from calibration.kernels.device.sweep import sweep
from models import catalog
from models.forward_pass import head_parts, layer_parts
from models.kernels import Kernels
from models.schema import ModelError

NETS = {
    "llama": LLAMA,
    "smollm2": catalog.transformer("smollm2-135m"),
    "fewer KV heads than GPUs": LLAMA.model_copy(update={"kv_heads": 4}),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_gemms_timed_are_those_a_forward_pass_prices(monkeypatch, name, tp):
    net = NETS[name]
    if net.heads % tp:
        with pytest.raises(ModelError, match="must divide"):
            sweep(net, tp, CPU)
        return
    priced, gemm = set(), Kernels.gemm

    def spy(self, m, n, k, *rest):
        priced.add((n, k))
        return gemm(self, m, n, k, *rest)

    monkeypatch.setattr(Kernels, "gemm", spy)
    kernels = Kernels(catalog.hardware("h100_sxm"), catalog.profile("h100_sxm"))
    layer_parts(kernels, net, "bf16", "bf16", tp, np.arange(3))
    head_parts(kernels, net, tp, np.arange(3))
    for stack in ("fused", "transformers"):
        shapes = [s for s in sweep(net, tp, CPU, stack=stack) if s.operation == "gemm"]
        assert {(shape.n, shape.k) for shape in shapes} == priced
        assert {s.m for s in shapes if s.k == net.hidden} == set(CPU.m)


def test_projections_computed_apart_add_up_to_the_fused_one():
    shapes = sweep(LLAMA, 1, CPU, stack="transformers")
    apart = {shape.n: shape.parts for shape in shapes if shape.parts}
    assert apart == {6144: (4096, 1024, 1024), 28672: (14336, 14336)}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("stack", ["fused", "transformers"])
def test_no_two_kernels_of_a_sweep_have_one_text(device, stack):
    shapes = sweep(LLAMA, 2, grid(device), stack=stack, dtypes=("bf16", "fp8"), gpus=4)
    texts = [str(shape) for shape in shapes]
    assert len(set(texts)) == len(texts)
    assert all("  " not in text and not text.endswith(",") for text in texts)


def test_verification_is_timed_for_every_width_of_chain_and_tree():
    attention = [s for s in sweep(LLAMA, 1, CUDA) if s.operation == "attention"]
    chains = {s.query_tokens for s in attention if s.mask == "causal" and s.context_tokens}
    assert chains == set(CUDA.query)
    trees = [s for s in attention if s.mask == "tree"]
    assert {s.query_tokens for s in trees} == {8, 16, 32, 64}
    assert all(s.context_tokens for s in trees)
    assert {s.query_tokens for s in attention if not s.context_tokens} == set(CUDA.prompt)


def test_the_kv_of_a_sweep_fits_a_gpu():
    largest = max(s.batch * (s.context_tokens + s.query_tokens) for s in sweep(LLAMA, 1, CUDA))
    assert largest * LLAMA.kv_bytes_per_token("bf16", 1) / LLAMA.layers < 3e9


def test_what_matters_most_comes_first():
    order = list(dict.fromkeys(s.operation for s in sweep(LLAMA, 1, CUDA, graphs=True)))
    assert order == ["stream", "launch", "gemm", "elementwise", "attention", "sampling"]


def test_fp8_covers_the_layers_and_leaves_the_lm_head():
    fp8 = {(s.n, s.k) for s in sweep(LLAMA, 1, CUDA, dtypes=("bf16", "fp8")) if s.dtype == "fp8"}
    assert (6144, 4096) in fp8
    assert (LLAMA.vocab, LLAMA.hidden) not in fp8
    assert (LLAMA.hidden, 0) in fp8  # quantising the input of a GEMM


def test_all_reduce_is_timed_for_the_groups_there_are_gpus_for():
    groups = {s.gpus for s in sweep(LLAMA, 1, CUDA, gpus=6) if s.operation == "all_reduce"}
    assert groups == {2, 4}
    assert not [s for s in sweep(LLAMA, 1, CUDA) if s.operation == "all_reduce"]


def test_the_experts_of_a_mixture_are_left_out():
    mixture = catalog.transformer("qwen3-30b-a3b")
    widths = {(s.n, s.k) for s in sweep(mixture, 1, CPU) if s.operation == "gemm"}
    assert len(widths) == 3  # qkv, o, LM head


def test_every_kernel_has_a_row_of_the_schema():
    shapes = sweep(LLAMA, 1, CUDA, dtypes=("bf16", "fp8"), graphs=True, gpus=2)
    rows = to_rows([(s, Timed(str(s), 1e-3, 0.1)) for s in shapes], BOX, "here")
    assert list(rows["operation"]) == [shape.operation for shape in shapes]
    assert list(rows["m"]) == [shape.m for shape in shapes]
    assert (rows["bytes"] > 0).equals(rows["operation"] != "launch")
    assert (rows["flops"] > 0).equals(rows["operation"].isin(["gemm", "attention"]))
    assert set(rows["mask"]) == {"", "causal", "tree"}
    assert set(rows["device"]) == {"Some CPU (R) 9000"}


def test_small_kernels_of_a_layer_count_the_bytes_the_model_does():
    h100 = Kernels(catalog.hardware("h100_sxm"), catalog.profile("h100_sxm"))
    (small,) = (s for s in sweep(LLAMA, 2, CUDA) if s.operation == "elementwise" and s.m == 64)
    streamed = h100.elementwise(64, LLAMA, 2) - h100.elementwise(1e-9, LLAMA, 2)
    share = h100.profile.elementwise.memory.value
    assert streamed * share * 3.35e12 == pytest.approx(small.bytes)


def test_quick_is_a_part_of_the_whole():
    for device in ("cuda", "cpu"):
        whole = {str(s) for s in sweep(LLAMA, 1, grid(device))}
        quick = {str(s) for s in sweep(LLAMA, 1, grid(device, quick=True))}
        assert quick < whole
        assert len(quick) < 120
