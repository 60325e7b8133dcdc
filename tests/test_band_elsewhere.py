"""Bands on a device whose serving was never scored: the errors of its kernels come on top."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from test_band import PLAIN, prepared

from models.profile import KernelResidual
from sim.band import step_scale
from sim.setup import Setup


def measured(setup: Setup, lo: float, hi: float, **row: Any) -> Setup:
    """The setup with an error of a whole layer's kernels in its profile."""
    layer = KernelResidual(
        **{"operation": "layer", "dtype": "bf16", "rows": 50, "median": 0.05, "p90": 0.1}
        | {"lo": lo, "hi": hi}
        | row
    )
    profile = setup.deployment.profile.model_copy(update={"residuals": (layer,)})
    return replace(setup, deployment=replace(setup.deployment, profile=profile))


def on_h200(strategy: str = PLAIN) -> Setup:
    """On a profile of its own, so only the serving is carried over; without kernel errors."""
    setup = prepared(strategy, "vllm_0.15", gpu="h200_sxm")
    assert setup.deployment.profile_basis == "validated"
    profile = setup.deployment.profile.model_copy(update={"residuals": ()})
    return replace(setup, deployment=replace(setup.deployment, profile=profile))


def test_serving_is_validated_only_on_the_devices_that_were_scored():
    assert step_scale(prepared(PLAIN, "vllm_0.15"), 64).basis == "validated"
    assert step_scale(on_h200(), 64).basis == "extrapolated"


def test_elsewhere_the_error_of_the_kernels_comes_on_top():
    scale = step_scale(measured(on_h200(), 0.9, 1.2), 64)
    assert math.log(scale.lo) == pytest.approx(-math.hypot(math.log(0.944), math.log(0.9)))
    assert math.log(scale.hi) == pytest.approx(math.hypot(math.log(1.056), math.log(1.2)))
    # the runs of a scored device contain it
    home = measured(prepared(PLAIN, "vllm_0.15"), 0.9, 1.2)
    assert step_scale(home, 64) == step_scale(prepared(PLAIN, "vllm_0.15"), 64)
    # errors of another type or operation say nothing
    for other in ({"dtype": "fp8"}, {"operation": "moe"}):
        assert step_scale(measured(on_h200(), 0.9, 1.2, **other), 64) == step_scale(on_h200(), 64)


def test_beyond_the_steps_whose_error_is_known_that_of_the_nearest_holds():
    within = step_scale(measured(on_h200(), 0.9, 1.2, m=(1, 512)), 512)
    beyond = step_scale(measured(on_h200(), 0.9, 1.2, m=(1, 512)), 513)
    assert math.log(beyond.hi) == pytest.approx(math.hypot(math.log(1.056), math.log(1.2)))
    assert (beyond.lo, beyond.hi) == (within.lo, within.hi)


def test_a_device_without_whole_layers_has_the_error_of_its_gemms():
    scale = step_scale(measured(on_h200(), 0.7, 1.4, operation="gemm"), 64)
    assert math.log(scale.hi) == pytest.approx(math.hypot(math.log(1.056), math.log(1.4)))


def test_a_fit_that_is_off_to_one_side_does_not_narrow_the_other():
    scale, alone = step_scale(measured(on_h200(), 1.02, 1.2), 64), step_scale(on_h200(), 64)
    assert scale.lo == alone.lo
    assert scale.hi > alone.hi


def test_kernel_errors_cancel_in_a_speedup():
    eagle3 = "{kind: eagle3, k: 3, acceptance: {tau: 2.4, uncertainty: 0}}"
    alone, more = on_h200(eagle3), measured(on_h200(eagle3), 0.9, 1.2)
    one, two = step_scale(alone, 64), step_scale(more, 64)
    assert (two.gain_lo, two.gain_hi) == (one.gain_lo, one.gain_hi)
    assert two.lo < one.lo
    assert two.hi > one.hi
