"""The cheapest candidate of one strategy on one GPU: closed-form estimates, then fleets simulated.

A fleet that would not be cheaper than the best found is never simulated: candidates are tried in
the order of the fewest GPUs a slightly optimistic estimate leaves them, and each only with as many
replicas as would make it cheaper.

Of a strategy whose sequences switch, whose engine is slow to simulate, the strategy they start in
is searched in its place; the fewest replicas of the best are then looked for with the switches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sim.planning.bounds import changed
from sim.planning.candidates import Candidate
from sim.planning.estimate import OPTIMISM, Estimate, estimate
from sim.planning.fleets import (
    MOST_REPLICAS,
    Fleets,
    fewest_replicas,
    replicas_for,
    spare_replicas,
)
from sim.planning.schema import Kill, Plan
from sim.planning.traffic import Traffic
from sim.scenario.build import build
from sim.setup import Setup, prepare

EDGE = 1.1
"""What bounds are loosened by for a candidate that the estimate would rule out altogether.

Of idle replicas it puts the p95 of TPOT within 1.3 % of the simulated one and that of TTFT up to
7 % above it (Llama-3.1-70B on two and four H100; plain decoding, EAGLE-3 and n-grams).
"""


class Ranked(NamedTuple):
    """A candidate, what a closed form expects of a replica, and its fewest GPUs at best.

    Attributes
    ----------
    expected : int
        Replicas to begin with.
    at_best : int
        GPUs of a fleet that no fleet of it undercuts.
    """

    candidate: Candidate
    setup: Setup
    estimate: Estimate
    expected: int
    at_best: int


class Searched(NamedTuple):
    """A candidate whose fleets were simulated; ``replicas`` is None where none was cheaper."""

    ranked: Ranked
    replicas: int | None

    @property
    def gpus(self) -> int | None:
        """GPUs of its smallest fleet, where that was looked for."""
        if self.replicas is None:
            return None
        return self.replicas * self.ranked.candidate.scenario.model.tp


@dataclass(frozen=True)
class Cheapest:
    """What the search of one strategy on one GPU found.

    Attributes
    ----------
    best : Searched or None
        The cheapest; None where no candidate holds the demand.
    fleets, stand_in : Fleets or None
        Its fleets, those judged kept, and those searched in their place; the same where no
        sequences switch.
    searched : tuple of Searched
        In the order simulated.
    left_out : int
        Candidates never simulated.
    why : str
        What keeps all of them from holding the demand, where nothing does.
    simulations, requests : int
    """

    best: Searched | None
    fleets: Fleets | None
    stand_in: Fleets | None
    searched: tuple[Searched, ...]
    left_out: int
    why: str
    simulations: int
    requests: int


def cheapest(
    plan: Plan, candidates: tuple[Candidate, ...], prune: bool = True, least: int = 1
) -> Cheapest:
    """Find the candidate with the fewest GPUs; of equal ones the first by estimate.

    Parameters
    ----------
    plan : Plan
    candidates : tuple of Candidate
        Of one strategy on one GPU, so GPUs are cost.
    prune : bool
        False: simulate the smallest fleet of every candidate.
    least : int
        Fewer replicas are known not to hold the demand.
    """
    ranked, why = rank(plan, candidates)
    best: Searched | None = None
    kept: Fleets | None = None
    searched: list[Searched] = []
    simulations = requests = 0
    for one in ranked:
        most = MOST_REPLICAS
        if prune and best is not None and best.gpus is not None:
            if one.at_best >= best.gpus:
                continue
            most = (best.gpus - 1) // one.candidate.scenario.model.tp
        fleets = Fleets(plan, one.candidate.stand_in)
        most = min(most, _enough(one))
        found = Searched(one, fleets.fewest(one.expected, most, least))
        searched.append(found)
        simulations += fleets.simulations
        requests += fleets.requests
        if found.gpus is None:
            why = why or f"no fleet of up to {most} replicas holds the SLO"
        elif best is None or best.gpus is None or found.gpus < best.gpus:
            best, kept = found, fleets
    left_out = len(candidates) - len(searched)
    stand_in = kept
    if best is not None and best.replicas is not None and best.ranked.candidate.strategy.switches:
        kept = Fleets(plan, best.ranked.candidate)
        replicas = kept.fewest(best.replicas, _enough(best.ranked), least)
        simulations, requests = simulations + kept.simulations, requests + kept.requests
        searched[searched.index(best)] = best = best._replace(replicas=replicas)
        if replicas is None:
            best, why = None, "no fleet holds the SLO with its switches"
    return Cheapest(best, kept, stand_in, tuple(searched), left_out, why, simulations, requests)


def _enough(one: Ranked) -> int:
    """Replicas beyond which more of them cannot help: each is then as good as idle."""
    return min(MOST_REPLICAS, 4 * one.expected + 8)


def rank(plan: Plan, candidates: tuple[Candidate, ...]) -> tuple[list[Ranked], str]:
    """Candidates by the fewest GPUs they could do with, and why the others cannot at all."""
    traffic = Traffic.of(candidates[0].scenario.workload, plan.run.seed)
    ranked, why = [], ""
    for candidate in candidates:
        setup = setup_of(candidate)
        one = _ranked(plan, candidate, setup, traffic)
        if one is None:
            why = why or "not even an idle replica holds the SLO, by the closed-form estimate"
        else:
            ranked.append(one)
    ranked.sort(key=lambda one: (one.at_best, -_fleet_rate(one)))
    return ranked, why


def _fleet_rate(one: Ranked) -> float:
    """Rate that the estimate gives the GPUs it is ranked by [1/s]."""
    return one.at_best / one.candidate.scenario.model.tp * one.estimate.rate_req_s


def _ranked(plan: Plan, candidate: Candidate, setup: Setup, traffic: Traffic) -> Ranked | None:
    """Estimate a replica by itself, then as one of a fleet, which evens out what comes."""
    peak, tp = plan.demand.peak_req_s, candidate.scenario.model.tp
    spare = spare_replicas(plan, down_s(plan, setup))
    least = fewest_replicas(plan)
    of = setup if not candidate.strategy.switches else setup_of(candidate.stand_in)
    loose = changed(plan.slo, lambda metric, bound_s: EDGE * bound_s)
    found, expected = None, 1
    for _ in range(2):
        at = partial(estimate, window_s=plan.run.window_s, replicas=max(expected - spare, 1))
        found = at(of, traffic, plan.slo) or at(of, traffic, loose)
        if found is None:
            return None
        expected = max(replicas_for(peak, found.rate_req_s, spare), least)
    assert found is not None
    at_best = max(replicas_for(peak, found.rate_req_s * OPTIMISM, spare), least) * tp
    return Ranked(candidate, setup, found, expected, at_best)


def setup_of(candidate: Candidate) -> Setup:
    """A replica of a candidate, ready to run."""
    domains = candidate.scenario.workload.domain_names
    return prepare(build(candidate.scenario), candidate.strategy, domains)


def down_s(plan: Plan, setup: Setup) -> float:
    """Time until a replica that was killed serves again [s]; 0 where none is killed."""
    if not isinstance(plan.failure, Kill):
        return 0.0
    restart, budget = plan.failure.restart, setup.budget
    weights = setup.deployment.tp * (budget.weights_bytes + budget.draft_bytes)
    return restart.boot_s + weights / restart.load_bytes_per_s
