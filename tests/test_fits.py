"""Fits of kernel constants: what went into made-up tables comes out, whatever else is in them."""

from __future__ import annotations

import numpy as np
import pytest
from timed_kernels import (
    GEMM,
    H100,
    US,
    all_reduces,
    decodes,
    experts,
    gemms,
    noisy,
    number,
    prompts,
    small_kernels,
    verifications,
)

from calibration.kernels import rows
from calibration.kernels.check import flag
from calibration.kernels.fits import gemm
from calibration.kernels.fits.attention import fit_attention
from calibration.kernels.fits.collective import fit_all_reduce
from calibration.kernels.fits.elementwise import fit_elementwise
from calibration.kernels.fits.gemm import (
    FEW_TILES,
    PLAIN,
    SMALLEST_TILE,
    TILE_STEPS,
    TILED,
    fit_gemm,
)
from calibration.kernels.fits.interpolation import WITHOUT_M, WITHOUT_N
from calibration.kernels.fits.moe import fit_moe
from calibration.kernels.fits.robust import Form, fit
from models import catalog
from models.kernel_constants import FewTiles, Tiles
from models.schema import Constant, ModelError

TILE = Tiles(
    sms=132,
    steps=TILE_STEPS,
    wave_exponent=number(0.8),
    norm=number(3.0),
    unaligned=number(0.2),
)
LINE = Form("line", (1.0, 1.0), lambda values, table: values[0] * table["n"] + values[1])


def agrees(found: Constant | None, true: float, small: float = 0.1) -> bool:
    """Within three standard errors, which are small."""
    assert found is not None and found.se is not None
    assert 0 < found.se < small * true, found
    return abs(found.value - true) <= 3 * found.se


# Constants come back from noise of 5 % with 2 % of the rows ten times off


def test_those_of_a_gemm():
    found = fit_gemm(gemms(), H100)[0]["bf16"]
    assert found.tile is None
    assert all(agrees(getattr(found, name), true) for name, true in GEMM.items())
    assert found.compute.source == "a made-up table of kernels"
    assert found.compute.fitted_on == "360 rows of 24 (n, k) shapes, m 1-4096"


def test_those_of_a_gemm_with_a_rounded_ridge():
    found = fit_gemm(gemms(norm=3.0), H100)[0]["bf16"]
    assert agrees(found.norm, 3.0, small=0.2)
    assert all(agrees(getattr(found, name), true) for name, true in GEMM.items())


def test_those_of_a_gemm_of_few_tiles():
    few = FewTiles(sms=132, exponent=number(0.6), **SMALLEST_TILE)
    found, scores = fit_gemm(gemms(norm=3.0, few_tiles=few), H100)
    assert scores[0].what == FEW_TILES
    assert found["bf16"].few_tiles is not None
    assert agrees(found["bf16"].few_tiles.exponent, 0.6)
    assert agrees(found["bf16"].norm, 3.0, small=0.2)
    assert all(agrees(getattr(found["bf16"], name), true) for name, true in GEMM.items())


def test_those_of_a_gemm_with_tiles():
    table = rows.join([gemms(), gemms("fp8", compute=0.5, tile=TILE)])
    found = fit_gemm(table, H100)[0]["fp8"]
    assert found.tile is not None
    assert found.quantise_memory is None
    assert agrees(found.tile.unaligned, 0.2)
    assert agrees(found.compute, 0.5)
    assert agrees(found.memory, 0.85)
    assert agrees(found.tile.wave_exponent, 0.8)
    assert agrees(found.tile.norm, 3.0, small=0.2)


def test_those_of_a_layer_that_quantises_before_its_gemm():
    timed = gemms("fp8", compute=0.5, tile=TILE, quantise_memory=0.4)
    layer = timed.assign(source="aiconfigurator-core, made up")
    found = fit_gemm(rows.join([gemms(), layer]), H100)[0]["fp8"]
    assert agrees(found.quantise_memory, 0.4)
    assert agrees(found.compute, 0.5)
    # of a kernel that is no layer, what grows with activations is not taken for quantising
    assert fit_gemm(rows.join([gemms(), timed]), H100)[0]["fp8"].quantise_memory is None


def test_those_of_attention():
    found = fit_attention(rows.join([decodes(), decodes("fp8", 0.7, 15.0), prompts()]), H100)
    assert agrees(found.decode["bf16"].memory, 0.85)
    assert agrees(found.decode["bf16"].launch_us, 12.0)
    assert agrees(found.decode["fp8"].memory, 0.7)
    assert agrees(found.prefill.compute, 0.65)
    assert agrees(found.prefill.memory, 0.4)
    assert found.verify is None


def test_those_of_verification_where_computing_shows():
    table = rows.join([decodes(), prompts(), verifications(0.05)])
    verify = fit_attention(table, H100).verify
    assert verify is not None
    assert agrees(verify.compute, 0.05)
    hidden = rows.join([decodes(), prompts(), verifications(50.0)])
    assert fit_attention(hidden, H100).verify is None


@pytest.mark.parametrize("wide, share, noise", [(2, np.inf, 0.05), (64, 3.0, 0.01)])
def test_no_compute_of_verification_that_is_vague_or_more_than_there_is(wide, share, noise):
    timed = verifications()
    timed = timed[timed["query_tokens"] == wide]
    moving = timed["bytes"] / (0.1 * H100.memory_bandwidth_bytes_per_s)
    seconds = moving + timed["flops"] / (share * H100.peak_flops["bf16"]) + 12.0 * US
    slow = timed.assign(time_s=noisy(seconds, 3, noise, outliers=0.0))
    found = fit_attention(rows.join([decodes(), prompts(), slow]), H100)
    assert found.verify is not None
    assert found.verify.compute is None
    assert found.verify.memory is not None
    assert found.verify.memory.value == pytest.approx(0.1, rel=0.15)
    assert found.scores[-1].p90 < 0.15


def test_no_memory_of_verification_that_the_rows_do_not_tell():
    timed = verifications()
    computing = timed["flops"] / (0.01 * H100.peak_flops["bf16"])
    slow = timed.assign(time_s=noisy(computing + 12.0 * US, 3, outliers=0.0))
    verify = fit_attention(rows.join([decodes(), prompts(), slow]), H100).verify
    assert verify is not None
    assert verify.memory is None
    assert agrees(verify.compute, 0.01)


def test_those_of_an_all_reduce_and_the_size_at_which_it_changes():
    found, scores = fit_all_reduce(all_reduces(), H100)
    assert sorted(found) == [2, 4, 8]
    for constants in found.values():
        assert constants.large.from_bytes == 2**20
        assert agrees(constants.latency_us, 4.0)
        assert agrees(constants.efficiency, 0.3)
        assert constants.large.efficiency.value == pytest.approx(0.8, rel=0.03)
    assert max(score.median for score in scores) < 0.05
    assert fit_all_reduce(all_reduces(), catalog.hardware("h100_pcie")) == ({}, [])


def test_those_of_experts():
    found, _ = fit_moe(experts(), H100)
    assert found is not None
    assert agrees(found.compute, 0.5)
    assert agrees(found.memory, 0.86)
    assert agrees(found.fixed_us, 30.0)
    assert fit_moe(gemms(), H100) == (None, [])


def test_those_of_small_kernels():
    single = fit_elementwise(small_kernels(), H100)
    assert agrees(single.one_us, 2.0)
    assert agrees(single.layer.fixed_us, 10.0)
    assert agrees(single.layer.memory, 0.8)
    together = fit_elementwise(small_kernels("layer", 12.0), H100)
    assert agrees(together.layer.fixed_us, 12.0)
    assert agrees(together.one_us, 2.4)
    assert fit_elementwise(gemms(), H100).layer.fixed_us.source.startswith("assumed as on H100")


# Standard errors


def test_standard_errors_are_the_spread_of_repeated_fits():
    true, m = np.array([0.8, 5.0]), np.tile(2.0 ** np.arange(10), 30)
    found = [
        fit(lambda v: v[0] * m + v[1], (1.0, 1.0), noisy(true[0] * m + true[1], seed))
        for seed in range(60)
    ]
    spread = np.std([one.values for one in found], axis=0)
    stated = np.median([one.se for one in found], axis=0)
    assert stated == pytest.approx(spread, rel=0.3)


def test_rows_that_share_their_error_count_once():
    m = np.tile(2.0 ** np.arange(10), 20)
    shape = np.repeat(np.arange(20), 10)
    shared = np.exp(0.2 * np.random.default_rng(0).standard_normal(20))[shape]
    lone = fit(lambda v: v[0] * m + v[1], (1.0, 1.0), (m + 5.0) * shared)
    grouped = fit(lambda v: v[0] * m + v[1], (1.0, 1.0), (m + 5.0) * shared, groups=shape)
    assert grouped.values == pytest.approx(lone.values)
    assert grouped.se[0] > 2 * lone.se[0]


def test_a_constant_at_its_bound_is_zero_without_an_error():
    m = 2.0 ** np.arange(10)
    found = fit(lambda v: v[0] * m + v[1], (1.0, 1.0), 2.0 * m * (1 - 0.1 / m))
    constant = found.constant(1, "a test", "ten rows")
    assert (constant.value, constant.se) == (0.0, None)
    assert found.constant(0, "a test", "ten rows").value == pytest.approx(2.0, rel=0.05)


# What a fit makes of a table


def test_a_device_at_half_the_speed_has_half_the_efficiency():
    fast = fit_gemm(gemms(), H100)[0]["bf16"]
    slow = fit_gemm(gemms().assign(time_s=2 * gemms()["time_s"]), H100)[0]["bf16"]
    assert slow.compute.value == pytest.approx(fast.compute.value / 2, rel=1e-3)
    assert slow.memory.value == pytest.approx(fast.memory.value / 2, rel=1e-3)
    assert slow.launch_us.value == pytest.approx(2 * fast.launch_us.value, rel=1e-3)


def test_flagged_rows_are_left_out():
    good, bad = gemms(), gemms(seed=2).assign(flag="2x off the roofline")
    bad["time_s"] *= 100
    assert fit_gemm(rows.join([good, bad]), H100) == fit_gemm(good, H100)
    checked = flag(rows.join([good, good.assign(time_s=0.0)]), H100)
    assert fit_gemm(checked, H100)[0]["bf16"].compute.fitted_on.startswith("357 rows of 24 ")


def test_what_came_from_the_cache_does_not_speak_for_memory():
    table, cold = rows.join([decodes(), prompts()]), fit_attention
    expected = cold(table, H100).decode["bf16"]
    inside = (table["query_tokens"] == 1) & table["bytes"].between(3.4e6, 50e6)
    table.loc[inside, "time_s"] /= 3
    assert inside.sum() > 20
    assert cold(table, H100).decode["bf16"] == expected
    weights = gemms()
    small = weights["n"] * weights["k"] <= 2**23
    cached = weights.assign(time_s=np.where(small, 0.3 * US, weights["time_s"]))
    kept = gemm.served_shapes(cached, H100, "bf16")
    assert (kept["n"] * kept["k"]).min() > 2**23


def test_types_a_device_cannot_compute_in_are_left_out():
    table = rows.join([gemms(), gemms("fp8")])
    assert sorted(fit_gemm(table, H100)[0]) == ["bf16", "fp8"]
    assert sorted(fit_gemm(table, catalog.hardware("a100_80g_sxm"))[0]) == ["bf16"]


def test_tiles_are_taken_only_where_they_bring_the_error_down():
    plain, scores = fit_gemm(rows.join([gemms(), gemms("fp8", compute=0.5)]), H100)
    assert plain["fp8"].tile is None
    named = [score.what for score in scores if score.dtype == "fp8"]
    assert named[0] == PLAIN
    assert set(named) == {PLAIN, TILED, WITHOUT_M, WITHOUT_N}


# What cannot be fitted is refused in one line


@pytest.mark.parametrize("fit_one", [fit_gemm, fit_attention])
def test_without_rows(fit_one):
    with pytest.raises(ModelError, match="no usable rows of"):
        fit_one(experts(), H100)


def test_with_too_few_rows_or_one_shape():
    with pytest.raises(ModelError, match="3 constants need more rows than that, got 2"):
        fit_gemm(gemms()[[0, 300][0] : 1000 : 180][:4], H100)
    with pytest.raises(ModelError, match="two shapes or more are needed to hold one out, got 1"):
        fit_gemm(gemms().query("n == 1024 and k == 2048"), H100)


def test_with_times_that_are_no_times():
    with pytest.raises(ModelError, match="no constants fit 10 rows"):
        fit(lambda values: np.full(10, np.nan) * values[0], (1.0,), np.ones(10))
