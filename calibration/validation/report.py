"""What ``speccast validate`` prints: errors by publication, promises, the worst cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from calibration.validation import tables
from calibration.validation.bounds import Check, check, held_out, shipped
from calibration.validation.groups import KERNEL, LATENCIES, metric_name
from calibration.validation.guard import stored_held_out
from sim.analysis.layout import Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent

FIGURES = (
    *("case", "suite", "origin", "metric", "measured", "predicted", "lo", "hi", "basis", "tau"),
    *("relative", "reading", "acceptance", "scored", "in_sample"),
)

STATISTICS = {"mape": "MAPE", "sides": "right side of 1", "inside": "within the band"}


def validation_report(
    frame: pd.DataFrame, width: int, colour: bool = False, promised: bool = True
) -> str:
    """Text of a validation.

    Parameters
    ----------
    frame : DataFrame
        As from ``score.table`` and ``groups.with_groups``.
    width, colour
        As in ``report.run_report``.
    promised : bool
        Whether to hold it to the promises, which are on all the shipped cases.
    """
    return render(_lines(frame, width, promised), colour)


def as_json(frame: pd.DataFrame, promised: bool = True) -> dict[str, Any]:
    """What ``speccast validate --json`` prints: by publication, promises, every figure."""
    checks = _checks(frame) if promised else []
    figures = [_plain(row) for row in frame[list(FIGURES)].to_dict("records")] if len(frame) else []
    by_publication = tables.summary(frame, ["origin", "metric"]).to_dict("records")
    return {
        "cases": int(frame["case"].nunique()) if len(frame) else 0,
        "by_publication": [_plain(row) for row in by_publication],
        "promises": [one._asdict() for one in checks if one.n],
        "figures": figures,
    }


def _checks(frame: pd.DataFrame) -> list[Check]:
    """Promises, on predictions made without the figures themselves where there are such."""
    return check(held_out(frame, stored_held_out()))


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    """Values JSON has: no NaN, no numbers of numpy."""
    return {
        str(name): None if pd.isna(value) else getattr(value, "item", lambda v=value: v)()
        for name, value in row.items()
    }


def _lines(frame: pd.DataFrame, width: int, promised: bool) -> Iterator[Line]:
    if frame.empty:
        yield Line("No case is complete.", "note")
        return
    yield Line("Predicted against measured, by publication", "title")
    yield from _publications(frame, width, promised)
    yield from _unscored(frame, width)
    if promised:
        yield from _promises(_checks(frame), width)
    yield from _worst(frame, width)


def _publications(frame: pd.DataFrame, width: int, promised: bool) -> Iterator[Line]:
    found = tables.summary(frame, ["origin", "metric"])
    if found.empty:
        return
    limits = tables.limits(frame, shipped().bounds) if promised else {}
    keys = found[["origin", "metric"]].itertuples(index=False, name=None)
    bounds = [limits.get((str(origin), str(metric))) for origin, metric in keys]
    names = found["origin"].mask(found["origin"] == found["origin"].shift(), "")
    columns = [
        Column("n", [str(n) for n in found["n"]]),
        Column("MAPE", shares(found["mape"])),
        Column("bias", [signed(value) for value in found["bias"]]),
        Column("p90", shares(found["p90"])),
        Column("worst", shares(found["worst"])),
        Column("bound", ["-" if bound is None else percent(bound) for bound in bounds]),
        Column("side of 1", counts(found["right"], found["told"])),
        Column("in band", counts(found["inside"], found["banded"])),
        Column("saturated", [str(n) if n else "-" for n in found["saturated"]]),
        Column("fitted", [str(n) if n else "-" for n in found["fitted"]]),
    ]
    left = [
        Column("  publication", [f"  {name}" for name in names], left=True),
        Column("figure", [metric_name(name) for name in found["metric"]], left=True),
    ]
    yield from _table(left, columns, width)
    yield Line("")
    yield from paragraph(
        "MAPE, p90, worst: |predicted / measured - 1|; bias: its mean with sign. Bound: the "
        "tightest promise on some of them. Side of 1: speedups more than 5 % from 1 told right. "
        "Shares of a step: in points. Fitted: figures a constant was fitted to.",
        width,
        "note",
    )
    yield Line("")


def _unscored(frame: pd.DataFrame, width: int) -> Iterator[Line]:
    left = int((~frame["scored"]).sum())
    if left:
        yield from paragraph(
            f"{left} more figures are predicted and not scored: they fix an acceptance, or their "
            "setting is unknown.",
            width,
            "note",
        )
        yield Line("")


def _promises(checks: Iterable[Check], width: int) -> Iterator[Line]:
    told = [one for one in checks if one.kept is not None]
    if not told:
        return
    missed = [one for one in told if not one.kept]
    yield Line(f"Promises: {len(told) - len(missed)} kept, {len(missed)} missed", "title")
    for one in missed:
        why = f" ({one.cause})" if one.cause else ""
        yield from paragraph(f"  missed: {sentence(one)}{why}", width, indent="    ")
    yield Line("")


def sentence(one: Check) -> str:
    """A promise, what it came to and what it may."""
    group = f", {one.group}" if one.group else ""
    if one.value is None:
        return f"{one.promise}{group}: no figure"
    limit = "at most" if one.statistic == "mape" else "at least"
    name = STATISTICS[one.statistic]
    return (
        f"{one.promise}{group}: {name} {percent(one.value)} of {one.n}, "
        f"{limit} {percent(one.limit)}"
    )


def _worst(frame: pd.DataFrame, width: int) -> Iterator[Line]:
    found = tables.worst(frame)
    if found.empty:
        return
    yield Line(f"Farthest off: {len(found)} of {int(frame['scored'].sum())}", "title")
    pairs = list(zip(found["metric"], found["measured"], found["predicted"], strict=True))
    keys = [
        Column("  case", [f"  {name}" for name in found["case"]], left=True),
        Column("figure", [metric_name(name) for name in found["metric"]], left=True),
    ]
    columns = [
        Column("measured", [value_text(metric, value) for metric, value, _ in pairs]),
        Column("predicted", [value_text(metric, value) for metric, _, value in pairs]),
        Column("error", [signed(value) for value in found["relative"]]),
    ]
    yield from _table(keys, columns, width)


def value_text(metric: str, value: float) -> str:
    """A figure with its unit, as ``12.3 ms``."""
    name = metric.partition(".")[0]
    if name in LATENCIES or name == KERNEL:
        return f"{number(1e3 * value)} ms"
    return f"{number(value)} s" if name == "duration_s" else number(value)


def shares(values: pd.Series) -> list[str]:
    """Shares as percentages with one decimal."""
    return ["-" if pd.isna(value) else f"{100 * value:.1f} %" for value in values]


def signed(value: float) -> str:
    """A relative error as a percentage with its sign."""
    return "-" if pd.isna(value) else f"{100 * value:+.1f} %"


def counts(part: pd.Series, whole: pd.Series) -> list[str]:
    """So many of so many; nothing where there are none."""
    return [f"{a:.0f}/{b:.0f}" if b else "-" for a, b in zip(part, whole, strict=True)]


def _table(keys: Sequence[Column], columns: Sequence[Column], width: int) -> Iterator[Line]:
    groups = [Group("", [column]) for column in columns]
    yield from table(keys, groups, width, [False] * len(keys[0].cells))
