"""Figures of an audit in words: each unit as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.analysis.verdict import number

FACTORS = {
    "%": (100.0, " %"),
    "s": (1e3, " ms"),
    "byte": (1e-9, " GB"),
    "x": (1.0, "x"),
    "number": (1.0, ""),
}
"""From the unit of a measure to the one shown."""

COUNTS = ("number", "passes", "blocks", "sequences")

LONG_S = 10.0
"""From here on times are shown in seconds."""

SMALL_BYTES = 1e8, 1e5
"""Below the first, bytes are shown in MB, below the second in kB."""


def scaled(unit: str, values: Iterable[float | None] = ()) -> tuple[float, str]:
    """Factor and name of the unit shown, by the largest of ``values``."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    if unit == "s" and largest >= LONG_S:
        return 1.0, " s"
    if unit == "byte" and 0 < largest < SMALL_BYTES[0]:
        return (1e-6, " MB") if largest >= SMALL_BYTES[1] else (1e-3, " kB")
    return FACTORS.get(unit, (1.0, f" {unit}"))


def figure_text(value: float | None, unit: str) -> str:
    """One figure with its unit."""
    if value is None:
        return "-"
    factor, name = scaled(unit, [value])
    return f"{_number(factor * value, unit)}{name}"


def banded_text(figure: Mapping[str, Any]) -> str:
    """A figure with its band and unit, such as ``2.1 (1.9-2.4) x``."""
    value, lo, hi = figure["value"], figure["lo"], figure["hi"]
    if value is None:
        return f"none: {figure['why']}" if figure["why"] else "none"
    if lo is None and hi is None:
        return figure_text(value, figure["unit"])
    factor, name = scaled(figure["unit"], [value])
    ends = ("?" if end is None else number(factor * end) for end in (lo, hi))
    between = " to " if lo is not None and lo < 0 else "-"
    return f"{number(factor * value)} ({between.join(ends)}){_apart(name)}"


def range_text(claimed: Mapping[str, Any], unit: str) -> str:
    """A claimed range with its unit."""
    lo, hi = claimed["min"], claimed["max"]
    if lo is None or hi is None:
        word, end = ("at least", lo) if hi is None else ("at most", hi)
        return f"{word} {figure_text(end, unit)}"
    if lo == hi:
        return figure_text(lo, unit)
    factor, name = scaled(unit, [lo, hi])
    between = " to " if lo < 0 else "-"
    return f"{_number(factor * lo, unit)}{between}{_number(factor * hi, unit)}{name}"


def span_text(values: Sequence[float | None], unit: str) -> str:
    """One figure, or the least and the most of several."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return range_text({"min": min(known), "max": max(known)}, unit)


def either(labels: Iterable[str]) -> str:
    """Labels listed with commas, the last one after 'or'; those of several words in quotes."""
    *most, last = (f"'{label}'" if " " in label else label for label in labels)
    return f"{', '.join(most)} or {last}" if most else last


def _number(value: float, unit: str) -> str:
    """A count as a whole number, anything else with three digits."""
    return str(int(value)) if unit in COUNTS and value == int(value) else number(value)


def _apart(name: str) -> str:
    return f" {name}" if name == "x" else name
