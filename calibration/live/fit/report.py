"""The result of ``calibrate live`` in words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from calibration.live.fit.command import Calibrated
from calibration.live.fit.constants import Loads
from calibration.live.fit.estimate import Estimate
from calibration.live.server.by_position import ByPosition, notes
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent

WHAT = {
    "request": ("time of a request outside the engine", "ms"),
    "fixed": ("fixed time of a step: launches and host", "ms"),
    "memory": ("share of the bandwidth, matrix products", ""),
    "compute": ("share of the peak rate, matrix products", ""),
    "draft": ("host time for drafts: sampling, or a pass", "ms"),
}


class Row(NamedTuple):
    """One factor as the quantity people know.

    Attributes
    ----------
    estimate : Estimate
    before, after : float
        In milliseconds, or as a share.
    """

    estimate: Estimate
    before: float
    after: float

    @property
    def error(self) -> float | None:
        """Standard error, in the same unit; None where it was not identified."""
        error = self.estimate.error
        return None if error is None else error * self.before


def rows(found: Calibrated) -> list[Row]:
    """Every factor with the constant it moves."""
    serving, engine = found.serving, found.serving.engine
    gemm = serving.profile.gemm[serving.accelerator.compute_dtype(serving.weights)]
    passes = any(
        case.strategy.draft_passes(serving.target, engine, serving.weights, serving.tp)
        for case in found.cases
    )
    draft = engine.draft_pass_us if passes else engine.sampling_us
    before = {
        "request": engine.request_us.value / 1e3,
        "fixed": (serving.launches_us() + serving.host_us("autoregressive")) / 1e3,
        "memory": gemm.memory.value,
        "compute": gemm.compute.value,
        "draft": draft.value / 1e3,
    }
    estimates = found.fit.estimates
    return [Row(one, before[one.name], before[one.name] * one.factor) for one in estimates]


def report(found: Calibrated, width: int, colour: bool = False) -> str:
    """Text of a calibration: what was known, what the stages say, what they do not."""
    return render(_lines(found, width), colour)


def _lines(found: Calibrated, width: int) -> Iterator[Line]:
    names = ", ".join(str(one.folder) for one in found.observations)
    yield from paragraph(f"{found.serving.engine.title}, as observed in {names}", width, "title")
    yield from paragraph(f"fitted to {Loads.of(found.cases)}", width)
    yield Line("")
    lines = rows(found)
    keys = [Column("  constant", [f"  {_what(row)}" for row in lines], left=True)]
    groups = [
        Group("before", [Column("", [number(row.before) for row in lines])]),
        Group(
            "live",
            [
                Column("", [_after(row) for row in lines]),
                Column("std. error", [number(row.error) for row in lines]),
            ],
        ),
    ]
    yield from table(keys, groups, width, [False] * len(lines))
    yield Line("")
    vague = [_what(row) for row in lines if not row.estimate.identified]
    if vague:
        kept = "; ".join(vague)
        text = f"Not identified by these stages, kept as known before: {kept}."
        yield from paragraph(text, width)
    yield from paragraph(_met(found), width)
    for label, told in found.acceptance.items():
        if told.told is not None:
            yield from paragraph(_accepted(label, told.told), width)


def _what(row: Row) -> str:
    what, unit = WHAT[row.estimate.name]
    return f"{what} [{unit}]" if unit else what


def _after(row: Row) -> str:
    return number(row.after) if row.estimate.identified else MISSING


def _met(found: Calibrated) -> str:
    parts = []
    for metric, name in (("tpot_s", "time per token"), ("ttft_s", "time to first token")):
        mine = np.array([f.metric == metric for case in found.cases for f in case.figures])
        if mine.any():
            off = _mape(found.fit.residuals[mine])
            before = _mape(found.fit.before[mine])
            parts.append(f"{name} {percent(off)} ({percent(before)} before)")
    return f"Mean error over {found.fit.residuals.size} figures of the stages: {', '.join(parts)}."


def _mape(residuals: np.ndarray) -> float:
    """Mean absolute relative error of what is fitted."""
    return float(np.abs(np.expm1(-residuals)).mean())


def _accepted(label: str, told: ByPosition) -> str:
    pairs = zip(told.alpha, told.se, strict=True)
    rates = ", ".join(f"{alpha:.3f} ± {error:.3f}" for alpha, error in pairs)
    text = f"Acceptance of {label} by position, given all before: {rates}."
    doubt = notes(told)
    return f"{text} Mind: {doubt}." if doubt else text


def as_json(found: Calibrated) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "loads": Loads.of(found.cases)._asdict(),
        "constants": [
            {
                "name": row.estimate.name,
                "what": WHAT[row.estimate.name][0],
                "unit": WHAT[row.estimate.name][1],
                "before": row.before,
                "value": row.after,
                "se": row.error,
                "identified": row.estimate.identified,
                "uncertainty_left": row.estimate.left,
            }
            for row in rows(found)
        ],
        "figures": [
            {
                "stage": case.stage.name,
                "replication": case.stage.replication,
                "metric": figure.metric,
                "requests": int(figure.rows.size),
                "measured_s": figure.value_s,
            }
            for case in found.cases
            for figure in case.figures
        ],
        "mape": _mape(found.fit.residuals),
        "mape_before": _mape(found.fit.before),
        "acceptance": {label: told.block for label, told in found.acceptance.items()},
    }
