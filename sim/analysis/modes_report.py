"""Sequences that switch, in tables: what each mode did, and the first switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sim.analysis import describe, grid
from sim.analysis.layout import Column, Group, Line, paragraph, table
from sim.analysis.verdict import Row, number

TITLES = ("time %", "steps", "tau", "alpha %", "of offered %")
READING = (
    "time: share of the decoding sequences; alpha: draft tokens accepted of those reached; of "
    "offered: of K, or the depth of the tree."
)
REGRETS = {"tok/s": "tok_per_s", "TPOT mean": "tpot_mean", "TPOT p95": "tpot_p95"}
REGRET = "regret: tokens a second short of the oracle's, and time per token beyond its"
MOST_ROWS = 60
"""Rows of modes printed; of more only the point with the pictures is shown."""
MOST_MODES = 20
"""Modes of a strategy shown, the most used ones."""
TOLD = 2
"""Switches told one by one."""


def mode_lines(points: Sequence[Sequence[Row]], width: int) -> Iterator[Line]:
    """Table by mode of the strategies whose sequences switch, and their switches.

    Parameters
    ----------
    points : sequence of sequences of mapping
        Result rows by point.
    width : int
        Characters of a line.
    """
    rows = [row for at_point in points for row in at_point if row.get("modes")]
    if sum(len(row["modes"]) for row in rows) > MOST_ROWS and len(points) > 1:
        shown = grid.shown([row for at_point in points for row in at_point])
        rows = [row for row in shown if row.get("modes")]
    if not rows:
        return
    parts = [(row, name, mode) for row in rows for name, mode in used(row)]
    keys = [
        Column("  strategy", [f"  {row['strategy']}" for row, _, _ in parts], left=True),
        Column("mode", [name for _, name, _ in parts], left=True),
    ]
    if any(row["point"] for row in rows):
        keys.insert(0, Column("at", [describe.point(row["point"]) for row, *_ in parts], left=True))
    cells = zip(*(mode_cells(mode) for _, _, mode in parts), strict=True)
    groups = [Group("", [Column(*each)]) for each in zip(TITLES, cells, strict=True)]
    yield from table(keys, groups, width, [False] * len(parts))
    yield from paragraph(READING, width, "note")
    yield Line("")
    for row in rows:
        text = switches(row)
        if text:
            where = describe.point(row["point"])
            told = f"  {row['strategy']}{f' at {where}' if where else ''}: {text}."
            yield from paragraph(told, width, "note", "    ")
    yield Line("")


def used(row: Row) -> list[tuple[str, Mapping[str, Any]]]:
    """Modes of a row that ran, at most ``MOST_MODES`` of them, in their order."""
    ran = [(name, mode) for name, mode in row["modes"].items() if mode["steps"]]
    least = sorted((mode["steps"] for _, mode in ran), reverse=True)[:MOST_MODES][-1:]
    return [(name, mode) for name, mode in ran if mode["steps"] >= least[0]]


def mode_cells(mode: Mapping[str, Any]) -> list[str]:
    """One mode under ``TITLES``."""
    return [
        _in_percent(mode["share"]),
        str(mode["steps"]),
        number(mode["tau"]),
        _in_percent(mode["alpha"]),
        _in_percent(mode["acceptance"]),
    ]


def switches(row: Row) -> str:
    """How often a row switched, and first when; empty where no switch is decided."""
    count = row.get("switches")
    if count is None:
        return ""
    if not count:
        return "no switch"
    often = f"{count} switch{'es' * (count > 1)}, {number(row['switches_per_request'])} a request"
    first = [_switch(each) for each in row["first_switches"][:TOLD]]
    return f"{often}; first {', '.join(first)}" if first else often


def _switch(each: Mapping[str, Any]) -> str:
    whose = "" if each["of"] == "engine" else f", {each['of']} {each['owner']}"
    what = f"{each['mode_from']} to {each['mode_to']}"
    return f"at {number(each['at_s'])} s {what} (reads {number(each['reading'])}{whose})"


def regret(key: str) -> Callable[[Row], str]:
    """Cell of one kind of regret [%]."""
    return lambda row: _in_percent((row.get("regret") or {}).get(key))


def _in_percent(share: float | None) -> str:
    return number(None if share is None else 100 * share)
