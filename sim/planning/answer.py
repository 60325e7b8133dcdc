"""The answer for one strategy on one GPU: the cheapest fleet, its cost, headroom and error bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from models.residuals import LEVEL
from sim.planning.candidates import Candidate
from sim.planning.cheapest import Cheapest, cheapest, down_s
from sim.planning.costs import costs, per_million, price_per_gpu_hour
from sim.planning.errors import Error, demand_error
from sim.planning.fleets import fewest_replicas, spare_replicas
from sim.planning.launch import launch_line
from sim.planning.replica import Replica, measured
from sim.planning.schema import Plan
from sim.planning.traffic import mean_output_tokens
from sim.planning.uncertainty import Outlook, Rule, outlook, tornado

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What came of one strategy on one GPU.

    Attributes
    ----------
    plan : dict or None
        As in the document; None where nothing holds the demand.
    candidate : Candidate or None
        Of that plan.
    tornado, search : list of dict
        As in the document.
    why : str
        What keeps it from holding the demand.
    counts : dict
        ``left_out``, ``searched``, ``simulations``, ``requests``.
    entries : tuple of str
        Catalogue entries of the acceptance of its strategy.
    """

    plan: Json | None
    candidate: Candidate | None
    tornado: list[Json] = field(default_factory=list)
    search: list[Json] = field(default_factory=list)
    why: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    entries: tuple[str, ...] = ()


def answer(
    plan: Plan, candidates: Sequence[Candidate], prune: bool = True, least: int = 1
) -> Answer:
    """Search the candidates of one strategy on one GPU, and tell all about the cheapest.

    Parameters
    ----------
    plan : Plan
    candidates : sequence of Candidate
    prune : bool
        False: no candidate is left out by its estimate.
    least : int
        Fewer replicas are known not to hold the demand.
    """
    found = cheapest(plan, tuple(candidates), prune, least)
    counts = {
        "left_out": found.left_out,
        "searched": len(found.searched),
        "simulations": found.simulations,
        "requests": found.requests,
    }
    if found.best is None or found.best.replicas is None:
        return Answer(None, None, [], _search(plan, found, None), found.why, counts)
    made = _Made(plan, found)
    row = made.row()
    for run in made.runs:
        counts["simulations"] += run[0]
        counts["requests"] += run[1]
    return Answer(
        row,
        found.best.ranked.candidate,
        made.tornado(),
        _search(plan, found, row["replica_capacity_req_s"]["value"]),
        "",
        counts,
        _entries(found.best.ranked.candidate),
    )


class _Made:
    """One plan in the making."""

    def __init__(self, plan: Plan, found: Cheapest) -> None:
        best, fleets, stand_in = found.best, found.fleets, found.stand_in
        assert best and best.replicas and fleets and stand_in
        self.plan, self.fleets, self.replicas = plan, fleets, best.replicas
        self.candidate, self.setup = best.ranked.candidate, best.ranked.setup
        before = stand_in.simulations, stand_in.requests
        held = stand_in.largest_peak(self.replicas)
        peak = (stand_in.simulations - before[0], stand_in.requests - before[1])
        spare = spare_replicas(plan, down_s(plan, self.setup))
        least = fewest_replicas(plan)
        tp = self.candidate.scenario.model.tp
        self.rule = Rule(self.replicas, tp, spare, held, plan.demand.peak_req_s, least)
        self.each_req_s = held / max(self.replicas - spare, 1)
        self.to_peak = plan.demand.peak_req_s / fleets.rate
        guess = self.each_req_s / self.to_peak
        self.replica: Replica | None = measured(plan, self.candidate, self.setup, guess)
        alone = self.replica
        self.runs = [peak] if alone is None else [peak, (alone.simulations, alone.requests)]
        self.errors = self._errors()

    def _errors(self) -> list[Error]:
        asked = demand_error(self.plan.demand.uncertainty)
        found = [] if asked is None else [asked]
        replica = self.replica
        if replica is None:
            return found
        return [*found, *replica.errors]

    def outlook(self) -> Outlook | None:
        """GPUs needed, all errors drawn; None where one replica alone holds nothing."""
        if self.replica is None:
            return None
        asked = self.plan.confidence
        return outlook(self.errors, self.replica.curves, self.rule, self.plan.run.seed, asked)

    def tornado(self) -> list[Json]:
        """Each input alone; empty where one replica alone holds nothing."""
        if self.replica is None:
            return []
        return tornado(self.errors, self.replica.curves, self.rule)

    def row(self) -> Json:
        plan, candidate, rule = self.plan, self.candidate, self.rule
        judged, seen = self.fleets.worst(self.replicas), self.outlook()
        gpus = self.replicas * rule.tp
        output = mean_output_tokens(candidate.scenario.workload, plan.run.seed)
        kept = ("ttft_s_p95", "tpot_s_p95", "e2e_s_p95", "attainment")
        return {
            "strategy": candidate.strategy.name,
            "gpu": candidate.gpu,
            "hypothetical": self.setup.hypothetical,
            "settings": {k: v for k, v in candidate.settings.items() if k != "hardware.gpu"},
            "tp": rule.tp,
            "replicas": self.replicas,
            "gpus": gpus,
            "gpus_band": self._band(seen),
            "confidence": seen and seen.confidence,
            "gpus_for_confidence": seen and seen.asked,
            **costs(plan, candidate.gpu, gpus, output),
            "usd_per_million_band": self._cost_band(seen, output),
            "replica_capacity_req_s": self._capacity(seen),
            "fleet_peak_req_s": rule.held_req_s,
            "headroom": rule.held_req_s / rule.peak_req_s - 1,
            "worst": judged.worst and {key: judged.worst[key] for key in kept},
            "limited_by": judged.limited_by,
            "judged_s": self.fleets.stretch.length_s,
            "pareto": False,
            "launch": launch_line(candidate.scenario, candidate.strategy) or "",
        }

    def _band(self, seen: Outlook | None) -> Json | None:
        if seen is None or self.replica is None:
            return None
        scale = self.replica.scale
        return {"lo": seen.lo, "hi": seen.hi, "level": LEVEL, "basis": scale.basis}

    def _cost_band(self, seen: Outlook | None, output: float) -> Json | None:
        price = price_per_gpu_hour(self.plan, self.candidate.gpu)
        if seen is None or price is None:
            return None
        ends = (None if gpus is None else 24 * gpus * price for gpus in (seen.lo, seen.hi))
        lo, hi = (per_million(self.plan, end, output) for end in ends)
        return {"lo": lo, "hi": hi}

    def _capacity(self, seen: Outlook | None) -> Json:
        """What one replica holds at its busiest, and where its errors leave that [1/s].

        Of a strategy that switches its share of what the fleet holds: no replica of it is
        simulated alone.
        """
        replica = self.replica
        if seen is None or replica is None or replica.found.value is None:
            return {"value": self.each_req_s, "lo": None, "hi": None}
        switches = self.candidate.strategy.switches
        value = self.each_req_s if switches else replica.found.value * self.to_peak
        lo, hi = (value * share for share in seen.capacity)
        return {"value": value, "lo": lo, "hi": hi}


def _search(plan: Plan, found: Cheapest, capacity_req_s: float | None) -> list[Json]:
    """Every candidate whose fleets were simulated; GPUs only of those that were the cheapest."""
    return [
        {
            "strategy": one.ranked.candidate.strategy.name,
            "gpu": one.ranked.candidate.gpu,
            "settings": one.ranked.candidate.settings,
            "estimate_req_s": one.ranked.estimate.rate_req_s,
            "capacity_req_s": capacity_req_s if one is found.best else None,
            "gpus": one.gpus,
            "usd_per_day": None
            if one.gpus is None
            else costs(plan, one.ranked.candidate.gpu, one.gpus, 1.0)["usd_per_day"],
        }
        for one in found.searched
    ]


def _entries(candidate: Candidate) -> tuple[str, ...]:
    stated = (part.resolved_acceptance() for part in candidate.strategy.parts.values())
    return tuple(sorted({name for one in stated if one for name in one.entries}))
