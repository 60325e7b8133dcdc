"""One kernel at a time against its equation, the constants typed in."""

from __future__ import annotations

import by_hand
import numpy as np
import pytest
from by_hand import BF16, BW, FP8, LLAMA_8B, LLAMA_70B, PROFILE

from models import catalog
from models.forward_pass import Attention
from models.kernels import Kernels
from models.schema import ModelError

MIXTRAL = catalog.transformer("mixtral-8x7b")
US = 1e6


def kernels(gpu="h100_sxm"):
    return Kernels(catalog.hardware(gpu), PROFILE)


def us(seconds):
    return US * float(seconds)


H100 = kernels()
SHAPES = [(6144, 4096), (28672, 4096), (4096, 14336), (2048, 8192), (128256, 4096)]
ROWS = [1, 2, 7, 16, 64, 128, 200, 256, 300, 512, 2048, 8192]


@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_gemm_follows_its_equation(m, n, k):
    assert us(H100.gemm(m, n, k, "bf16")) == pytest.approx(by_hand.gemm(m, n, k), rel=1e-12)
    assert us(H100.gemm(m, n, k, "fp8")) == pytest.approx(by_hand.gemm_fp8(m, n, k), rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "m", "expected"),
    [
        # 33.57 MB at 2881 GB/s + 3.69; 137.4 GFLOP at 782.9 TFLOP/s + 3.69
        ("bf16", 1, 15.341),
        ("bf16", 4096, 179.243),
        # 16.79 MB at 2770 GB/s + 6.87 + 2.5 + 0.0046; 137.4 GFLOP at 986.5 TFLOP/s + 9.37 + 18.78
        ("fp8", 1, 15.436),
        ("fp8", 4096, 167.466),
        # weights of one and of half a byte, bf16 activations and arithmetic
        ("int8", 1, 9.518),
        ("int4", 1, 6.607),
        ("int4", 4096, 179.243),
    ],
)
def test_gemm_of_4096_by_4096(weights, m, expected):
    assert us(H100.gemm(m, 4096, 4096, weights)) == pytest.approx(expected, abs=2e-3)


def test_gemm_scales_with_the_device():
    m, n, k = 1, 28672, 8192
    moved = 2 * n * k + 2 * k + 2 * n
    assert us(kernels("h200_sxm").gemm(m, n, k, "bf16")) == pytest.approx(
        US * moved / (0.8601 * 4.8e12) + 3.69
    )
    compute = 2 * 4096 * n * k / (0.7912 * 312e12)
    assert us(kernels("a100_80g_sxm").gemm(4096, n, k, "bf16")) == pytest.approx(
        US * compute + 3.69
    )


def test_gemm_is_bound_by_memory_before_the_ridge_and_by_compute_after():
    # 2mnk/(.7912 P) = 2nk/(.8601 BW) near m = 272 for large n, k; activations push it further
    assert H100.gemm_bound(250, 16384, 16384, "bf16") == "memory"
    assert H100.gemm_bound(320, 16384, 16384, "bf16") == "compute"
    assert H100.gemm_bound(150, 16384, 16384, "fp8") == "memory"
    assert H100.gemm_bound(250, 16384, 16384, "fp8") == "compute"


@pytest.mark.parametrize(
    ("tp", "size", "expected"),
    [
        (1, 1e6, 0.0),
        (2, 8192, 4.25 + US * 8192 / (0.547 * 450e9)),
        (2, 1e8, 36.5 + US * 1e8 / (0.696 * 450e9)),
        (4, 16384, 4.60 + US * 1.5 * 16384 / (0.344 * 450e9)),
        (4, 2**19, 8.88 + US * 1.5 * 2**19 / (0.710 * 450e9)),
        (8, 2**18 - 1, 4.79 + US * 1.75 * (2**18 - 1) / (0.160 * 450e9)),
        (8, 1e6, 10.05 + US * 1.75 * 1e6 / (0.875 * 450e9)),
    ],
)
def test_all_reduce_by_group(tp, size, expected):
    assert us(H100.all_reduce(size, tp)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("m", [1, 64, 2048])
def test_elementwise_is_ten_us_and_its_traffic(m, tp):
    found = H100.elementwise(m, catalog.transformer("llama-3.1-70b"), tp)
    assert us(found) == pytest.approx(by_hand.elementwise(m, LLAMA_70B, tp), rel=1e-12)


def test_normalised_queries_and_keys_cost_thirty_percent_more_of_the_fixed_part_only():
    plain = catalog.transformer("llama-3.1-8b")
    normed = plain.model_copy(update={"qk_norm": True})
    for m in (1, 2048):
        extra = us(H100.elementwise(m, normed, 1)) - us(H100.elementwise(m, plain, 1))
        assert extra == pytest.approx(3.0)


def test_decode_attention_reads_each_token_once():
    llama = catalog.transformer("llama-3.1-8b")
    assert us(H100.kv_read_s(llama, "bf16", 1)) == pytest.approx(US * 4096 / (0.8535 * BW))
    assert us(H100.kv_read_s(llama, "fp8", 1)) == pytest.approx(US * 2048 / (0.6817 * BW))
    assert us(H100.kv_read_s(llama, "bf16", 4)) == pytest.approx(US * 1024 / (0.8535 * BW))
    # 8 KV heads on 16 GPUs: one each, held twice
    assert us(H100.kv_read_s(llama, "bf16", 16)) == pytest.approx(US * 512 / (0.8535 * BW))
    assert us(H100.attention_launch_s("bf16")) == pytest.approx(12.47)
    assert us(H100.attention_launch_s("fp8")) == pytest.approx(14.97)


@pytest.mark.parametrize("tp", [1, 4])
def test_attention_is_the_larger_of_reading_and_computing_plus_prefill(tp):
    llama = catalog.transformer("llama-3.1-8b")
    attention = Attention.of(H100, llama, "bf16", tp, 1)
    ctx = 50_000
    read, one = by_hand.kv_read(ctx, LLAMA_8B, tp), by_hand.attend(ctx, LLAMA_8B, tp)
    for width in (1, 4, 26, 64, 300):
        expected = max(read, width * one)
        assert us(attention.seconds(ctx, width * ctx, 0.0)) == pytest.approx(expected, rel=1e-12)
        assert us(attention.slope(width)) * ctx == pytest.approx(expected, rel=1e-12)
    assert 300 * one > read > 26 * one
    # a prompt of 2000 in chunks of 1200 and 800: c done + c^2/2
    pairs = 1200**2 / 2 + 800 * 1200 + 800**2 / 2
    assert pairs == 2000**2 / 2
    both = us(attention.seconds(ctx, ctx, pairs))
    assert both == pytest.approx(read + by_hand.attend(pairs, LLAMA_8B, tp), rel=1e-12)


def mixture(m, tp, fp8=False):
    """Mixtral: 8 experts of 14336, 2 a token."""
    hit = 8 * (1 - 0.75**m)
    weights = hit * 3 * 4096 * 14336 / tp * (1 if fp8 else 2)
    compute = 2 * m * 2 * 3 * 4096 * 14336 / tp / (0.55 * (FP8 if fp8 else BF16))
    return US * max(compute, weights / (0.86 * BW)) + 8 + by_hand.gemm(m, 8, 4096) + 4


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("m", [1, 2, 8, 64, 512, 4096])
def test_experts_read_those_hit(m, tp):
    assert us(H100.experts(m, MIXTRAL, "bf16", tp)) == pytest.approx(mixture(m, tp), rel=1e-12)
    fp8 = us(H100.experts(m, MIXTRAL, "fp8", tp))
    assert fp8 == pytest.approx(mixture(m, tp, fp8=True), rel=1e-12)


def test_one_token_hits_its_own_experts_and_many_hit_all():
    read = US * 3 * 4096 * 14336 * 2 / (0.86 * BW)
    rest = 8 + by_hand.gemm(1, 8, 4096) + 4
    assert us(H100.experts(1, MIXTRAL, "bf16", 1)) == pytest.approx(2 * read + rest)
    # two tokens: 8 (1 - .75^2) = 3.5 experts
    assert us(H100.experts(2, MIXTRAL, "bf16", 1)) == pytest.approx(3.5 * read + rest, rel=1e-3)
    assert us(H100.experts(64, MIXTRAL, "bf16", 1)) == pytest.approx(8 * read + rest, rel=1e-3)


@pytest.mark.parametrize("rows", [1, 8, 256])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_lm_head(rows, tp):
    found = us(H100.lm_head(rows, 4096, 128256, tp) + H100.all_reduce(2.0 * rows * 128256, tp))
    assert found == pytest.approx(by_hand.head(rows, 4096, 128256, tp), rel=1e-12)


@pytest.mark.parametrize("rows", [1, 16, 64])
def test_medusa_head(rows):
    logits = US * 8 * rows * 32000 / (0.8 * BW)
    expected = by_hand.gemm(rows, 4096, 4096) + 5 + by_hand.gemm(rows, 32000, 4096) + logits + 5
    assert us(H100.medusa_head(rows, 4096, 32000, 1)) == pytest.approx(expected, rel=1e-12)


BY_ROWS = {
    "gemm bf16": lambda m: H100.gemm(m, 4096, 4096, "bf16"),
    "gemm fp8": lambda m: H100.gemm(m, 4096, 4096, "fp8"),
    "elementwise": lambda m: H100.elementwise(m, MIXTRAL, 2),
    "all-reduce": lambda m: H100.all_reduce(8192 * m, 4),
    "experts": lambda m: H100.experts(m, MIXTRAL, "bf16", 2),
    "lm head": lambda m: H100.lm_head(m, 4096, 128256, 1),
    "medusa head": lambda m: H100.medusa_head(m, 4096, 128256, 1),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_nothing_costs_nothing_and_more_costs_more(name):
    seconds = BY_ROWS[name](np.arange(3000))
    assert seconds[0] == 0.0
    assert seconds[1] > 3e-6
    assert np.all(np.diff(seconds) > 0)


def test_fp8_needs_tensor_cores_for_it():
    with pytest.raises(ModelError, match="no fp8 tensor cores, got weights 'fp8'"):
        kernels("a100_80g_sxm").gemm(1, 4096, 4096, "fp8")


def test_a_group_needs_a_link_and_constants():
    with pytest.raises(ModelError, match="no interconnect, so only 1 works, got 2"):
        kernels("h100_pcie").all_reduce(8192, 2)
    assert float(kernels("h100_pcie").all_reduce(8192, 1)) == 0.0
    with pytest.raises(ModelError, match="joins at most 8 GPUs, got 16"):
        H100.all_reduce(8192, 16)
    with pytest.raises(ModelError, match="joins at most 2 GPUs, got 4"):
        kernels("h100_nvl").all_reduce(8192, 4)
    with pytest.raises(ModelError, match="constants for 2, 4, 8 GPUs, got 5"):
        H100.all_reduce(8192, 5)
