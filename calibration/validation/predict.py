"""From a measured case to what the simulator says about it."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from multiprocessing import active_children, get_context
from typing import Any, NamedTuple

from calibration.validation import shares, verify_attention
from calibration.validation.case import Case
from calibration.validation.matches import ngram_at
from models.residuals import Residuals
from models.strict_yaml import load_yaml
from sim import experiment
from sim.progress import OnProgress
from sim.scenario.dump import to_yaml
from sim.scenario.load import parse_scenario

Row = Mapping[str, Any]
TAU_TOLERANCE = 1e-3
SPEEDUP_TOLERANCE = 1e-3
"""A tenth of what speedups can be read off pictures to."""
LEAST_TAU = 1.02
SHORT_OF_MOST = 0.02
MOST_SECANTS = 6
FEW_REQUESTS = 50
SHORT_ROUNDS = 2


class Outcome(NamedTuple):
    """One figure of a case: measured, predicted, and the band of the prediction.

    ``lo``, ``hi`` and ``basis`` are None where no band was simulated; ``tau`` is that of the
    simulated run.
    """

    case: Case
    metric: str
    measured: float
    predicted: float | None
    lo: float | None = None
    hi: float | None = None
    basis: str | None = None
    tau: float | None = None

    @property
    def relative(self) -> float | None:
        """Relative error of the prediction; None where it is saturated."""
        return None if self.predicted is None else self.predicted / self.measured - 1


def metric_of(row: Row, metric: str) -> float | None:
    """Value of a metric in a row of results; None where the run is saturated.

    Parameters
    ----------
    row : mapping
    metric : str
        ``ttft_s.mean`` and alike (any latency and statistic of a row), ``speedup``,
        ``e2e_speedup`` (mean latency of plain decoding over that of the strategy at equal rate),
        ``step_ratio`` (tau over speedup: a step of the strategy over one of plain decoding),
        ``tok_per_s`` (output tokens of the whole run over its time), ``duration_s``,
        or ``share.draft``, ``share.verify``, ``share.sampling``, ``share.host``: of the time of
        all steps.

    Raises
    ------
    KeyError
        If there is no such metric.
    """
    name, _, detail = metric.partition(".")
    if name == "share":
        return float(row["shares"][detail])
    if name == "tok_per_s":
        return float(row["tok_per_s_per_gpu"]) * int(row["gpus"])
    if name == "step_ratio":
        return None if row["speedup"] is None else float(row["tau"] / row["speedup"])
    if name == "e2e_speedup":
        return _e2e_speedup(row)
    if name == "duration_s":
        return float(row["finished"]) / float(row["req_per_s"])
    value = row[name][detail] if detail else row[name]
    return None if value is None else float(value)


def _e2e_speedup(row: Row) -> float | None:
    """None where either has no steady latency."""
    latencies = [one["e2e_s"]["mean"] for one in (row["plain"], row)]
    return None if None in latencies else float(latencies[0] / latencies[1])


def simulate(case: Case, band: bool = False, residuals: Residuals | None = None) -> Row:
    """Run the scenario of a case; the row of the strategy that was measured.

    It has ``gpus`` besides, ``plain``, the row of the first strategy, and ``shares`` of the time of
    all steps, if any is asked for.
    """
    data = copy.deepcopy(dict(case.scenario))
    data["run"] = {"warmup": 0, **data.get("run", {}), "band": band}
    in_parts = any(metric.startswith("share.") for metric in case.measured)
    return _simulated(to_yaml(data), case.name, in_parts, residuals)


@lru_cache(maxsize=4)
def _simulated(text: str, name: str, in_parts: bool, residuals: Residuals | None) -> Row:
    """The last run of an anchor is its first as a case, so a few are kept."""
    scenario = parse_scenario(load_yaml(text, name))
    ran = experiment.run(scenario, keep_steps=in_parts, residuals=residuals)
    rows, gpus = ran.document["rows"], ran.document["scenario"]["hardware"]["gpus"]
    row = {**rows[-1], "gpus": gpus, "plain": rows[0]}
    if in_parts:
        row["shares"] = shares.of_run(ran.steps[-1].columns, scenario.points[0].scenario)
    return row


def predict(case: Case, band: bool = False, residuals: Residuals | None = None) -> list[Outcome]:
    """Every figure of a case beside its prediction.

    Parameters
    ----------
    case : Case
    band : bool
        Also simulate both ends of the band.
    residuals : Residuals, optional
        What the band carries in place of the catalogue's residuals.
    """
    if case.suite == "kernels":
        return [Outcome(case, "time_s", case.measured["time_s"], verify_attention.of_case(case))]
    row = simulate(case, band, residuals)
    found = []
    for metric, measured in case.measured.items():
        predicted = metric_of(row, metric)
        ends = _band(row, metric)
        found.append(Outcome(case, metric, measured, predicted, *ends, tau=row["tau"]))
    return found


def _band(row: Row, metric: str) -> tuple[float | None, float | None, str | None]:
    """Bands are those of means, of the speedup and of the rate."""
    scale = 1.0
    name = metric.removesuffix(".mean")
    if name == "tok_per_s":
        name, scale = "tok_per_s_per_gpu", float(row["gpus"])
    band = row["band"].get(name)
    if band is None:
        return None, None, None
    lo, hi = (None if band[end] is None else band[end] * scale for end in ("lo", "hi"))
    return lo, hi, band["basis"]


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
    Where no tau gives it, the nearest.
    """
    metric = next(name for name in anchor.measured if name.endswith("speedup"))
    target, (low, high) = anchor.measured[metric], (LEAST_TAU, most - SHORT_OF_MOST)

    def speedup(case: Case, tau: float) -> float:
        return metric_of(simulate(with_tau(case, tau)), metric) or 0.0

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
    return tau


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


Group = Callable[[Sequence[Case], bool], list[Outcome]]


def _predict_group(cases: Sequence[Case], band: bool) -> list[Outcome]:
    ready = solved(cases) if cases[0].anchor else cases
    return [outcome for case in ready for outcome in predict(case, band)]


def predict_all(
    cases: Iterable[Case],
    band: bool = False,
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
    group: Group = _predict_group,
) -> list[Outcome]:
    """Predict many cases, side by side; the outcomes come in the order of the cases.

    Parameters
    ----------
    cases : iterable of Case
    band : bool
        Also simulate both ends of the band.
    jobs : int, optional
        Processes; default one a core.
    on_progress : callable, optional
        Called with (what, cases done, cases in all).
    group : callable
        What predicts cases of one anchor.
    """
    cases = list(cases)
    done: list[Outcome] = []
    for outcomes in predicted(cases, band, jobs, group):
        done += outcomes
        if on_progress:
            names = {outcome.case.name for outcome in done}
            on_progress(outcomes[0].case.name, len(names), len(cases))
    return in_order(cases, done)


def in_order(cases: Iterable[Case], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes in the order of their cases, whichever was predicted first."""
    place = {case.name: index for index, case in enumerate(cases)}
    return sorted(outcomes, key=lambda outcome: place[outcome.case.name])


def predicted(
    cases: Iterable[Case],
    band: bool = False,
    jobs: int | None = None,
    group: Group = _predict_group,
) -> Generator[list[Outcome], None, None]:
    """Outcomes of the cases of one anchor after another, as they are complete.

    Parameters
    ----------
    cases, band, jobs, group
        As in ``predict_all``. Where the caller stops, what is on the way is given up.
    """
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.anchor or case.name, []).append(case)
    jobs = min(jobs or os.cpu_count() or 1, len(groups))
    if jobs <= 1:
        for members in groups.values():
            yield group(members, band)
        return
    before = set(active_children())
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _deaf_to_ctrl_c)
    try:
        waiting = [pool.submit(group, members, band) for members in groups.values()]
        for future in as_completed(waiting):
            yield future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown()


def _deaf_to_ctrl_c() -> None:
    """A terminal sends Ctrl-C to workers too; only who started them answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def replayed(case: Case) -> Case:
    """The case with a scenario that is simulated alike by itself: every request counts."""
    data = copy.deepcopy(dict(case.scenario))
    return replace(case, scenario={**data, "run": {"warmup": 0, **data.get("run", {})}})
