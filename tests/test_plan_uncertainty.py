"""Error bars of a plan against closed forms, and costs by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sim.band import Z
from sim.planning.bounds import changed
from sim.planning.capacity import Capacity
from sim.planning.cheapest import setup_of
from sim.planning.costs import costs, pareto
from sim.planning.errors import Error
from sim.planning.hour import Judge
from sim.planning.replica import _Search
from sim.planning.uncertainty import LEAST_SHARE, Curve, Curves, Rule, outlook, tornado
from sim.scenario.schema import Scenario
from sim.scenario.service_level import Bounds, Slo
from tests.plans import PLAIN, small

RULE = Rule(replicas=11, tp=1, spare=1, held_req_s=100.0, peak_req_s=100.0, least=2)
STEEP = -1.5
"""Power of the step time that capacity follows in these tests."""


def _curves(power: float = STEEP) -> Curves:
    points = [(factor, factor**power) for factor in (0.7, 1.0, 1.5)]
    return Curves(Curve(points), Curve([(1.0, 1.0), (0.5, 1.0), (2.0, 1.0)]))


def _error(lo: float, hi: float, acts_on: str = "decode_s", name: str = "acceptance") -> Error:
    return Error(name, "", "assumed", lo, hi, acts_on)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
def test_one_lognormal_input_gives_the_quantile_of_the_closed_form(share: float) -> None:
    rule, sigma = RULE._replace(replicas=1001, held_req_s=100.0), 0.2
    half = math.exp(Z * sigma)
    seen = outlook([_error(1 / half, half)], _curves(), rule, 1, share)
    # GPUs = 1 + 1000 s**1.5 with ln s normal of standard deviation sigma.
    expected = 1 + 1000 * math.exp(-STEEP * sigma * stats.norm.ppf(share))
    assert seen.asked == pytest.approx(expected, rel=0.01)
    assert seen.confidence == pytest.approx(0.5, abs=0.01)


def test_both_ends_of_a_lopsided_input_are_its_stated_quantiles() -> None:
    rule = RULE._replace(replicas=1001)
    seen = outlook([_error(0.9, 1.4, "demand", "demand")], _curves(), rule, 1)
    assert seen.lo == pytest.approx(1 + 900, rel=0.01)
    assert seen.hi == pytest.approx(1 + 1400, rel=0.01)


def test_independent_inputs_add_in_logarithms() -> None:
    rule = RULE._replace(replicas=1001)
    both = [_error(1 / 1.2, 1.2), _error(1 / 1.3, 1.3, "demand", "demand")]
    seen = outlook(both, _curves(-1.0), rule, 1)
    size = math.hypot(math.log(1.2), math.log(1.3))
    assert seen.hi == pytest.approx(1 + 1000 * math.exp(size), rel=0.015)


def test_whole_replicas_are_bought() -> None:
    gpus = RULE._replace(tp=4).gpus(np.array([1.0]), np.array([1.01]))
    assert gpus[0] == pytest.approx(4 * (1 + 10.1))
    assert RULE._replace(tp=4).whole(gpus)[0] == 48


def test_where_a_replica_holds_nothing_no_number_is_enough() -> None:
    decode = Curve([(1.0, 1.0), (0.8, 1.3), (1.44, None)])
    assert decode(np.array([1.19, 1.21])).tolist() == [pytest.approx(0.815, abs=0.01), 0.0]
    curves = Curves(decode, _curves().prefill)
    seen = outlook([_error(0.5, 2.0)], curves, RULE, 1, 0.95)
    assert (seen.hi, seen.asked) == (None, None)
    (row,) = tornado([_error(0.9, 2.0)], curves, RULE)
    assert row["open"] is True
    assert row["gpus_hi"] == pytest.approx(1 + 10 / 0.1)


def test_the_tornado_moves_one_input_at_a_time_largest_first() -> None:
    errors = [_error(0.95, 1.05, "demand", "demand"), _error(1 / 1.3, 1.3)]
    rows = tornado(errors, _curves(), RULE)
    assert [row["input"] for row in rows] == ["acceptance", "demand"]
    assert rows[0]["gpus_hi"] == pytest.approx(1 + 10 * 1.3**1.5, rel=1e-3)
    assert (rows[1]["gpus_lo"], rows[1]["gpus_hi"]) == pytest.approx((1 + 9.5, 1 + 10.5))


def test_costs_by_hand() -> None:
    power = "{watts_per_gpu: {l40s: 500}, pue: 1.2, usd_per_kwh: 0.1}"
    plan = small(prices="{l40s: 2}", power=power).plan
    found = costs(plan, "l40s", 6, 100.0)
    assert found["usd_per_hour"] == 12
    assert found["usd_per_day"] == 288
    # 240,000 requests of 100 tokens are 24 million tokens a day.
    assert found["usd_per_million_tokens"] == pytest.approx(12)
    # 6 x 500 W x 1.2 = 3.6 kW, 86.4 kWh a day.
    assert found["power"] == {"kw": pytest.approx(3.6), "usd_per_day": pytest.approx(8.64)}
    assert costs(plan, "h100_sxm", 6, 100.0)["power"] is None


def test_a_price_of_nothing_is_no_price() -> None:
    found = costs(small(prices="{l40s: 0}").plan, "l40s", 6, 100.0)
    assert found["usd_per_day"] is None
    assert found["usd_per_million_tokens"] is None


def test_the_front_leaves_out_what_another_plan_beats() -> None:
    def row(usd: float | None, tpot_s: float, headroom: float) -> dict[str, Any]:
        worst = {"tpot_s_p95": tpot_s}
        return {"usd_per_hour": usd, "gpus": 4, "worst": worst, "headroom": headroom}

    rows = [row(10, 0.02, 0.1), row(12, 0.01, 0.1), row(12, 0.02, 0.1), row(12, 0.02, 0.5)]
    assert pareto(rows) == [True, True, False, True]
    assert pareto([row(None, 0.02, 0.1), row(1, 0.01, 0.2)]) == [False, True]


def test_bounds_of_classes_change_with_the_others() -> None:
    bounds = {"ttft_s": {"p95": 0.5}, "tpot_s": {"p95": 0.02}}
    slo = Slo.model_validate({**bounds, "classes": {"chat": bounds}})
    later = changed(slo, lambda metric, bound_s: bound_s + 0.1 * (metric == "ttft_s"))
    for part in (later, later.classes["chat"]):
        assert part.ttft_s == Bounds(p95=0.6)
        assert part.tpot_s == Bounds(p95=0.02)


class Lost:
    """Finds no load where the bounds are tighter, and the same one where they are not."""

    def __init__(self, scenario: Scenario) -> None:
        self.bound_s = scenario.slo.ttft_s.p95

    def __call__(self, guess: float, judge: Judge) -> Capacity:
        tight = judge.scenario.slo.ttft_s.p95 < self.bound_s
        value = None if tight else guess
        return Capacity(value, None, None, 0.9, (), None, 1)


def test_a_request_time_that_leaves_no_capacity_is_no_error_of_zero() -> None:
    file = small(text=PLAIN)
    search = _Search(file.plan, file.candidates[0], 1.0)
    search.at = Lost(file.candidates[0].scenario)  # type: ignore[method-assign, assignment]
    error = search.request_error(setup_of(file.candidates[0]), 1.0)
    assert error is not None
    assert (error.lo, error.hi) == (LEAST_SHARE, 1.0)
