"""From a plan file to the plan document: every strategy on every GPU, the choice, and its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from models.residuals import LEVEL
from sim.planning.answer import Answer, answer
from sim.planning.candidates import Candidate, PlanFile
from sim.planning.check import check
from sim.planning.costs import pareto, rank
from sim.planning.inputs import inputs
from sim.planning.jobs import each
from sim.planning.scenario import day
from sim.planning.schema import Kill, Plan
from sim.progress import OnProgress
from sim.scenario.dump import plain
from sim.scenario.schema import Scenario

Json = dict[str, Any]

MOST_MISSED = 3
"""Fleets that a day found too small, before the last is told with its misses."""

PARTS = 1000
"""What one strategy on one GPU counts in the progress."""


class Planned(NamedTuple):
    """What ``speccast plan`` found: the document, and the plan chosen as a scenario."""

    document: Json
    chosen: Scenario | None


def search(
    file: PlanFile,
    prune: bool = True,
    jobs: int = 1,
    on_done: Callable[[int], None] | None = None,
) -> list[Answer]:
    """Find the cheapest fleet of every strategy on every GPU.

    Parameters
    ----------
    file : PlanFile
    prune : bool
        False: no candidate is left out by its estimate, nor tried only as far as it would be
        cheaper.
    jobs : int
        Processes; the answers are the same however many.
    on_done : callable, optional
        Called with how many strategies and GPUs are done.
    """
    groups = list(grouped(file.candidates).values())
    return each(partial(_answer, file.plan, prune), groups, jobs, on_done)


def grouped(candidates: Sequence[Candidate]) -> dict[tuple[str, str], list[Candidate]]:
    """Candidates by strategy and GPU, in the order they come."""
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.group, candidate.gpu), []).append(candidate)
    return groups


def _answer(plan: Plan, prune: bool, candidates: list[Candidate]) -> Answer:
    return answer(plan, candidates, prune)


def planned(
    file: PlanFile, jobs: int = 1, quick: bool = False, on_progress: OnProgress | None = None
) -> Planned:
    """Search, choose and check; of plans that cost the same the one with most headroom is first.

    Parameters
    ----------
    file : PlanFile
    jobs : int
        Processes.
    quick : bool
        Leave the check over a whole day out.
    on_progress : callable, optional
        Called with (what is done, done, in all); it may raise KeyboardInterrupt.
    """
    total = len(grouped(file.candidates))
    tell = on_progress or (lambda label, done, of: None)
    answers = search(
        file, jobs=jobs, on_done=lambda done: tell("searching", PARTS * done, PARTS * total)
    )
    day_of = partial(tell, "a full day") if not quick else None
    found, checked, missed = _checked(file, answers, day_of)
    plans = [_plan(one) for one in found]
    for row, front in zip(plans, pareto(plans), strict=True):
        row["pareto"] = front
    chosen = _chosen(found)
    document = {
        **_asked(file),
        "counts": _counts(file, answers),
        "plans": plans,
        "impossible": _impossible(file, answers),
        "chosen": chosen,
        "check": checked,
        "missed": missed,
        "killed": isinstance(file.plan.failure, Kill),
        "tornado": [] if chosen is None else found[chosen].tornado,
        "inputs": inputs(file.plan, found),
        "search": [row for one in answers for row in one.search],
    }
    scenario = None if chosen is None else _scenario(file.plan, found[chosen])
    return Planned(document, scenario)


def _checked(
    file: PlanFile, answers: list[Answer], on_day: Callable[[int, int], None] | None
) -> tuple[list[Answer], Json | None, list[Json]]:
    """The plans, cheapest first, the check of the one chosen, and what a check found too small.

    A fleet that misses its day is replaced by the fewest replicas beyond it that hold the busiest
    hour, and the choice is made anew.
    """
    missed: list[Json] = []
    while True:
        found = _in_order([one for one in answers if one.plan is not None])
        chosen = _chosen(found)
        if chosen is None or on_day is None:
            return found, None, missed
        one = found[chosen]
        done = check(file.plan, _scenario(file.plan, one), on_day)
        if done["met"] or len(missed) >= MOST_MISSED:
            return found, done, missed
        row = _plan(one)
        missed.append({key: row[key] for key in ("strategy", "gpu", "replicas", "gpus")})
        assert one.candidate is not None
        again = answer(file.plan, [one.candidate], least=row["replicas"] + 1)
        answers[answers.index(one)] = _joined(one, again)


def _joined(one: Answer, again: Answer) -> Answer:
    """The larger fleet, with what both searches took."""
    counts = dict(one.counts)
    for key in ("simulations", "requests"):
        counts[key] += again.counts[key]
    return replace(again, counts=counts, search=[*one.search, *again.search])


def _in_order(found: list[Answer]) -> list[Answer]:
    """Cheapest first, of equal cost the one with most headroom."""
    costs = rank([_plan(one) for one in found])
    order = sorted(range(len(found)), key=lambda at: (costs[at], -_plan(found[at])["headroom"], at))
    return [found[at] for at in order]


def _chosen(found: Sequence[Answer]) -> int | None:
    """The cheapest that the engine can run."""
    return next((at for at, one in enumerate(found) if not _plan(one)["hypothetical"]), None)


def _plan(one: Answer) -> Json:
    assert one.plan is not None
    return one.plan


def _scenario(plan: Plan, one: Answer) -> Scenario:
    assert one.candidate is not None
    made = day(plan, one.candidate.scenario, _plan(one)["replicas"])
    price = plan.prices.get(one.candidate.gpu)
    changed = {"gpu": one.candidate.gpu, "price_per_gpu_hour": price}
    return made.model_copy(update={"hardware": made.hardware.model_copy(update=changed)})


def _asked(file: PlanFile) -> Json:
    """What was asked, as the document tells it."""
    plan, demand = file.plan, file.plan.demand
    return {
        "question": file.document.comment or None,
        "demand": {
            "requests_per_day": demand.requests_per_day,
            "peak_factor": demand.peak_factor,
            "peak_hour": demand.peak_hour,
            "mean_req_s": demand.mean_req_s,
            "peak_req_s": demand.peak_req_s,
            "uncertainty": demand.uncertainty,
        },
        "slo": plain(plan.slo),
        "model": plain(plan.model),
        "engine": plan.engine.name,
        "seed": plan.run.seed,
        "window_s": plan.run.window_s,
        "hour_s": plan.run.hour_s,
        "level": LEVEL,
        "confidence": plan.confidence,
    }


def _counts(file: PlanFile, answers: Sequence[Answer]) -> Json:
    def total(key: str) -> int:
        return sum(one.counts.get(key, 0) for one in answers)

    return {
        "candidates": file.asked,
        "estimated_out": total("left_out"),
        "searched": total("searched"),
        "simulations": total("simulations"),
        "requests": total("requests"),
    }


def _impossible(file: PlanFile, answers: Sequence[Answer]) -> list[Json]:
    """Candidates nobody can run, and strategies that hold the demand on no fleet of a GPU."""
    rows = [{**one._asdict(), "runs": False} for one in file.impossible]
    groups = grouped(file.candidates)
    for (strategy, gpu), one in zip(groups, answers, strict=True):
        if one.plan is None:
            told: Mapping[str, Any] = {"candidates": len(groups[strategy, gpu]), "runs": True}
            rows.append({"strategy": strategy, "gpu": gpu, "why": one.why, "key": "", **told})
    return rows


__all__ = ["Planned", "grouped", "planned", "search"]
