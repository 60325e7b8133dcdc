"""Cases whose acceptance comes from one of their own figures: tau is solved from it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from calibration.validation.case import Case
from calibration.validation.matches import ngram_at
from calibration.validation.predict import metric_of, simulate
from models.schema import ModelError
from models.strict_yaml import load_yaml
from sim.scenario.dump import to_yaml
from sim.scenario.load import parse_scenario

TAU_TOLERANCE = 1e-3
SPEEDUP_TOLERANCE = 1e-3
"""A tenth of what speedups can be read off pictures to."""
LEAST_TAU = 1.02
SHORT_OF_MOST = 0.02
MOST_SECANTS = 6
FEW_REQUESTS = 50
SHORT_ROUNDS = 2
REACH = 0.05
"""How far from the measured speedup the nearest may be where no tau gives it."""


def with_tau(case: Case, tau: float) -> Case:
    """The same case, its measured strategy accepting so that it emits ``tau`` tokens a step.

    Where its matches are stated (n-gram lookup), their odds and those of the tokens copied are all
    multiplied alike: a step without a match stays one of a single token.
    """
    data = copy.deepcopy(dict(case.scenario))
    strategy = data["strategies"][-1]
    stated = strategy.get("acceptance", {})
    if "match_rate" in stated:
        strategy["acceptance"] = ngram_at(stated, int(strategy["k"]), tau)
    else:
        strategy["acceptance"] = {**stated, "tau": round(tau, 4)}
    return replace(case, scenario=data)


def solve_tau(anchor: Case, most: float) -> float:
    """Tau at which the simulated speedup of a case, of its latency or rate, is the measured one.

    Parameters
    ----------
    anchor : Case
        With ``speedup`` or ``e2e_speedup`` among its figures.
    most : float
        The most tokens a step its strategy can emit.

    Notes
    -----
    Secant steps, the first from a few of the requests: the speedup is nearly proportional to tau.

    Raises
    ------
    ModelError
        If it saturates, or if no tau comes near that speedup.
    """
    metric = next(name for name in anchor.measured if name.endswith("speedup"))
    target, (low, high) = anchor.measured[metric], (LEAST_TAU, most - SHORT_OF_MOST)

    def speedup(case: Case, tau: float) -> float:
        found = metric_of(simulate(with_tau(case, tau)), metric)
        if not found:
            raise ModelError(f"saturates, so no acceptance follows from its {metric}", anchor.name)
        return found

    def inside(tau: float) -> float:
        return min(max(tau, low), high)

    few, before = _shortened(anchor), inside(target)
    for _ in range(SHORT_ROUNDS):
        before = inside(before * target / speedup(few, before))
    was = speedup(anchor, before)
    if abs(was - target) <= SPEEDUP_TOLERANCE:
        return before
    tau = inside(before * target / was)
    for _ in range(MOST_SECANTS):
        if abs(tau - before) <= TAU_TOLERANCE:
            break
        got = speedup(anchor, tau)
        if abs(got - target) <= SPEEDUP_TOLERANCE or got == was:
            break
        step = (target - got) * (tau - before) / (got - was)
        before, was, tau = tau, got, inside(tau + step)
    if tau in (low, high):
        _refuse_unreachable(anchor.name, metric, target, speedup(anchor, tau))
    return tau


def _refuse_unreachable(name: str, metric: str, target: float, nearest: float) -> None:
    if abs(nearest / target - 1) > REACH:
        most = f"no acceptance gives a {metric} of {target:g}, the nearest is {nearest:.3g}"
        raise ModelError(most, name)


def _shortened(case: Case) -> Case:
    """The case with a few of its requests, where they are counted."""
    data = copy.deepcopy(dict(case.scenario))
    workload = data["workload"]
    for place, key in ((workload, "requests"), (workload["arrivals"], "users")):
        if key in place:
            place[key] = min(place[key], FEW_REQUESTS)
    return replace(case, scenario=data)


def depth_of(case: Case) -> int:
    """Most tokens a step the measured strategy emits: one more than it drafts in depth."""
    document = load_yaml(to_yaml({**case.scenario, "vary": {}}), case.name)
    return parse_scenario(document).points[0].scenario.strategies[-1].depth + 1


def solved(cases: Sequence[Case]) -> list[Case]:
    """Cases of one anchor, tau fixed by it; the anchor itself is then not scored."""
    anchor = next(case for case in cases if case.name == case.anchor)
    tau = solve_tau(anchor, depth_of(anchor))
    return [with_tau(case, tau) for case in cases]
