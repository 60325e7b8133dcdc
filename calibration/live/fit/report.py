"""The result of ``calibrate live`` in words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.live import remarks
from calibration.live.fit.command import Calibrated
from calibration.live.fit.constants import Loads
from calibration.live.fit.estimate import SHARES, Estimate
from calibration.live.fit.knobs import Serving
from calibration.live.server.by_position import ByPosition, notes
from models.strategies import Strategy
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent

WHAT = {
    "request": ("time of a request outside the engine", "ms"),
    "launches": ("launches of a step's kernels", "ms"),
    "host": ("host time of a step the GPU waits for", "ms"),
    "memory": ("share of the bandwidth, matrix products", ""),
    "compute": ("share of the peak rate, matrix products", ""),
    "draft": ("host time for drafts, a step or a pass", "ms"),
}


FAR, POOR, FEW = 3.0, 0.2, 16
"""Factor of a share, error after the fit, and requests at which one is to doubt it: assumed."""


class Row(NamedTuple):
    """One factor as the quantity people know.

    Attributes
    ----------
    estimate : Estimate
    before, after, error : float
        In milliseconds, or as a share; the last is a standard error.
    """

    estimate: Estimate
    before: float
    after: float
    error: float


def rows(found: Calibrated) -> list[Row]:
    """Every factor with the constant it moves."""
    serving = found.serving
    engine = serving.engine
    gemm = serving.profile.gemm[serving.accelerator.compute_dtype(serving.weights)]
    drafting = [case.strategy for case in found.cases if case.strategy.drafted]
    before = {
        "request": engine.request_us.value / 1e3,
        "launches": serving.launches_us() / 1e3,
        "host": engine.host_plain.per_step_us.value / 1e3,
        "memory": gemm.memory.value,
        "compute": gemm.compute.value,
        "draft": _draft_us(serving, drafting[0]) / 1e3 if drafting else 0.0,
    }
    return [
        Row(one, before[one.name], before[one.name] * one.factor, before[one.name] * one.error)
        for one in found.fit.estimates
    ]


def _draft_us(serving: Serving, strategy: Strategy) -> float:
    """What a draft pass costs the host, or where there is none choosing among drafted tokens."""
    engine = serving.engine
    passes = strategy.draft_passes(serving.target, engine, serving.weights, serving.tp)
    if all(one.head_only for one in passes):
        return engine.sampling_us.value
    return engine.draft_us(strategy.kind)[0]


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
                Column("std. error", [_error(row) for row in lines]),
            ],
        ),
    ]
    yield from table(keys, groups, width, [False] * len(lines))
    yield Line("")
    for text in _untold(lines):
        yield from paragraph(text, width)
    yield from paragraph(_met(found), width)
    for note in _notes(found):
        yield from paragraph(note, width)
    for label, told in found.acceptance.items():
        if told.told is not None:
            yield from paragraph(_accepted(label, told.told), width)


def _untold(lines: Sequence[Row]) -> Iterator[str]:
    vague = [row for row in lines if not row.estimate.identified]
    kept = [_what(row) for row in vague if row.estimate.factor == 1]
    if kept:
        yield f"Not identified by these stages, kept as known before: {'; '.join(kept)}."
    joint = [
        f"{_what(row)} {number(row.after)} ± {number(row.error)}"
        for row in vague
        if row.estimate.factor != 1
    ]
    if joint:
        yield (
            "Not identified by themselves, but the stages contradict what was known; with the "
            f"others they are met best by: {'; '.join(joint)}."
        )


def _what(row: Row) -> str:
    what, unit = WHAT[row.estimate.name]
    return f"{what} [{unit}]" if unit else what


def _notes(found: Calibrated) -> Iterator[str]:
    """What the stages are not quite, if anything."""
    far = [
        _what(row)
        for row in rows(found)
        if row.estimate.name in SHARES and not 1 / FAR < row.estimate.factor < FAR
    ]
    if far:
        yield (
            f"More than {FAR:g} times what was known: {', '.join(far)}. Is it this hardware, this "
            "model, this engine?"
        )
    worst = max(map(_mape, (found.fit.of("tpot_s"), found.fit.of("ttft_s"))), default=0.0)
    if worst > POOR:
        yield f"The stages are not met: {percent(worst)} off. Do not rely on this calibration."
    few = Loads.of(found.cases).requests
    if few < FEW:
        yield f"It rests on {few} requests: measure more before you trust it."
    if found.deployed.note:
        yield found.deployed.note
    fitted = {case.stage.name for case in found.cases}
    for one in found.observations:
        pairs = list(zip(one.stages, one.runs, strict=True))
        kept = [(stage, run) for stage, run in pairs if stage.name in fitted]
        for note in (remarks.lost(one.stages, one.runs), remarks.cached(*zip(*kept, strict=True))):
            if note:
                yield note


def _error(row: Row) -> str:
    return number(row.error) if row.estimate.identified else MISSING


def _after(row: Row) -> str:
    return number(row.after) if row.estimate.identified else MISSING


def _met(found: Calibrated) -> str:
    fit, parts = found.fit, []
    for metric, name in (("tpot_s", "time per token"), ("ttft_s", "time to first token")):
        after, before = fit.of(metric), fit.of(metric, before=True)
        if after.size:
            parts.append(f"{name} {percent(_mape(after))} ({percent(_mape(before))} before)")
    return f"Mean error over {len(fit.pools)} figures of the stages: {', '.join(parts)}."


def _mape(residuals: np.ndarray) -> float:
    """Mean absolute relative error of what is fitted."""
    return float(np.abs(np.expm1(-residuals)).mean()) if residuals.size else 0.0


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
                "what": pool.name,
                "repeats": len(pool.members),
                "off": float(np.expm1(-residual)),
                "off_before": float(np.expm1(-before)),
            }
            for pool, residual, before in zip(
                found.fit.pools, found.fit.residuals, found.fit.before, strict=True
            )
        ],
        "mape": _mape(found.fit.residuals),
        "mape_before": _mape(found.fit.before),
        "acceptance": {label: told.block for label, told in found.acceptance.items()},
    }
