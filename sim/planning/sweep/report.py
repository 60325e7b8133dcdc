"""What a sweep prints: the strategy to choose at every point, and what it gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from sim.analysis import describe
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number, percent

MOST_POINTS = 60

Row = Mapping[str, Any]


def sweep_report(
    document: Mapping[str, Any], rows: Sequence[Row], width: int, colour: bool = False
) -> str:
    """Text of a sweep.

    Parameters
    ----------
    document : mapping
        The result document, without rows.
    rows : sequence of mapping
        The rows of ``results.parquet``.
    width : int
        Characters a line may have.
    colour : bool
        Add the escape codes of a terminal.
    """
    return render(_lines(document, rows, width), colour)


def _lines(document: Mapping[str, Any], rows: Sequence[Row], width: int) -> Iterator[Line]:
    scenario = document["scenario"]
    points = [list(part) for _, part in groupby(rows, key=lambda row: row["point"])]
    if document.get("question"):
        yield from paragraph(document["question"], width, "title", "")
    yield from paragraph(describe.deployment(scenario), width, "title")
    yield from paragraph(describe.load(scenario, document.get("trace")), width)
    yield from paragraph(
        f"varied: {describe.varied(map(_values, rows))} (first values above)", width
    )
    yield Line("")
    shown = points[:MOST_POINTS]
    chosen = [next((row for row in point if row["best"]), None) for point in shown]
    at = [describe.point(_values(point[0])) for point in shown]
    keys = [
        Column("at", at, left=True),
        Column("choose", [row["strategy"] if row else "none carries it" for row in chosen], True),
    ]
    groups = [
        Group(title, [Column(name, [MISSING if row is None else cell(row) for row in chosen])])
        for title, name, cell in _COLUMNS
    ]
    yield from table(keys, groups, width, [False] * len(shown))
    if len(points) > len(shown):
        yield Line(f"... and {len(points) - len(shown)} points more", "note")
    yield Line("")
    yield from paragraph(_summary(points), width)


def _values(row: Row) -> dict[str, Any]:
    """The varied keys of a row: the columns between ``point`` and ``strategy``."""
    names = list(row)
    return {name: row[name] for name in names[1 : names.index("strategy")]}


def _summary(points: Sequence[Sequence[Row]]) -> str:
    best = [next((row["strategy"] for row in point if row["best"]), None) for point in points]
    counts = {name: best.count(name) for name in dict.fromkeys(best)}
    told = [
        f"{name or 'none'} at {percent(count / len(points))}"
        for name, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    return f"Best of {len(points)} points: {', '.join(told[:MOST_POINTS])}."


def _banded(name: str, value: str, scale: float) -> Any:
    def cell(row: Row) -> str:
        if row[value] is None:
            return MISSING
        ends = (row[f"{name}_lo"], row[f"{name}_hi"])
        band = f" ({_end(ends[0], scale)}-{_end(ends[1], scale)})" if any(ends) else ""
        return f"{number(scale * row[value])}{band}"

    return cell


def _end(value: float | None, scale: float) -> str:
    return "?" if value is None else number(scale * value)


def _share(row: Row) -> str:
    return MISSING if row["attainment"] is None else number(100 * row["attainment"])


_COLUMNS = (
    ("speedup", "(band)", _banded("speedup", "speedup", 1.0)),
    ("TPOT ms", "mean (band)", _banded("tpot_s", "tpot_s_mean", 1e3)),
    ("TTFT ms", "mean (band)", _banded("ttft_s", "ttft_s_mean", 1e3)),
    ("tok/s", "a GPU", lambda row: number(row["tok_per_s_per_gpu"])),
    ("tau", "now", lambda row: number(row["tau"])),
    ("SLO", "within %", _share),
)
