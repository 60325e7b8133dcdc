"""The largest rate one replica holds within its service levels, by closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sim.analysis.metrics import QUANTILES
from sim.analysis.slo import Flags, Objective, objectives
from sim.planning.state import State
from sim.planning.steady import Replica
from sim.planning.traffic import Traffic
from sim.scenario.distributions import Floats
from sim.scenario.dump import plain
from sim.scenario.service_level import Slo
from sim.setup import Setup

WINDOW_S = 300.0
ROUNDS = 13
LEAST = 1e-3
"""Sequences decoding on average on a replica that is as good as idle."""

SURE = 1.0
"""Standard deviations by which the worst window of a peak is worse than an average one.

Assumed; what follows from it was compared with simulations, see ``OPTIMISM``.
"""

OPTIMISM = 1.3
"""What a replica may hold over its estimate; pruning multiplies by it.

Measured on 96 configurations of Llama-3.1-8B and 70B (five GPUs, six strategies, three engines, two
mixes of lengths, five SLOs): estimate over simulated capacity has median 1.03 and lies between
0.92 and 1.22 for nine in ten. One lies below 1 / 1.3: a replica for which a bound is at its edge
even when it idles. Sixteen fleets of four lie between 0.87 and 1.19, two gates at 0.84
and 1.11.
"""

POOLED = 60
"""Requests below which the spread of a window is taken as that of so many: the judge leaves out
windows that hold few, and what they miss falls to the longer stretch."""

BUSY = 0.05
"""P(no place is free) above which it is places that are short, not speed."""

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
        Replicas that share the traffic: the more there are, the more evenly it comes.

    Returns
    -------
    Estimate or None
        None where not even an idle replica holds the bounds, or nothing fits.
    """
    replica = Replica(setup, traffic, replicas)
    asked = objectives(plain(slo), traffic.classes)
    for windows in (window_s * replicas, np.inf):
        edge = _Edge(replica, asked, windows)
        if edge.state is not None:
            return edge.answer(edge.state)
    return None


class _Tightest(NamedTuple):
    """The bound nearest to being missed: its share of misses over what is allowed."""

    miss: float
    name: str


class _Edge:
    """The largest batch at which a replica holds its bounds.

    Parameters
    ----------
    replica : Replica
    asked : list of Objective
    window_s : float
        Length of windows, times the replicas that fill them; infinite: chance plays no part.

    Attributes
    ----------
    state : State or None
        The state there; None where no batch holds them.
    limited_by : str
        What is missed above.
    """

    def __init__(self, replica: Replica, asked: list[Objective], window_s: float) -> None:
        self._replica, self._asked, self._window_s = replica, asked, window_s
        self.limited_by = replica.short_of
        self.state = self._found() if replica.most >= 1 else None

    def _found(self) -> State | None:
        replica = self._replica
        idle, top = replica.at(LEAST, among=False), replica.at(replica.most)
        if self._missed(idle).miss > 1:
            return None
        if self._missed(top).miss <= 1:
            return top
        low, high, held = math.log(LEAST), math.log(replica.most), idle
        for _ in range(ROUNDS):
            middle = (low + high) / 2
            state = replica.at(math.exp(middle))
            missed = self._missed(state)
            if missed.miss <= 1:
                low, held = middle, state
            else:
                high, self.limited_by = middle, missed.name
        return held

    def _missed(self, state: State) -> _Tightest:
        if not state.fits:
            return _Tightest(np.inf, "max_num_batched_tokens")
        worst = _Tightest(0.0, self._replica.short_of)
        for objective in self._asked:
            worst = max(worst, self._of(objective, state))
        waiting = worst.name != "attainment" and worst.name.startswith("t") and state.queued > BUSY
        return worst._replace(name=self._replica.short_of) if waiting else worst

    def _of(self, objective: Objective, state: State) -> _Tightest:
        """The bound of one objective nearest to being missed, in the worst window."""
        traffic, worst = self._replica.traffic, _Tightest(0.0, "")
        mine = np.isin(traffic.stream, objective.streams)
        if not mine.any():
            return worst
        requests = state.rate_req_s * self._window_s * float(mine.mean())
        met: Floats = np.ones(int(mine.sum()))
        for metric, bounds in objective.bounds.items():
            late, counted = _late(state, traffic, metric, mine)
            for name, bound in bounds.items():
                share = float(late(bound)[counted].mean()) if counted.any() else 0.0
                miss = share / _allowed(1 - QUANTILES[name], requests)
                worst = max(worst, _Tightest(miss, f"{metric} {name}"))
            met *= 1 - np.where(counted, late(max(bounds.values())), 0.0)
        miss = float(1 - met.mean()) / _allowed(max(1 - objective.target, 1e-6), requests)
        return max(worst, _Tightest(miss, "attainment"))

    def answer(self, state: State) -> Estimate:
        """What is told of the state at the edge."""
        tokens = self._replica.traffic.output_tokens - 1
        some = tokens > 0
        stay = state.work_s + state.held.mean
        tpot = float((stay[some] / tokens[some]).mean()) if some.any() else 0.0
        ttft = float(np.mean(state.own_s + state.wait.mean)) + state.queued * state.queue_s
        rate = state.rate_req_s
        if self._asked and self.limited_by not in FULL:
            rate = self._on_average(state)
        return Estimate(rate, self.limited_by, state.n, tpot, ttft)

    def _on_average(self, state: State) -> float:
        """Mean rate whose busiest window has the state's: counts and lengths vary [1/s]."""
        work = state.work_s + state.own_s
        spread = 1 + float(work.var()) / float(work.mean()) ** 2
        # Of lambda + z sqrt(lambda spread / window) = rate.
        half = SURE * math.sqrt(spread / self._window_s) / 2
        return (math.sqrt(half**2 + state.rate_req_s) - half) ** 2


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
    z2 = SURE**2 / max(requests, POOLED)
    root = math.sqrt(z2 * share * (1 - share) + z2**2 / 4)
    return (share + z2 / 2 - root) / (1 + z2)
