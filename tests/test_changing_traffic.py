"""Traffic whose rate changes has no steady state: what is measured, and when it is too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import requests

from models.strict_yaml import load_yaml
from sim import experiment
from sim.analysis import steady
from sim.analysis.summary import measure
from sim.histogram import LogHistogram
from sim.scenario.arrival_process import ArrivalProcess
from sim.scenario.arrivals import Poisson
from sim.scenario.load import parse_scenario
from sim.tables import Columns, Status

SLOTS = 20
SERVICE_S = 10.0
CAPACITY = SLOTS / SERVICE_S


def served(rates: Any, seed: int = 1, step_s: float = 60.0) -> Columns:
    """Poisson arrivals at ``rates`` [1/s], a minute each, at twenty slots of ten seconds a request.

    First come, first served; service varies by a third.
    """
    rng = np.random.default_rng(seed)
    counts = rng.poisson(np.asarray(rates) * step_s)
    starts = np.repeat(np.arange(len(counts)) * step_s, counts)
    arrival = np.sort(starts + rng.random(counts.sum()) * step_s)
    service = SERVICE_S * rng.gamma(9, 1 / 9, len(arrival))
    free = np.zeros(SLOTS)
    schedule = np.empty_like(arrival)
    for number, (came, needs) in enumerate(zip(arrival, service, strict=True)):
        slot = int(free.argmin())
        schedule[number] = max(came, free[slot])
        free[slot] = schedule[number] + needs
    first = schedule + 0.1 * service
    return requests(
        len(arrival),
        arrival_s=arrival,
        schedule_s=schedule,
        first_token_s=first,
        finish_s=schedule + service,
    )


def ramp(begin: float, end: float, minutes: int = 60) -> np.ndarray:
    return CAPACITY * np.linspace(begin, end, minutes)


def peak(highest: float, minutes: int = 60) -> np.ndarray:
    """Half the capacity, and a peak in the middle third."""
    rates = np.full(minutes, 0.5)
    rates[minutes // 3 : 2 * minutes // 3] = highest
    return CAPACITY * rates


@pytest.mark.parametrize(
    ("rates", "too_much"),
    [
        (np.full(60, 0.8 * CAPACITY), False),
        (np.full(60, 1.05 * CAPACITY), True),
        (ramp(0.1, 0.9), False),
        (ramp(0.1, 2.0), True),
        (ramp(0.5, 1.2), True),
        (ramp(1.5, 0.1), False),
        (peak(1.3), False),
        (peak(3.0, 59)[: 2 * 59 // 3], True),
    ],
    ids=[
        "below capacity",
        "5 % overload throughout",
        "a ramp that ends below capacity",
        "a ramp that ends far above",
        "a ramp that passes capacity late",
        "an overload that drains",
        "a peak that drains",
        "cut off at the peak",
    ],
)
def test_saturated_is_what_ends_with_a_backlog_it_could_not_carry(rates, too_much):
    assert [steady.overloaded(served(rates, seed)) for seed in range(8)] == [too_much] * 8


def test_a_run_that_ends_at_its_busiest_with_nobody_queueing_is_no_overload():
    # From 0 to 20 arrivals a second: a fifth of all are being served when the last one comes.
    arrival = 600.0 * np.sqrt(np.arange(6000) / 6000)
    table = requests(6000, arrival_s=arrival, schedule_s=arrival + 0.01, finish_s=arrival + 60)
    assert steady.saturated(table)
    assert not steady.overloaded(table)


def test_a_queue_of_a_few_long_requests_is_no_overload():
    table = requests(60, schedule_s=np.arange(60) + np.arange(60) / 6.0)
    table["finish_s"] = table["schedule_s"] + 5.0
    assert not steady.overloaded(table)


def test_requests_cut_off_by_the_clock_mean_overload():
    table = requests(400)
    table["status"][-4:] = Status.UNFINISHED
    assert not steady.overloaded(table)
    table["status"][-5:] = Status.UNFINISHED
    assert steady.overloaded(table)
    assert not steady.overloaded(requests(4, status=[Status.UNFINISHED] * 4))


def measured(table: Columns, **options: Any) -> dict[str, Any]:
    return measure([table], LogHistogram(), gpus=1, open_loop=True, **options)


def test_no_warmup_is_dropped_and_no_run_is_short():
    table = requests(100)
    table["finish_s"] += 30.0
    table["finish_s"][:20] += np.linspace(300, 0, 20)
    assert measured(table)["measured"] == 80
    assert measured(table)["short_run"]
    row = measured(table, stationary=False)
    assert row["measured"] == 100
    assert not row["short_run"]
    assert measured(table, stationary=False, warmup=0.25)["measured"] == 75


def test_rates_cover_first_to_last_arrival():
    table = served(peak(0.9))
    row = measured(table, stationary=False)
    span_s = np.ptp(table["arrival_s"])
    inside = (table["finish_s"] <= table["arrival_s"][-1]).sum()
    assert row["req_per_s"] == pytest.approx(inside / span_s)
    assert row["offered_req_per_s"] == pytest.approx(len(table["id"]) / span_s, rel=0.01)


def test_an_overload_that_never_drains_promises_no_latency_but_keeps_its_windows():
    row = measured(served(ramp(0.1, 2.0)), stationary=False)
    assert row["saturated"]
    assert set(row["e2e_s"].values()) == {None}
    before, *_, last = row["windows"]["series"]
    assert before["ttft_s_p95"] < 3 < last["ttft_s_p95"]
    assert row["windows"]["saturated"]


def test_a_run_asks_its_arrivals_whether_they_are_stationary(monkeypatch):
    assert ArrivalProcess.stationary
    text = """
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload: {arrivals: {kind: poisson, rate_per_s: 30}, requests: 60}
strategies: [{kind: autoregressive}]
run: {band: false}
"""
    file = parse_scenario(load_yaml(text, "x"), [])
    assert experiment.run(file).document["rows"][0]["short_run"]
    monkeypatch.setattr(Poisson, "stationary", False)
    assert not experiment.run(file).document["rows"][0]["short_run"]
