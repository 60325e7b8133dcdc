"""Capacities searched on engines that are textbook queues, against queueing theory.

A request is one token of output and one step, as long as its prompt: a service time of the test's
choosing. A single window as long as the run makes its p95 that of the steady state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from server import RULES, Cost

from models.queueing import erlang_c
from models.strict_yaml import load_yaml
from sim.planning import busy_hour
from sim.planning.busy_hour import Stretch
from sim.planning.capacity import Capacity, capacity
from sim.planning.hour import Judge
from sim.scenario.load import parse_scenario
from sim.scenario.workload import Requests, Workload, generate

TICK_S = 1e-3
TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 0.5}
  streams:
    - prompt_tokens: {kind: fixed, value: 1000}
      output_tokens: {kind: fixed, value: %d}
strategies: [{kind: autoregressive}]
slo: {e2e_s: {p95: %g}, attainment: 0.95}
"""
MEAN_S = 1.0


def searched(
    bound_s: float,
    length_s: float,
    cost: Cost,
    guess: float,
    tokens: int = 1,
    replications: int = 5,
    **rules: Any,
) -> Capacity:
    scenario = parse_scenario(load_yaml(TEXT % (tokens, bound_s), "x.yaml")).points[0].scenario
    (strategy,) = scenario.strategies
    judge = Judge(scenario, strategy, Stretch(20.0, length_s, length_s))
    judge.setup = replace(judge.setup, step_time=cost, rules=replace(RULES, **rules))
    return capacity(scenario, strategy, judge=judge, replications=replications, guess=guess)


def within(found: Capacity, expected: float, precision: float) -> None:
    """Within 3 standard errors, and that is a test: the standard error is small enough."""
    roots = np.array(found.per_replication)
    error = float(roots.std(ddof=1) / math.sqrt(len(roots)))
    assert 3 * error < precision * expected, (error, found)
    # The largest load that passed is half the search's tolerance below the root.
    assert abs(1.01 * roots.mean() - expected) < 3 * error, (expected, found)


def exponential(workload: Workload, seed: int, replication: int = 0) -> Requests:
    requests = generate(workload, seed, replication)
    services = np.random.default_rng([seed, replication]).exponential(MEAN_S, len(requests))
    ticks = np.maximum(np.rint(services / TICK_S), 1).astype(np.int64)
    return replace(requests, prompt_tokens=ticks)


def test_one_slot_is_mm1(monkeypatch: pytest.MonkeyPatch) -> None:
    """P(T > t) = exp(-(mu - lambda) t), so p95 <= B up to lambda = mu - ln(20) / B."""
    monkeypatch.setattr(busy_hour, "generate", exponential)
    found = searched(8.0, 1600.0, Cost(0.0, TICK_S), 0.7)
    within(found, 1 / MEAN_S - math.log(20) / 8.0, precision=0.2)
    assert found.limited_by == "e2e_s p95"


def md1_waits_longer(rate: float, service_s: float, wait_s: float) -> float:
    """P(W > w) of M/D/1 (Erlang's series), w short enough for its terms not to cancel."""
    rho, ends = rate * service_s, int(wait_s / service_s)
    terms = (
        (-rate * (wait_s - k * service_s)) ** k
        / math.factorial(k)
        * math.exp(rate * (wait_s - k * service_s))
        for k in range(ends + 1)
    )
    return 1 - (1 - rho) * sum(terms)


def largest_rate(tail: Callable[[float], float], most: float) -> float:
    """The rate at which one request in twenty waits too long."""
    return float(optimize.brentq(lambda rate: tail(rate) - 0.05, 1e-3 * most, 0.999 * most))


def test_one_slot_of_fixed_steps_is_md1() -> None:
    found = searched(5.0, 1200.0, Cost(0.0, TICK_S), 0.6)
    expected = largest_rate(lambda rate: md1_waits_longer(rate, MEAN_S, 5.0 - MEAN_S), 1.0)
    within(found, expected, precision=0.2)


def test_several_slots_of_fixed_steps_lie_between_the_bounds() -> None:
    """M/D/4, 25 tokens of 40 ms each: waits are shorter than in M/M/4, times longer than pooled.

    A request joins at the end of a step, so its service is a second and up to a step more: the
    lower bound allows for a whole one.
    """
    slots, tokens, step_s, bound_s = 4, 25, 0.04, 2.4
    service_s, longest_s = tokens * step_s, (tokens + 1) * step_s
    found = searched(bound_s, 200.0, Cost(step_s), 3.0, tokens, max_num_seqs=slots)

    def mmc(rate: float) -> float:
        wait_s = bound_s - longest_s
        waits = erlang_c(rate, longest_s, slots)
        return waits * math.exp(-(slots / longest_s - rate) * wait_s)

    def pooled(rate: float) -> float:
        return md1_waits_longer(rate, service_s / slots, bound_s - service_s / slots)

    lower = largest_rate(mmc, slots / longest_s)
    upper = largest_rate(pooled, slots / service_s)
    assert found.value is not None
    assert lower < found.value < upper, (lower, found, upper)
    assert upper < 1.5 * lower
    within(found, _lindley(slots, longest_s - step_s / 2, bound_s), precision=0.2)


def _lindley(slots: int, service_s: float, bound_s: float) -> float:
    """M/D/c is E_c/D/1 for each server in turn: its largest rate by Lindley's recursion."""
    random = np.random.default_rng(3)
    gaps = random.gamma(slots, 1.0, 200_000)

    def tail(rate: float) -> float:
        walk = np.concatenate(([0.0], np.cumsum(service_s - gaps / rate)))
        wait = walk - np.minimum.accumulate(walk)
        return float((wait + service_s > bound_s).mean())

    return largest_rate(tail, slots / service_s)
