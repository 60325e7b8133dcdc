"""The printed report of ``speccast capacity``: the largest load of each strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sim.analysis import describe, slo_words
from sim.analysis.grid import points
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.report import BASIS
from sim.analysis.verdict import Row, number, percent

Cell = Callable[[Row], str]


def capacity_report(document: Mapping[str, Any], width: int, colour: bool = False) -> str:
    """Text of a capacity document.

    Parameters
    ----------
    document : mapping
        What ``speccast capacity --json`` prints.
    width : int
        Characters a line may have; wide tables are split, numbers are never cut.
    colour : bool
        Add the escape codes of a terminal.
    """
    return render(_lines(document, width), colour)


def _lines(document: Mapping[str, Any], width: int) -> Iterator[Line]:
    rows, scenario = document["rows"], document["scenario"]
    if document.get("question"):
        yield from paragraph(document["question"], width, "title", "")
    yield from paragraph(describe.deployment(scenario), width, "title")
    yield from paragraph(describe.load(scenario, document.get("trace")), width)
    if describe.fleet(scenario):
        yield from paragraph(describe.fleet(scenario), width)
    yield from paragraph(f"{_asked(document)}.", width)
    yield Line("")
    best = _best(rows)
    yield from table(_keys(rows, best), _groups(rows, document["unit"]), width, best)
    yield Line("")
    for text in _notes(document):
        yield from paragraph(text, width, "note")


def _asked(document: Mapping[str, Any]) -> str:
    """What must hold, and when."""
    stretch = document["stretch"]
    length, window = (describe.duration(stretch[key]) for key in ("length_s", "window_s"))
    several = stretch["window_s"] < stretch["length_s"]
    held = f"every {window} of {length}" if several else f"the {length.removeprefix('1 ')}"
    after = f" after {describe.duration(stretch['lead_s'])} of the same load"
    what = slo_words.slo(document["scenario"])
    return f"Must hold in {held}{after if stretch['lead_s'] else ''}: {what}"


def _best(rows: Sequence[Row]) -> list[bool]:
    """The rows with the largest load at their point, of strategies the engine has."""
    chosen = []
    for at_point in points(rows):
        real = [row for row in at_point if row["capacity"] and not row["hypothetical"]]
        chosen += [id(max(real, key=lambda row: row["capacity"]))] if real else []
    return [id(row) in chosen for row in rows]


def _keys(rows: Sequence[Row], best: Sequence[bool]) -> list[Column]:
    marks = [
        "*" if chosen else "?" if row["hypothetical"] else " "
        for row, chosen in zip(rows, best, strict=True)
    ]
    names = [f"{mark} {row['strategy']}" for mark, row in zip(marks, rows, strict=True)]
    keys = [Column("  strategy", names, left=True)]
    if any(row["point"] for row in rows):
        keys.insert(0, Column("at", [describe.point(row["point"]) for row in rows], left=True))
    return keys


def _groups(rows: Sequence[Row], unit: str) -> list[Group]:
    def column(title: str, cell: Cell, left: bool = False) -> Column:
        return Column(title, [cell(row) for row in rows], left)

    level = f"{100 * rows[0]['interval']['level']:.0f} %" if rows else ""
    load = [
        column("largest", lambda row: number(row["capacity"])),
        column(level, lambda row: span(row["interval"])),
        column("a GPU", lambda row: number(row["per_gpu"])),
        column("x plain", lambda row: number(row["ratio"])),
    ]
    window = [
        column("TTFT ms", lambda row: _worst(row, "ttft_s_p95", 1e3)),
        column("TPOT ms", lambda row: _worst(row, "tpot_s_p95", 1e3)),
        column("E2E s", lambda row: _worst(row, "e2e_s_p95", 1.0)),
    ]
    return [
        Group(f"load [{unit}]", load),
        Group("", [column("band", lambda row: span(row["band"])), column("basis", _basis, True)]),
        Group("p95 in its worst window", window),
        Group("", [column("limited by", lambda row: limit(row["limited_by"]), left=True)]),
    ]


def span(band: Mapping[str, Any] | None) -> str:
    """Both ends of an interval or a band."""
    if band is None or (band["lo"] is None and band["hi"] is None):
        return MISSING
    lo, hi = (number(band[end]) if band[end] is not None else "none" for end in ("lo", "hi"))
    return f"{lo}-{hi}"


def _basis(row: Row) -> str:
    """What the band rests on; nothing where none is shown."""
    return row["band"]["basis"] if span(row["band"]) != MISSING else MISSING


def limit(what: str | None) -> str:
    """What is nearest to its bound, as the other reports name it."""
    if what is None:
        return "not even the least load"
    for metric in ("ttft", "tpot", "e2e"):
        what = what.replace(f"{metric}_s", metric.upper())
    return what


def _worst(row: Row, name: str, factor: float) -> str:
    value = row["worst"] and row["worst"][name]
    return number(None if value is None else factor * value)


def _reading(document: Mapping[str, Any]) -> Iterator[str]:
    """What the columns of loads mean, those that are shown."""
    rows, replications = document["rows"], document["replications"]
    runs = sum(row["simulations"] for row in rows)
    requests = sum(row["simulated"] for row in rows)
    yield (
        f"largest: the largest load tried that holds, mean of {replications} workload"
        f"{'s' * (replications > 1)}; a load 2 % above it does not. Seed {document['seed']}, "
        f"{runs} runs of {requests:,} requests, bands apart."
    )
    if any(span(row["interval"]) != MISSING for row in rows):
        level = percent(rows[0]["interval"]["level"])
        yield f"{level}: what the draw of the workload and the search leave open."
    bases = {_basis(row) for row in rows}
    told = ", ".join(f"{basis} ({what})" for basis, what in BASIS.items() if basis in bases)
    if told:
        yield "band: the same load with every step at the two ends of its error (90 %)."
        yield f"basis: what the band rests on: {told}."


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    rows = document["rows"]
    if any(row["capacity"] for row in rows):
        yield from _reading(document)
    if any(not row["capacity"] for row in rows):
        yield (
            "not even the least load: the SLO is missed even where hardly anything waits. Loosen "
            "its bounds, or serve with more GPUs or a larger model.tp."
        )
    if any("attainment" in (row["limited_by"] or "") for row in rows):
        yield "attainment: too few requests within all their bounds, most for the latency named."
    if any(row["hypothetical"] for row in rows):
        yield "?: this engine version cannot run it."


__all__ = ["capacity_report", "limit", "span"]
