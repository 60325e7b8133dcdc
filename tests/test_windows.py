"""Sliding windows: the worst five minutes of a run, and how it went."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import requests

from models.strict_yaml import load_yaml
from sim import experiment
from sim.analysis import metrics
from sim.analysis.slo import Objective, objectives
from sim.analysis.summary import measure
from sim.analysis.windows import FEW, sliding
from sim.histogram import LogHistogram
from sim.scenario.load import parse_scenario
from sim.tables import Columns, Status

WITHIN_2S = objectives({"ttft_s": {"p95": 2.0}, "attainment": 0.9}, [None])


def slow_between(begin_s: float, end_s: float, n: int = 3600, ttft_s: float = 5.0) -> Columns:
    """One request a second; the first token takes 1 s, but ``ttft_s`` and rising in between."""
    arrival = np.arange(n, dtype=np.float64)
    slow = (arrival >= begin_s) & (arrival < end_s)
    first = arrival + np.where(slow, ttft_s + 1e-4 * (arrival - begin_s), 1.0)
    return requests(n, first_token_s=first, finish_s=first + 2.0)


def found(*runs: Columns, asked: Any = (), window_s: float = 300.0) -> dict[str, Any]:
    made = sliding(runs, window_s, asked, False)
    assert made is not None
    return made


# Where the worst is


@pytest.mark.parametrize("asked", [(), WITHIN_2S], ids=["no slo", "slo"])
def test_the_worst_window_is_where_requests_waited(asked: list[Objective]) -> None:
    worst = found(slow_between(1200, 1500), asked=asked)["worst"]
    assert worst["start_s"] == 1200.0
    assert worst["requests"] == 300
    assert worst["ttft_s_p95"] == worst["ttft_s"]["p95"] == pytest.approx(5.0, rel=0.01)
    assert worst["tpot_s_p95"] == worst["tpot_s"]["p95"] == pytest.approx(0.1)
    assert worst["by"] == ("attainment" if asked else "ttft_s_p95")
    assert worst["attainment"] == (0.0 if asked else None)


def test_the_lowest_attainment_is_worse_than_the_longest_wait() -> None:
    table = slow_between(600, 900, ttft_s=3.0)
    few = slow_between(2000, 2020, ttft_s=60.0)
    for name in ("first_token_s", "finish_s"):
        table[name] = np.maximum(table[name], few[name])
    assert found(table, asked=WITHIN_2S)["worst"]["start_s"] == 600.0
    assert 1700.0 < found(table)["worst"]["start_s"] <= 2000.0


def test_of_windows_equally_within_the_slo_the_longest_wait_is_the_worst() -> None:
    all_met = slow_between(1200, 1500, ttft_s=1.9)
    worst = found(all_met, asked=WITHIN_2S)["worst"]
    assert (worst["start_s"], worst["attainment"], worst["by"]) == (1200.0, 1.0, "attainment")


def test_a_window_of_requests_no_bound_concerns_is_not_the_worst() -> None:
    table = slow_between(600, 900, ttft_s=60.0)
    bound = (table["arrival_s"] < 480) | (table["arrival_s"] >= 1020)
    table["stream"] = bound.astype(np.int32)
    slo = {"attainment": 0.9, "classes": {"x": {"ttft_s": {"p95": 2.0}}}}
    asked = objectives(slo, [None, "x"])
    assert found(table, asked=asked)["worst"]["attainment"] == 1.0
    assert found(table)["worst"]["start_s"] == 600.0


def test_a_window_in_which_nothing_finishes_is_the_worst() -> None:
    table = slow_between(600, 900)
    table["status"][2400:2700] = Status.FAILED
    worst = found(table)["worst"]
    assert worst["start_s"] == 2400.0
    assert worst["ttft_s_p95"] is None
    assert worst["ttft_s"]["mean"] is None
    assert worst["served_req_per_s"] == pytest.approx(3 / 300)  # those of the seconds before


def test_a_window_of_few_requests_cannot_be_the_worst() -> None:
    slow = np.arange(1500.0, 1500.0 + FEW - 1)
    arrival = np.concatenate([np.arange(0, 900, 10.0), slow, np.arange(2100, 3000, 10.0)])
    wait = np.where(np.isin(arrival, slow), 50.0, 1.0)
    n = len(arrival)
    table = requests(n, arrival_s=arrival, first_token_s=arrival + wait, finish_s=arrival + 60)
    assert found(table)["worst"]["ttft_s_p95"] == 1.0
    sparse = requests(40, arrival_s=np.arange(40) * 60.0)
    assert found(sparse)["worst"] is None
    assert [entry["requests"] for entry in found(sparse)["series"]] == [5] * 36


@pytest.mark.parametrize(("span_s", "spans"), [(449.0, False), (450.0, True)])
def test_a_run_shorter_than_one_and_a_half_windows_has_none(span_s: float, spans: bool) -> None:
    table = requests(100, arrival_s=np.linspace(0, span_s, 100))
    assert (sliding([table], 300.0, (), False) is not None) == spans
    assert sliding([requests(0)], 300.0, (), False) is None


@pytest.mark.parametrize("bad", [0, 2])
def test_the_worst_over_all_replications_names_its_own(bad: int) -> None:
    runs = [slow_between(0, 0) for _ in range(3)]
    runs[bad] = slow_between(600, 900)
    made = found(*runs, asked=WITHIN_2S)
    assert made["worst"]["replication"] == bad
    assert {entry["replication"] for entry in made["series"]} == {0, 1, 2}
    assert any(
        entry["replication"] == bad and entry["start_s"] == 600.0 for entry in made["series"]
    )


def test_over_replications_too_the_lowest_attainment_comes_first() -> None:
    runs = [slow_between(600, 620, ttft_s=90.0), slow_between(600, 900, ttft_s=3.0)]
    assert found(*runs, asked=WITHIN_2S)["worst"]["replication"] == 1
    assert found(*runs)["worst"]["replication"] == 0


def test_saturated_runs_keep_their_windows_and_say_so() -> None:
    table = slow_between(600, 900)
    table["status"][:100] = Status.UNFINISHED
    row = measure([table], LogHistogram(), gpus=1, open_loop=True)
    assert row["saturated"]
    assert row["windows"]["saturated"]
    assert row["windows"]["worst"]["start_s"] == 600.0


# The series


def test_rates_of_a_window_are_those_of_its_stretch() -> None:
    series = found(slow_between(1200, 1500, n=3630))["series"]
    assert {entry["offered_req_per_s"] for entry in series[:-1]} == {1.0}
    # The run ends within the last window: neither rate sinks for that.
    assert series[-1]["offered_req_per_s"] == pytest.approx(1.0, rel=0.01)
    assert series[-1]["served_req_per_s"] == pytest.approx(1.0, rel=0.02)
    caught_up = next(entry for entry in series if entry["start_s"] == 1440.0)
    assert caught_up["served_req_per_s"] == pytest.approx(301 / 300, rel=0.02)


def test_windows_follow_the_grid_of_the_clock_from_the_first_arrival_on() -> None:
    late = requests(2000, arrival_s=7000.0 + np.arange(2000))
    series = found(late)["series"]
    assert series[0]["start_s"] == 6960.0
    assert series[1]["start_s"] - series[0]["start_s"] == 60.0
    assert series[-1]["start_s"] + 300.0 > 8999.0 >= series[-1]["start_s"] + 240.0


def test_a_long_run_is_thinned_but_keeps_the_worst_at_the_fine_hop() -> None:
    n = 200_000
    table = slow_between(100_020, 100_320, n=n)
    made = found(table, asked=WITHIN_2S)
    assert made["window_s"] == 300.0
    assert made["hop_s"] == 12 * 60.0
    assert len(made["series"]) <= 301
    assert made["worst"]["start_s"] == 100_020.0
    starts = [entry["start_s"] for entry in made["series"]]
    assert starts == sorted(starts)
    assert 100_020.0 in starts


def test_requests_that_never_arrived_are_in_no_window() -> None:
    table = slow_between(600, 900)
    table["arrival_s"][-100:] = np.nan
    table["status"][-100:] = Status.UNFINISHED
    assert found(table)["worst"]["start_s"] == 600.0


GAPS = st.lists(st.floats(0.01, 50), min_size=60, max_size=300)
SEEDS, SPANS = st.integers(0, 2**32), st.floats(1.6, 40)
"""Spans: how many windows a run lasts; up to 40 the series is not thinned."""


def drawn(arrival: np.ndarray, seed: int) -> Columns:
    """Requests of random latency and outcome, in any order."""
    rng = np.random.default_rng(seed)
    n = len(arrival)
    order = rng.permutation(n)
    first = arrival + rng.lognormal(0, 1, n)
    status = rng.choice(list(Status), n, p=[0.9, 0.04, 0.02, 0.02, 0.02]).astype(np.int8)
    columns = requests(n, first_token_s=first, finish_s=first + 1, status=status)
    columns["arrival_s"] = arrival
    return {name: column[order] for name, column in columns.items()}


@settings(max_examples=60, deadline=None)
@given(GAPS, SEEDS, SPANS)
def test_disjoint_windows_hold_every_request_once(
    gaps: list[float], seed: int, spans: float
) -> None:
    arrival = np.cumsum(gaps)
    window_s = float(np.ptp(arrival) / spans)
    series = found(drawn(arrival, seed), window_s=window_s)["series"]
    disjoint = series[::5]
    bins = (arrival - series[0]["start_s"]) // (window_s / 5)
    after = (bins >= 5 * len(disjoint)).sum()
    assert sum(entry["requests"] for entry in disjoint) + after == len(arrival)


@settings(max_examples=60, deadline=None)
@given(GAPS, SEEDS, SPANS, st.booleans())
def test_no_window_is_worse_than_the_worst(
    gaps: list[float], seed: int, spans: float, bounded: bool
) -> None:
    arrival = np.cumsum(gaps)
    window_s = float(np.ptp(arrival) / spans)
    table, asked = drawn(arrival, seed), WITHIN_2S if bounded else []
    made = found(table, asked=asked, window_s=window_s)
    start_s = made["series"][0]["start_s"]
    ttft, met = metrics.ttft_s(table), metrics.meets(table, {"ttft_s": 2.0})
    bins = (table["arrival_s"] - start_s) // (window_s / 5)
    bad = []
    for first in range(int(bins.max()) - 3):
        inside = (bins >= first) & (bins < first + 5)
        waits = ttft[inside & ~np.isnan(ttft)]
        if inside.sum() >= FEW:
            p95 = float(np.quantile(waits, 0.95)) if waits.size else np.inf
            bad.append((1 - met[inside].mean() if bounded else 0.0, p95))
    worst = made["worst"]
    if not bad:
        assert worst is None
        return
    misses = 1 - worst["attainment"] if bounded else 0.0
    p95 = np.inf if worst["ttft_s_p95"] is None else worst["ttft_s_p95"]
    assert (misses, p95) == pytest.approx(max(bad))
    assert {**worst, "by": 0, "ttft_s": 0, "tpot_s": 0} in [
        {**entry, "by": 0, "ttft_s": 0, "tpot_s": 0} for entry in made["series"]
    ]


# In a run

SCENARIO = """
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload: {arrivals: %s, requests: 300}
strategies: [{kind: autoregressive}]
run: {band: false, window_s: %s}
"""


@pytest.mark.parametrize(
    "arrivals", ["{kind: poisson, rate_per_s: 3}", "{kind: closed_loop, users: 8}"]
)
def test_open_and_closed_loops_have_windows_of_the_length_asked(arrivals: str) -> None:
    def windows(window_s: int) -> dict[str, Any] | None:
        file = parse_scenario(load_yaml(SCENARIO % (arrivals, window_s), "x"), [])
        (row,) = experiment.run(file).document["rows"]
        made: dict[str, Any] | None = row["windows"]
        return made

    made = windows(20)
    assert made is not None
    assert (made["window_s"], made["hop_s"], made["saturated"]) == (20.0, 4.0, False)
    assert sum(entry["requests"] for entry in made["series"][::5]) > 200
    assert made["worst"]["replication"] == 0
    assert windows(300) is None


def test_a_day_of_requests_takes_well_under_a_second() -> None:
    n = 600_000
    arrival = np.sort(np.random.default_rng(1).random(n)) * 86_400
    table = requests(n, arrival_s=arrival, first_token_s=arrival + 1, finish_s=arrival + 3)
    began = time.process_time()
    found(table, asked=WITHIN_2S)
    assert time.process_time() - began < 2.0
