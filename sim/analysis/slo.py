"""Service levels: which requests met their own bounds, and which class missed what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analysis import metrics
from sim.analysis.metrics import Window, select
from sim.analysis.verdict import percent
from sim.tables import Columns

Flags = npt.NDArray[np.bool_]


class Objective(NamedTuple):
    """What the requests of some streams must hold.

    Attributes
    ----------
    name : str or None
        The SLO class; None for the bounds outside the classes.
    bounds : mapping
        Upper bounds [s] by metric and quantile: ``{"ttft_s": {"p95": 0.5}}``.
    target : float
        Share of the requests that must meet the loosest bound of every metric.
    streams : tuple of int
        Codes of the streams it holds for.
    """

    name: str | None
    bounds: Mapping[str, Mapping[str, float]]
    target: float
    streams: tuple[int, ...]

    def rows(self, columns: Columns) -> Flags:
        """Which requests it holds for, shape (requests,)."""
        return np.isin(columns["stream"], self.streams)

    @property
    def limits(self) -> dict[str, float]:
        """The loosest bound of every metric [s]: what a single request must meet."""
        return {name: max(quantiles.values()) for name, quantiles in self.bounds.items()}


def objectives(slo: Mapping[str, Any], classes: Sequence[str | None]) -> list[Objective]:
    """What each class must hold, and first the streams without one, where bounds are stated.

    Parameters
    ----------
    slo : mapping
        The scenario's ``slo`` as plain data.
    classes : sequence of str or None
        SLO class of each stream, by its code.
    """
    parts = [(None, slo), *slo.get("classes", {}).items()]
    found = []
    for name, part in parts:
        bounds = {metric: part[metric] for metric in metrics.LATENCIES if metric in part}
        streams = tuple(code for code, own in enumerate(classes) if own == name)
        if bounds and streams:
            target = part.get("attainment", slo["attainment"])
            found.append(Objective(name, bounds, target, streams))
    return found


def within(columns: Columns, asked: Sequence[Objective]) -> tuple[Flags, Flags]:
    """Which requests met the bounds of their own objective, and which have one.

    Both have shape (requests,); a request under no objective is in neither.
    """
    bound = np.zeros(len(columns["status"]), dtype=np.bool_)
    met = bound.copy()
    for objective in asked:
        mine = objective.rows(columns)
        bound |= mine
        met |= mine & metrics.meets(columns, objective.limits)
    return met, bound


def judge(objective: Objective, mine: Columns, saturated: bool) -> dict[str, Any]:
    """Whether the requests of one objective hold it, and what they miss.

    Parameters
    ----------
    objective : Objective
    mine : Columns
        Requests it holds for: those of all its streams, or of one.
    saturated : bool
        No latency is promised, so nothing is met.
    """
    attainment = metrics.slo_attainment(mine, objective.limits)
    if saturated:
        missed = ["saturated"]
    elif attainment is None:
        missed = ["no request measured"]
    else:
        missed = _late(objective, mine)
        if attainment < objective.target:
            missed.append(_short(objective, attainment))
    return {
        "attainment": attainment,
        "target": objective.target,
        "missed": missed,
        "met": not missed,
    }


def _late(objective: Objective, mine: Columns) -> list[str]:
    """The stated quantiles that do not hold."""
    missed = []
    for metric, quantiles in objective.bounds.items():
        found = metrics.summary(metrics.LATENCIES[metric](mine))._asdict()
        for statistic, bound in quantiles.items():
            if found[statistic] is not None and found[statistic] > bound:
                missed.append(f"{metric[:-2].upper()} {statistic} over {1e3 * bound:g} ms")
    return missed


def _short(objective: Objective, attainment: float) -> str:
    """The share asked for; of a class also the share it reached, for the row's is of them all."""
    asked = f"{percent(objective.target)} asked"
    if objective.name is None:
        return asked
    return f"{percent(attainment)} of requests within it, {asked}"


def goodput_req_s(columns: Columns, asked: Sequence[Objective], over: Window) -> float | None:
    """Requests within their own bounds that finished within a window, a second [1/s]."""
    met, _ = within(columns, asked)
    needed = {name: columns[name] for name in ("status", "finish_s")}
    return metrics.req_per_s(select(needed, met), over)


def row_slo(
    asked: Sequence[Objective], kept: Columns, target: float, saturated: bool
) -> dict[str, Any]:
    """The service level of a whole row.

    Parameters
    ----------
    asked : sequence of Objective
        At least one.
    kept : Columns
        The measured requests of all replications.
    target : float
        Share asked for outside the classes.
    saturated : bool

    Returns
    -------
    dict
        ``attainment``: share of the requests under an objective that met their own;
        ``for_all``: whether every request is under one;
        ``classes``: attainment, target, missed and met of each class; ``missed`` and ``met``:
        over all of them.
    """
    met, bound = within(kept, asked)
    judged = [
        (objective, judge(objective, select(kept, objective.rows(kept)), saturated))
        for objective in asked
    ]
    missed = [
        f"class {objective.name}: {what}" if objective.name else what
        for objective, found in judged
        for what in found["missed"]
    ]
    return {
        "attainment": float(met.sum() / bound.sum()) if bound.any() else None,
        "target": target,
        "missed": missed,
        "met": not missed,
        "for_all": bool(bound.all()),
        "classes": {
            objective.name: found for objective, found in judged if objective.name is not None
        },
    }
