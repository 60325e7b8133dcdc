"""Forms a profile may choose: tiles and quantising of fp8, streamed prompts, verification."""

from __future__ import annotations

import math

import numpy as np
import pytest
from by_hand import BF16, BW, FP8, PROFILE

from models import catalog
from models.forward_pass import Attention
from models.gemm import gemm_roofs
from models.kernel_constants import (
    FewTiles,
    PrefillAttentionConstants,
    Tiles,
    TileStep,
    VerifyAttentionConstants,
)
from models.kernels import Kernels
from models.schema import Constant, ModelError

MIXTRAL = catalog.transformer("mixtral-8x7b")
US = 1e6


def kernels(gpu="h100_sxm"):
    return Kernels(catalog.hardware(gpu), PROFILE)


def us(seconds):
    return US * float(seconds)


H100 = kernels()


# Tiles and waves


def number(value):
    return Constant(value=value, source="test")


def tiled(wave_exponent=0.814, norm=3.363, unaligned=None, **gemm):
    """fp8 on Hopper: tiles of 64 x 64, 64 x 128 and, in pairs along m, 128 x 128."""
    steps = (
        TileStep(up_to_m=64, pad_rows=64, tile_rows=64, tile_columns=64),
        TileStep(up_to_m=128, pad_rows=64, tile_rows=64, tile_columns=128),
        TileStep(up_to_m=None, pad_rows=256, tile_rows=128, tile_columns=128),
    )
    exponents = {"wave_exponent": number(wave_exponent), "norm": number(norm)}
    profile = PROFILE
    tile = Tiles(sms=132, steps=steps, unaligned=unaligned, **exponents)
    fp8 = profile.gemm["fp8"].model_copy(update={"tile": tile} | gemm)
    return Kernels(H100.accelerator, profile.model_copy(update={"gemm": {"fp8": fp8}}))


@pytest.mark.parametrize(
    ("m", "rows", "waves"),
    [
        (1, 64, 64 / 132),
        (64, 64, 64 / 132),
        (65, 128, 2 * 32 / 132),
        (128, 128, 2 * 32 / 132),
        (129, 256, 2 * 32 / 132),
        (256, 256, 2 * 32 / 132),
        # a row more and the pair of tiles costs 512
        (257, 512, 4 * 32 / 132),
        (1100, 1280, 10 * 32 / 132),
    ],
)
def test_fp8_computes_whole_tiles_in_waves(m, rows, waves):
    wave = (math.ceil(waves) / waves) ** 0.814
    computing = 2 * rows * 4096 * 4096 / (0.4985 * FP8) * wave
    moving = (4096 * 4096 + 4096 * m + 2 * 4096 * m) / (0.8269 * BW)
    roofs = (computing**3.363 + moving**3.363) ** (1 / 3.363)
    quantise = 2.5 + US * 3 * m * 4096 / (0.8 * BW)
    found = us(tiled().gemm(m, 4096, 4096, "fp8"))
    assert found == pytest.approx(US * roofs + 6.87 + quantise, rel=1e-12)


@pytest.mark.parametrize(("m", "longer"), [(2048, 1.0), (2064, 1.0), (2049, 1.2), (2056, 1.2)])
def test_rows_that_are_no_multiple_of_16_compute_longer(m, longer):
    usual, slow = tiled(), tiled(unaligned=number(0.2))
    before, after = (
        float(gemm_roofs(k.profile.gemm["fp8"], k.accelerator, m, 4096, 4096, "fp8")[0])
        for k in (usual, slow)
    )
    assert after == pytest.approx(longer * before, rel=1e-12)


def test_quantising_is_charged_once_where_it_was_timed_with_the_gemm():
    bare = tiled(quantise_us=None)
    inside = tiled(quantise_us=None, quantise_memory=number(0.4))
    before, after = (us(kernels.gemm(2048, 4096, 8192, "fp8")) for kernels in (bare, inside))
    # 2 bytes of an activation are read and 1 is written
    assert after - before == pytest.approx(US * 3 * 2048 * 8192 / (0.4 * BW), rel=1e-9)


def test_a_part_of_a_tile_across_costs_a_whole_one():
    # 8193 columns are 65 tiles of 128, as 8320 are
    few, many = (computed(n) for n in (8193, 8320))
    assert few / 8193 == pytest.approx(many / 8320, rel=1e-12)
    assert computed(8192) / 8192 != pytest.approx(few / 8193, rel=1e-3)


def computed(n):
    """Time under the compute roof for 2048 rows."""
    kernels = tiled()
    roof, _ = gemm_roofs(kernels.profile.gemm["fp8"], kernels.accelerator, 2048, n, 4096, "fp8")
    return float(roof)


def test_a_row_over_a_tile_shows_only_where_computing_takes_longest():
    step = float(tiled().gemm(257, 8192, 8192, "fp8") / tiled().gemm(256, 8192, 8192, "fp8"))
    assert step > 1.3
    assert float(tiled().gemm(65, 8192, 8192, "fp8") / tiled().gemm(64, 8192, 8192, "fp8")) < 1.1


def test_without_partial_waves_and_with_a_sharp_norm_only_padding_is_left():
    aligned = np.array([64, 512, 1024, 4096])
    plain = H100.gemm(aligned, 8192, 8192, "fp8")
    assert tiled(0.0, 200.0).gemm(aligned, 8192, 8192, "fp8") == pytest.approx(plain, rel=1e-2)
    assert float(tiled().gemm(0, 8192, 8192, "fp8")) == 0.0


# The ridge, and outputs of few tiles, in bf16


def rounded(norm=3.4, exponent=None, sms=132):
    """bf16 roofs joined in a p-norm; with an exponent few tiles leave multiprocessors idle."""
    bf16 = PROFILE.gemm["bf16"].model_copy(update={"norm": number(norm)})
    if exponent is not None:
        few = FewTiles(sms=sms, tile_rows=64, tile_columns=128, exponent=number(exponent))
        bf16 = bf16.model_copy(update={"few_tiles": few})
    return Kernels(H100.accelerator, PROFILE.model_copy(update={"gemm": {"bf16": bf16}}))


@pytest.mark.parametrize(
    ("m", "n", "k", "waves"),
    [
        (64, 4096, 4096, 32 / 132),
        (256, 4096, 14336, 4 * 32 / 132),
        # from here each multiprocessor has a tile
        (512, 4096, 4096, 1.0),
        (192, 28672, 4096, 1.0),
    ],
)
def test_a_gemm_of_few_tiles_computes_on_a_part_of_the_device(m, n, k, waves):
    computing = 2 * m * n * k / (0.7912 * BF16) * (1 / waves) ** 0.65
    moving = (2 * n * k + 2 * m * k + 2 * m * n) / (0.8601 * BW)
    expected = US * (computing**3.4 + moving**3.4) ** (1 / 3.4) + 3.69
    assert us(rounded(3.4, 0.65).gemm(m, n, k, "bf16")) == pytest.approx(expected, rel=1e-12)


M = np.arange(1, 9000)
SHAPES = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (1024, 8192), (128256, 4096)]


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_a_rounded_ridge_lies_between_the_larger_roof_and_the_sum_of_both(n, k):
    computing, moving = gemm_roofs(H100.profile.gemm["bf16"], H100.accelerator, M, n, k, "bf16")
    launch = 3.69 / US
    found = rounded().gemm(M, n, k, "bf16") - launch
    assert (found > np.maximum(computing, moving)).all()
    assert (found < computing + moving).all()
    sum_of_both = rounded(1.0).gemm(M, n, k, "bf16") - launch
    assert sum_of_both == pytest.approx(computing + moving, rel=1e-9)
    # most is added where both take equally long
    over = found / np.maximum(computing, moving)
    assert computing[over.argmax()] == pytest.approx(moving[over.argmax()], rel=0.01)
    assert over.max() == pytest.approx(2 ** (1 / 3.4), rel=1e-3)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_a_sharp_norm_and_no_idle_multiprocessors_are_the_plain_roofline(n, k):
    plain = H100.gemm(M, n, k, "bf16")
    assert rounded(1e4, 0.0).gemm(M, n, k, "bf16") == pytest.approx(plain, rel=1e-4)
    assert rounded(1e4).gemm(M, n, k, "bf16") == pytest.approx(plain, rel=1e-4)


SHIPPED = ("h100_sxm", "h200_sxm", "a100_80g_sxm", "l40s", "b200_sxm")


@pytest.mark.parametrize("gpu", SHIPPED)
@pytest.mark.parametrize(("n", "k"), [*SHAPES, (8, 4096)])
def test_another_row_never_shortens_a_gemm(gpu, n, k):
    kernels = Kernels(catalog.hardware(gpu), catalog.profile(gpu))
    assert (np.diff(kernels.gemm(M, n, k, "bf16")) > 0).all()


@pytest.mark.parametrize("gpu", SHIPPED)
def test_the_shipped_forms_round_the_ridge(gpu):
    fitted = catalog.profile(gpu).gemm["bf16"]
    assert fitted.norm is not None and fitted.norm.value > 1.0
    assert fitted.few_tiles is None or fitted.few_tiles.exponent.value <= 1.0


def test_computing_alone_on_a_tile_takes_as_long_for_any_number_of_rows():
    kernels = rounded(1e3, 1.0)
    fitted, device = kernels.profile.gemm["bf16"], kernels.accelerator
    computing, _ = gemm_roofs(fitted, device, [1, 16, 64], 1024, 8192, "bf16")
    one_tile = 2 * 64 * 128 * 8192 / (0.7912 * BF16 / 132)
    assert computing == pytest.approx([one_tile] * 3, rel=1e-12)


# Constants of prompts and of verification


def attending(**constants):
    profile = PROFILE.model_copy(update=constants)
    return Kernels(H100.accelerator, profile)


@pytest.mark.parametrize("tp", [1, 4, 16])
def test_a_prompt_streams_its_queries_keys_values_and_outputs(tp):
    llama = catalog.transformer("llama-3.1-8b")
    prefill = PrefillAttentionConstants(compute=number(0.678), memory=number(0.4))
    attention = Attention.of(attending(prefill_attention=prefill), llama, "bf16", tp, 1)
    # 32 heads of queries and of outputs, 8 of keys and of values, at least one of each on a GPU
    token = (2 * 32 / tp + 2 * math.ceil(8 / tp)) * 128 * 2 / (0.4 * BW)
    pair = 4 * 32 / tp * 128 / (0.678 * BF16)
    expected = 32 * (1000 * token + 500_000 * pair)
    assert attention.seconds(0, 0, 500_000, 1000) == pytest.approx(expected, rel=1e-12)
    # by default streaming is free
    free = Attention.of(H100, llama, "bf16", tp, 1)
    assert free.seconds(0, 0, 0, 1000) == 0.0


def test_verification_may_compute_at_a_rate_of_its_own():
    llama = catalog.transformer("llama-3.1-8b")
    verify = VerifyAttentionConstants(compute=number(0.2))
    slow = Attention.of(attending(verify_attention=verify), llama, "bf16", 1, 1)
    usual = Attention.of(H100, llama, "bf16", 1, 1)
    pair = 32 * 4 * 32 * 128 / (0.2 * BF16)
    assert slow.seconds(1000, 64_000) == pytest.approx(64_000 * pair)
    assert slow.slope(64) == pytest.approx(64 * pair)
    # neither prompts nor single tokens change
    assert slow.seconds(0, 0, 5000) == usual.seconds(0, 0, 5000)
    assert slow.slope(1) == usual.slope(1)


def test_verification_may_read_at_a_rate_of_its_own_before_it_computes():
    llama = catalog.transformer("llama-3.1-8b")
    verify = VerifyAttentionConstants(compute=number(0.2), memory=number(0.1))
    kernels = attending(verify_attention=verify)
    several = Attention.of(kernels, llama, "bf16", 1, 4)
    pair = 32 * 4 * 32 * 128 / (0.2 * BF16)
    read = 32 * 2 * 8 * 128 * 2 / (0.1 * BW)
    assert several.seconds(1000, 4000) == pytest.approx(1000 * read + 4000 * pair)
    assert several.slope(4) == pytest.approx(read + 4 * pair)
    # where its computing was not told, it takes as long as in a prompt
    untold = attending(verify_attention=VerifyAttentionConstants(memory=number(0.1)))
    prompt = 32 * H100.pair_s(llama, 1)
    assert Attention.of(untold, llama, "bf16", 1, 4).slope(4) == pytest.approx(read + 4 * prompt)
    # single tokens decode as ever
    assert Attention.of(kernels, llama, "bf16", 1, 1).slope(1) == pytest.approx(
        Attention.of(H100, llama, "bf16", 1, 1).slope(1)
    )


def test_what_a_profile_lacks_is_an_error_when_needed():
    with pytest.raises(ModelError, match="no constants of expert layers"):
        attending(moe=None).experts(1, MIXTRAL, "bf16", 1)
    with pytest.raises(ModelError, match="constants for no GPUs, got 2"):
        attending(all_reduce={}).all_reduce(8192, 2)
