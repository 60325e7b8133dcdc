"""From a measured case to what the simulator says about it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from calibration.validation import shares, verify_attention
from calibration.validation.case import Case
from models.residuals import Residuals
from models.strict_yaml import load_yaml
from sim import experiment
from sim.scenario.dump import to_yaml
from sim.scenario.load import parse_scenario

Row = Mapping[str, Any]


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


def replayed(case: Case) -> Case:
    """The case with a scenario that is simulated alike by itself: every request counts."""
    data = copy.deepcopy(dict(case.scenario))
    return replace(case, scenario={**data, "run": {"warmup": 0, **data.get("run", {})}})
