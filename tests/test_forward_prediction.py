"""Forward passes of a real model on a real CPU, predicted from kernels timed on it.

Both were recorded (``make cpu-record``). Kernels were timed one by one, never a forward pass, so
every pass is held out.
"""

from __future__ import annotations

import pytest
from cpu_forwards import PROFILE, errors, kernels_of, mape, recorded, worst

from calibration.kernels import output
from calibration.validation.forward import POINTS, Point, predict_forward
from models import catalog
from models.profile import Profile

NET = catalog.transformer("smollm2-135m")


@pytest.fixture(scope="module")
def found() -> dict[Point, float]:
    """Relative errors by point."""
    return errors(kernels_of(PROFILE), recorded())


def test_every_batch_width_and_context_was_timed_and_none_of_them_badly():
    timed = recorded()
    assert [one.point for one in timed] == list(POINTS)
    assert max(one.spread for one in timed) < 0.15


@pytest.mark.parametrize("backend", ["auto", "table"])
def test_the_mean_error_is_at_most_12_percent_and_the_worst_30(backend):
    off = errors(kernels_of(PROFILE, backend), recorded())
    assert mape(off) <= 0.12
    assert worst(off) <= 0.30


@pytest.mark.parametrize("part", ["few", "many", "short", "long", "decoding", "verification"])
def test_no_part_of_the_range_is_much_worse(found, part):
    belongs = {
        "few": lambda p: p.batch * p.new_tokens <= 64,
        "many": lambda p: p.batch * p.new_tokens > 64,
        "short": lambda p: p.context == 128,
        "long": lambda p: p.context == 512,
        "decoding": lambda p: p.new_tokens == 1,
        "verification": lambda p: p.new_tokens > 1,
    }[part]
    assert mape({point: error for point, error in found.items() if belongs(point)}) <= 0.15


def test_measured_gemms_make_it_more_accurate():
    roofline, table = (
        errors(kernels_of(PROFILE, backend), recorded()) for backend in ("roofline", "table")
    )
    assert mape(table) < mape(roofline)
    assert worst(table) < worst(roofline)


def test_the_profile_was_fitted_to_kernels_alone():
    profile: Profile = catalog.profile(str(PROFILE))
    rows = output.measured_rows(profile, PROFILE.parent)
    assert rows is not None
    assert "calibrate device" in profile.provenance.command
    assert set(rows["source"]) == {rows["source"].iloc[0]}
    assert "forward" not in rows["source"].iloc[0]
    # One forward takes 40 ms and more; no layer of it, timed alone, comes near.
    layers = rows[rows["operation"].isin(["elementwise", "attention"])]
    assert layers["time_s"].max() < 0.04


def test_a_pass_costs_more_with_every_sequence_every_new_token_and_more_context():
    kernels = kernels_of(PROFILE)

    def seconds(*point: int) -> float:
        return predict_forward(kernels, NET, Point(*point))

    base = seconds(4, 8, 256)
    assert seconds(5, 8, 256) > base
    assert seconds(4, 9, 256) > base
    assert seconds(4, 8, 300) > base


def test_new_tokens_attend_to_each_other():
    kernels = kernels_of(PROFILE)
    no_context = predict_forward(kernels, NET, Point(1, 64, 0))
    apart = predict_forward(kernels, NET, Point(64, 1, 0))
    assert no_context > apart
