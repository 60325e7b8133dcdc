"""Traffic that changes with time: days, bursts, ramps and durations against their closed forms."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import integrate, optimize, stats

from models.schema import ModelError
from models.strict_yaml import InputError, load_yaml
from sim.explain import explain
from sim.scenario.arrival_process import ArrivalProcess
from sim.scenario.arrivals import Arrivals, ClosedLoop
from sim.scenario.load import parse_scenario
from sim.scenario.workload import Workload, generate

N = 200_000
DAY_S = 86_400.0


def process(kind: str, **keys: Any) -> ArrivalProcess:
    made: ArrivalProcess = TypeAdapter(Arrivals).validate_python({"kind": kind, **keys})
    return made


def drawn(kind: str, n: int = N, seed: int = 1, **keys: Any) -> np.ndarray:
    return process(kind, **keys).times(np.random.default_rng(seed), n)


def counts(seeds: int, until_s: float, kind: str, n: int, **keys: Any) -> np.ndarray:
    """Arrivals up to an instant, in each of many independent runs."""
    shape = process(kind, **keys)
    runs = [shape.times(np.random.default_rng(seed), n) for seed in range(seeds)]
    return np.array([np.searchsorted(times, until_s) for times in runs])


def workload(arrivals: dict[str, Any], **keys: Any) -> Workload:
    return Workload.model_validate({"arrivals": arrivals, **keys})


EVERY = [
    {"kind": "poisson", "rate_per_s": 3},
    {"kind": "constant", "rate_per_s": 3},
    {"kind": "gamma", "rate_per_s": 3, "cv": 2},
    {"kind": "diurnal", "mean_rate_per_s": 3, "peak_factor": 4, "period_s": 300, "cv": 2},
    {"kind": "on_off", "rate_per_s": 3, "on_s": 2, "off_s": 9, "off_share": 0.1},
    {"kind": "on_off", "rate_per_s": 3, "on_s": 50, "off_s": 9},
    {"kind": "ramp", "from_per_s": 0, "to_per_s": 7, "over_s": 400},
    {"kind": "ramp", "from_per_s": 9, "to_per_s": 2, "over_s": 400},
]


def name(arrivals: dict[str, Any]) -> str:
    return str(arrivals["kind"])


# All of them


@pytest.mark.parametrize("arrivals", EVERY, ids=name)
def test_arrivals_ascend_and_more_of_them_begin_with_the_same(arrivals: dict[str, Any]) -> None:
    long, short = drawn(**arrivals, n=20_000), drawn(**arrivals, n=300)
    assert (np.diff(long) >= 0).all()
    assert long[0] >= 0
    np.testing.assert_array_equal(long[:300], short)
    assert len(drawn(**arrivals, n=0)) == 0


@pytest.mark.parametrize("arrivals", EVERY, ids=name)
@pytest.mark.parametrize("until_s", [100.0, 700.0])
def test_as_many_come_as_expected(arrivals: dict[str, Any], until_s: float) -> None:
    expected = process(**arrivals).mean_count(until_s)
    came = counts(200, until_s, **arrivals, n=int(3 * expected) + 300)
    error = max(came.std(), 0.5) / 200**0.5
    assert came.mean() == pytest.approx(expected, abs=4 * error)


def test_only_a_day_and_a_ramp_change_with_time() -> None:
    changing = {kind for kind in map(name, EVERY) if not process_class(kind).stationary}
    assert changing == {"diurnal", "ramp"}
    assert ClosedLoop.stationary


def process_class(kind: str) -> type[ArrivalProcess]:
    return type(next(process(**arrivals) for arrivals in EVERY if arrivals["kind"] == kind))


# A day


def kappa(peak_factor: float) -> float:
    """Concentration of the day whose peak is this many times its mean, by integration."""

    def mean(k: float) -> float:
        return float(integrate.quad(lambda x: np.exp(k * (np.cos(x) - 1)), 0, np.pi)[0] / np.pi)

    return float(optimize.brentq(lambda k: 1 / mean(k) - peak_factor, 0, 50))


def share_until(hour: np.ndarray, peak_factor: float, peak_hour: float) -> np.ndarray:
    """Share of a day's arrivals up to an hour, by the cumulative von Mises distribution."""
    day = stats.vonmises(kappa(peak_factor))
    return day.cdf(2 * np.pi * (hour - peak_hour) / 24) - day.cdf(-2 * np.pi * peak_hour / 24)


@pytest.mark.parametrize("peak_factor", [1.0, 1.01, 2.0, 7.5, 20.0])
def test_the_peak_is_exactly_that_many_times_the_mean(peak_factor: float) -> None:
    day = process("diurnal", mean_rate_per_s=5, peak_factor=peak_factor, peak_hour=9.5)
    assert day.mean_count(DAY_S) == pytest.approx(5 * DAY_S, rel=1e-12)
    assert day.mean_count(3 * DAY_S) == pytest.approx(15 * DAY_S, rel=1e-12)
    at, width = 9.5 / 24 * DAY_S, 20.0
    rate = (day.mean_count(at + width) - day.mean_count(at - width)) / (2 * width)
    assert rate / 5 == pytest.approx(peak_factor, rel=1e-3)
    rates = np.diff([day.mean_count(hour * 3600) for hour in range(25)])
    assert rates.argmax() == 9 or peak_factor == 1
    assert (rates >= 0).all()


@pytest.mark.parametrize("peak_factor", [1.5, 4.0])
def test_hours_share_a_day_as_its_profile_says(peak_factor: float) -> None:
    times = drawn("diurnal", mean_rate_per_s=2, peak_factor=peak_factor, peak_hour=14)
    whole = times[times < DAY_S]
    seen = np.bincount((whole // 3600).astype(int), minlength=24)
    expected = np.diff(share_until(np.arange(25.0), peak_factor, 14)) * len(whole)
    assert stats.chisquare(seen, expected).pvalue > 0.001
    assert abs(len(whole) - 2 * DAY_S) < 4 * (2 * DAY_S) ** 0.5


@pytest.mark.parametrize("cv", [0.5, 1.0, 1.5])
def test_gaps_are_gamma_once_the_clock_runs_with_the_rate(cv: float) -> None:
    times = drawn("diurnal", mean_rate_per_s=2, peak_factor=3, cv=cv, n=60_000)
    expected = 2 * DAY_S * share_until(times / 3600, 3, 14)
    gaps = np.diff(expected[times < DAY_S], prepend=0.0)
    shape = cv**-2
    assert stats.kstest(gaps, stats.gamma(shape, scale=1 / shape).cdf).pvalue > 0.01


def test_a_run_can_start_at_any_hour() -> None:
    keys: dict[str, Any] = {"mean_rate_per_s": 5, "peak_factor": 3, "peak_hour": 14}
    midnight, evening = (process("diurnal", **keys, start_hour=hour) for hour in (0, 18))
    whole, until_18 = midnight.mean_count(DAY_S), midnight.mean_count(18 / 24 * DAY_S)
    assert evening.mean_count(6 / 24 * DAY_S) == pytest.approx(whole - until_18, rel=1e-6)


def test_a_short_day_is_a_long_one_played_faster() -> None:
    long = drawn("diurnal", mean_rate_per_s=1, peak_factor=3, n=5000)
    short = drawn("diurnal", mean_rate_per_s=24, peak_factor=3, period_s=3600, n=5000)
    np.testing.assert_allclose(short, long / 24)


# Bursts


def dispersion(rates: tuple[float, float], on_s: float, off_s: float, over_s: float) -> float:
    """Variance of the arrivals in a time over their mean, of a two-state modulated process."""
    leave = 1 / on_s + 1 / off_s
    on, off = on_s / (on_s + off_s), off_s / (on_s + off_s)
    mean = rates[0] * on + rates[1] * off
    spread = 2 * on * off * (rates[0] - rates[1]) ** 2
    memory = 1 / leave - (1 - np.exp(-leave * over_s)) / (leave**2 * over_s)
    return float(1 + spread * memory / mean)


@pytest.mark.parametrize("off_share", [0.0, 0.25])
@pytest.mark.parametrize("over_s", [1.0, 8.0, 60.0])
def test_bursts_have_the_index_of_dispersion(off_share: float, over_s: float) -> None:
    keys: dict[str, Any] = {"rate_per_s": 20, "on_s": 4, "off_s": 12, "off_share": off_share}
    times = drawn("on_off", **keys, n=3_000_000)
    seen = np.bincount((times[:-1] / over_s).astype(int))[:-1]
    burst = 20 * 16 / (4 + 12 * off_share)
    expected = dispersion((burst, off_share * burst), 4, 12, over_s)
    assert seen.var() / seen.mean() == pytest.approx(expected, rel=0.05)


def test_bursts_at_one_rate_are_poisson() -> None:
    gaps = np.diff(drawn("on_off", rate_per_s=4, on_s=1, off_s=1, off_share=1), prepend=0.0)
    assert stats.kstest(gaps, stats.expon(scale=1 / 4).cdf).pvalue > 0.01


def test_a_run_starts_in_a_burst_as_often_as_not() -> None:
    keys: dict[str, Any] = {"rate_per_s": 10, "on_s": 10, "off_s": 30}
    came = counts(3000, 0.5, "on_off", n=200, **keys)
    assert came.mean() == pytest.approx(5, abs=4 * came.std() / 3000**0.5)
    assert (came > 0).mean() == pytest.approx(0.25, abs=0.03)


# Ramps


@pytest.mark.parametrize(("start", "end"), [(0, 12), (12, 0), (3, 9), (9, 3)])
def test_a_ramp_counts_up_quadratically(start: float, end: float) -> None:
    keys: dict[str, Any] = {"from_per_s": start, "to_per_s": end, "over_s": 100}
    for until_s in (10.0, 50.0, 100.0):
        expected = start * until_s + (end - start) * until_s**2 / 200
        came = counts(400, until_s, "ramp", n=1500, **keys)
        assert came.mean() == pytest.approx(expected, abs=4 * (expected / 400) ** 0.5)
        assert came.var() == pytest.approx(expected, rel=0.35)


def test_gaps_on_a_ramp_are_exponential_once_the_clock_runs_with_the_rate() -> None:
    times = drawn("ramp", from_per_s=1, to_per_s=21, over_s=1000, n=30_000)
    on_ramp = times < 1000
    expected = np.where(on_ramp, times + times**2 / 100, 11_000 + 21 * (times - 1000))
    gaps = np.diff(expected, prepend=0.0)
    assert stats.kstest(gaps[on_ramp], stats.expon.cdf).pvalue > 0.01
    assert stats.kstest(gaps[~on_ramp], stats.expon.cdf).pvalue > 0.01


def test_a_ramp_to_nothing_ends() -> None:
    times = drawn("ramp", from_per_s=10, to_per_s=0, over_s=100, n=2000)
    came = int(np.isfinite(times).sum())
    assert abs(came - 500) < 4 * 500**0.5
    assert times[came - 1] <= 100
    assert np.isinf(times[came:]).all()


# Durations


def test_a_duration_sets_the_number_of_requests() -> None:
    day = {"kind": "diurnal", "mean_rate_per_s": 6.944, "peak_factor": 2}
    requests = generate(workload(day, duration_s=DAY_S), seed=1)
    assert abs(len(requests) - 600_000) < 4 * 600_000**0.5
    assert requests.arrival_s[-1] < DAY_S
    assert workload(day, duration_s=DAY_S).expected_requests == round(6.944 * DAY_S)


@pytest.mark.parametrize("arrivals", EVERY, ids=name)
def test_a_longer_duration_extends_the_same_requests(arrivals: dict[str, Any]) -> None:
    short, long = (generate(workload(arrivals, duration_s=s), seed=3) for s in (50.0, 400.0))
    assert 0 < len(short) < len(long)
    assert (short.arrival_s < 50).all()
    assert len(short) == (long.arrival_s < 50).sum()
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "stream"):
        np.testing.assert_array_equal(getattr(short, column), getattr(long, column)[: len(short)])


def test_without_either_a_thousand_are_sent() -> None:
    assert len(generate(workload(EVERY[0]), seed=1)) == 1000


# Pauses


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
def test_users_think_for_the_mean_and_spread_asked(cv: float) -> None:
    loop = {"kind": "closed_loop", "users": 4, "think_s": 6, "think_cv": cv}
    think_s = generate(workload(loop, requests=100_000), seed=1).think_s
    assert think_s.mean() == pytest.approx(6, abs=1e-9 + 4 * 6 * cv / 100_000**0.5)
    assert think_s.std() / think_s.mean() == pytest.approx(cv, rel=0.03)


# Explain


def batch(arrivals: dict[str, Any], **keys: Any) -> int:
    text = json.dumps(
        {
            "hardware": {"gpu": "h100_sxm"},
            "model": {"transformer": "llama-3.1-8b"},
            "workload": {"arrivals": arrivals, **keys},
            "strategies": [{"kind": "eagle3"}],
        }
    )
    return int(explain(parse_scenario(load_yaml(text, "scenario.yaml")))["batch_asked"])


def test_explain_looks_at_the_busiest_stretch() -> None:
    peak = batch({"kind": "poisson", "rate_per_s": 12})
    day = {"kind": "diurnal", "mean_rate_per_s": 4, "peak_factor": 3}
    assert batch(day) == batch({"kind": "ramp", "from_per_s": 12, "to_per_s": 2, "over_s": 9})
    assert batch(day, duration_s=DAY_S) == peak > batch({"kind": "poisson", "rate_per_s": 4})


def test_explain_counts_every_turn_of_the_sessions() -> None:
    arrivals = {"kind": "poisson", "rate_per_s": 3}
    chat = {"session": {"turns": {"kind": "fixed", "value": 4}}}
    assert batch(arrivals, streams=[chat]) > 3.5 * batch(arrivals)


def test_users_who_think_are_not_all_in_the_batch() -> None:
    idle, busy = ({"kind": "closed_loop", "users": 50, "think_s": s} for s in (8, 0))
    assert batch(busy) == 50
    # Answers take about two seconds.
    assert 7 <= batch(idle) <= 12


# Refusals


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ({"kind": "diurnal", "mean_rate_per_s": 1, "peak_factor": 0.9}, "greater than or equal"),
        ({"kind": "diurnal", "mean_rate_per_s": 1, "peak_factor": 2, "peak_hour": 99}, "less than"),
        ({"kind": "ramp", "from_per_s": 0, "to_per_s": 0, "over_s": 9}, "nothing arrives, got 0"),
        ({"kind": "on_off", "rate_per_s": 1, "on_s": 0.1, "off_s": 0.5}, "fewer than one"),
        ({"kind": "on_off", "rate_per_s": 9, "on_s": 5, "off_s": 1, "off_share": 2}, "less than"),
        ({"kind": "closed_loop", "users": 1, "think_cv": 0.001}, "must be 0 or at least 0.01"),
    ],
)
def test_shapes_nobody_can_mean_are_refused(arrivals: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        workload(arrivals)


FADING = {"kind": "ramp", "from_per_s": 10, "to_per_s": 0, "over_s": 100}


@pytest.mark.parametrize(
    ("arrivals", "keys", "message"),
    [
        (FADING, {}, "requests: only about 500 arrivals come before the rate is 0, got 1000"),
        (FADING, {"requests": 480}, "requests: only about 500 arrivals"),
        ({"kind": "poisson", "rate_per_s": 1e-9}, {}, "come in 30 years"),
        ({"kind": "closed_loop", "users": 2}, {"duration_s": 60}, "duration_s: is for arrivals at"),
        (
            EVERY[0],
            {"duration_s": 60, "requests": 9},
            "takes the place of requests (9)",
        ),
        (EVERY[0], {"duration_s": 0.1}, "duration_s: sees about 0.3 arrivals"),
        (EVERY[0], {"duration_s": 1e8}, "duration_s: sees about 3e+08 arrivals"),
    ],
)
def test_traffic_that_cannot_be_is_refused(
    arrivals: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        batch(arrivals, **keys)
    assert message in str(caught.value)


def test_a_duration_too_short_for_this_seed_says_so() -> None:
    with pytest.raises(ModelError, match="ends before the first arrival") as caught:
        for seed in range(50):
            generate(workload(EVERY[0], duration_s=0.4), seed)
    assert caught.value.key == "workload.duration_s"
    nearly = workload(FADING, requests=495)
    with pytest.raises(ModelError, match="arrivals come before the rate is 0"):
        for seed in range(50):
            generate(nearly, seed)
