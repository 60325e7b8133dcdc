"""The largest rate one replica holds within its service levels, by closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sim.analysis.metrics import QUANTILES
from sim.analysis.slo import Flags, Objective, objectives
from sim.planning.steady import Replica, State
from sim.planning.traffic import Traffic
from sim.scenario.distributions import Floats
from sim.scenario.dump import plain
from sim.scenario.schema import Slo
from sim.setup import Setup

WINDOW_S = 300.0
ROUNDS = 18
LEAST = 1e-3
"""Sequences decoding on average on a replica that is as good as idle."""

SURE = 1.0
"""Standard deviations by which the worst window of a peak is worse than an average one."""

OPTIMISM = 1.3

FULL = ("max_num_seqs", "kv_blocks", "max_num_batched_tokens", "saturated")
"""What bounds a rate in the long run, whatever a busy window brings."""


class Estimate(NamedTuple):
    """What a replica holds.

    Attributes
    ----------
    rate_req_s : float
        Largest mean rate of requests it holds [1/s].
    limited_by : str
        What is nearest to its bound there: ``tpot_s p95``, ``attainment``, ``kv_blocks``, ...
    batch : float
        Sequences decoding on average.
    tpot_s, ttft_s : float
        Means there [s].
    """

    rate_req_s: float
    limited_by: str
    batch: float
    tpot_s: float
    ttft_s: float


class _Tightest(NamedTuple):
    """The bound nearest to being missed: its share of misses over what is allowed."""

    miss: float
    name: str


def estimate(
    setup: Setup,
    traffic: Traffic,
    slo: Slo,
    *,
    window_s: float = WINDOW_S,
    replicas: int = 1,
) -> Estimate | None:
    """Estimate what one replica holds.

    Parameters
    ----------
    setup : Setup
        Its own replicas, failures and router do not matter.
    traffic : Traffic
    slo : Slo
        Every bound counts, of every class; so does attainment where there are bounds.
    window_s : float
        Length of the windows that must hold them [s].
    replicas : int
        Replicas that share the traffic: the more there are, the less one window differs from
        another.

    Returns
    -------
    Estimate or None
        None where not even an idle replica holds the bounds, or nothing fits.
    """
    window_s *= replicas
    replica = Replica(setup, traffic)
    asked = objectives(plain(slo), traffic.classes)
    idle = replica.at(LEAST, among=False)
    if replica.most < 1 or _tightest(idle, traffic, asked, np.inf).miss > 1:
        return None
    low, high = np.log(LEAST), np.log(replica.most)
    top = replica.at(replica.most)
    missed = _missed(top, traffic, asked, window_s, replica.short_of)
    if missed.miss <= 1:
        low = high
    for _ in range(ROUNDS if low < high else 0):
        middle = (low + high) / 2
        found = _missed(replica.at(np.exp(middle)), traffic, asked, window_s, replica.short_of)
        if found.miss <= 1:
            low = middle
        else:
            high, missed = middle, found
    state = replica.at(float(np.exp(low)))
    name = missed.name if missed.miss > 1 else replica.short_of
    return _answer(state, traffic, name, asked, window_s)


def _answer(
    state: State, traffic: Traffic, name: str, asked: list[Objective], window_s: float
) -> Estimate:
    """An estimate out of the state at the edge."""
    tokens = traffic.output_tokens - 1
    some = tokens > 0
    stay = state.work_s + state.held.mean
    tpot = float((stay[some] / tokens[some]).mean()) if some.any() else 0.0
    ttft = float(np.mean(state.own_s + state.wait.mean)) + state.queued * state.queue_s
    rate = state.rate_req_s
    if asked and name not in FULL:
        rate = _on_average(rate, state, window_s)
    return Estimate(rate, name, state.n, tpot, ttft)


def _on_average(rate: float, state: State, window_s: float) -> float:
    """Mean rate whose busiest window has this one: counts and lengths of requests vary."""
    work = state.work_s + state.own_s
    spread = 1 + float(work.var()) / float(work.mean()) ** 2
    # Of lambda + z sqrt(lambda spread / window) = rate.
    half = SURE * math.sqrt(spread / window_s) / 2
    return (math.sqrt(half**2 + rate) - half) ** 2


def _missed(
    state: State, traffic: Traffic, asked: list[Objective], window_s: float, short_of: str
) -> _Tightest:
    if not state.fits:
        return _Tightest(np.inf, "max_num_batched_tokens")
    tightest = _tightest(state, traffic, asked, state.rate_req_s * window_s)
    if tightest.miss > 1 and state.queued > 0.05 and tightest.name != "tpot_s p95":
        return tightest._replace(name=short_of)
    return tightest


def _tightest(state: State, traffic: Traffic, asked: list[Objective], requests: float) -> _Tightest:
    """The bound nearest to being missed in the worst of windows of so many requests."""
    worst = _Tightest(0.0, "saturated")
    for objective in asked:
        mine = np.isin(traffic.stream, objective.streams)
        if not mine.any():
            continue
        own = requests * float(mine.mean())
        met: Floats = np.ones(int(mine.sum()))
        for metric, bounds in objective.bounds.items():
            late, counted = _late(state, traffic, metric, mine)
            for name, bound in bounds.items():
                share = float(late(bound)[counted].mean()) if counted.any() else 0.0
                miss = share / _allowed(1 - QUANTILES[name], own)
                worst = max(worst, _Tightest(miss, f"{metric} {name}"))
            met *= 1 - np.where(counted, late(max(bounds.values())), 0.0)
        miss = float(1 - met.mean()) / _allowed(max(1 - objective.target, 1e-6), own)
        worst = max(worst, _Tightest(miss, "attainment"))
    return worst


def _late(
    state: State, traffic: Traffic, metric: str, mine: Flags
) -> tuple[Callable[[float], Floats], Flags]:
    """P(late) of each request of an objective by bound, and which of them the metric counts."""
    counted = np.ones(int(mine.sum()), dtype=np.bool_)
    if metric == "ttft_s":
        return (lambda bound: state.late_first(bound)[mine]), counted
    if metric == "e2e_s":
        return (lambda bound: state.late_end(bound)[mine]), counted
    tokens = traffic.output_tokens
    return (lambda bound: state.late_tokens(bound, tokens)[mine]), (tokens > 1)[mine]


def _allowed(share: float, requests: float) -> float:
    """Misses on average with which the worst window stays below ``share`` (Wilson 1927)."""
    if not np.isfinite(requests):
        return share
    z2 = SURE**2 / max(requests, 1e-9)
    root = math.sqrt(z2 * share * (1 - share) + z2**2 / 4)
    return max((share + z2 / 2 - root) / (1 + z2), 1e-6)
