"""The printed report of ``speccast run``: question, table, verdicts, how to read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sim.analysis import describe
from sim.analysis.grid import points
from sim.analysis.kernel_notes import beyond
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.modes_report import REGRET, REGRETS, mode_lines, regret
from sim.analysis.parts_report import part_table, worst_window
from sim.analysis.verdict import WATCH, Row, best, compared, number, percent, switch_off
from sim.scenario.vary import size

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
BASIS = {
    "validated": "scored against real runs of this kind",
    "extrapolated": "measured elsewhere, carried over",
    "assumed": "no measurement behind it",
}

Cell = Callable[[Row], str]


def run_report(document: Mapping[str, Any], width: int, colour: bool = False) -> str:
    """Text of a result document.

    Parameters
    ----------
    document : mapping
        What ``speccast run --json`` prints.
    width : int
        Characters a line may have; wide tables are split, numbers are never cut.
    colour : bool
        Add the escape codes of a terminal.
    """
    return render(_run_lines(document, width), colour)


def _run_lines(document: Mapping[str, Any], width: int) -> Iterator[Line]:
    rows = document["rows"]
    yield from _header(document, width)
    if not rows:
        return
    at_points = points(rows)
    chosen = [id(best(at_point)) for at_point in at_points]
    marked = [id(row) in chosen for row in rows]
    yield from table(_keys(rows, marked), _groups(rows), width, marked)
    yield Line("")
    yield from mode_lines(at_points, width)
    yield from part_table(at_points, width, "stream")
    streams = document["scenario"]["workload"].get("streams", ())
    if any(isinstance(stream.get("domain"), Mapping) for stream in streams):
        yield from part_table(at_points, width, "domain")
    for text in _legend(rows):
        yield from paragraph(text, width, "note")
    yield Line("")
    for at_point in at_points:
        yield from _verdicts(at_point, width)
    if any(switch_off(row) for row in rows):
        yield from paragraph(WATCH, width, "note")


def _header(document: Mapping[str, Any], width: int) -> Iterator[Line]:
    scenario = document["scenario"]
    if document.get("question"):
        yield from paragraph(document["question"], width, "title", "")
    yield from paragraph(describe.deployment(scenario), width, "title")
    yield from paragraph(describe.load(scenario, document.get("trace")), width)
    if describe.fleet(scenario):
        yield from paragraph(describe.fleet(scenario), width)
    varied = describe.varied(row["point"] for row in document["rows"])
    if varied:
        yield from paragraph(f"varied: {varied} (first values above)", width)
    replications = scenario.get("run", {}).get("replications", 1)
    yield from paragraph(
        f"seed {document['seed']}, {replications} replication{'s' * (replications > 1)}, "
        f"kernel profile {document['profile']}",
        width,
        "note",
    )
    if document.get("interrupted"):
        yield from paragraph(f"{interruption(document)}.", width, "note")
    yield Line("")


def interruption(document: Mapping[str, Any]) -> str:
    """How much of an interrupted run is complete: strategies, or rows of a grid."""
    scenario, complete = document["scenario"], len(document["rows"])
    grid = size(scenario.get("vary", {}))
    whole = grid * len(scenario["strategies"])
    what = "strategies" if grid == 1 else "rows"
    return f"interrupted: {complete} of {whole} {what} are complete"


def _keys(rows: Sequence[Row], marked: Sequence[bool]) -> list[Column]:
    marks = [
        "*" if chosen else "?" if row.get("hypothetical") else " "
        for row, chosen in zip(rows, marked, strict=True)
    ]
    names = [f"{mark} {row['strategy']}" for mark, row in zip(marks, rows, strict=True)]
    keys = [Column("  strategy", names, left=True)]
    if any(row["point"] for row in rows):
        keys.insert(0, Column("at", [describe.point(row["point"]) for row in rows], left=True))
    return keys


def _groups(rows: Sequence[Row]) -> list[Group]:
    return [
        Group(title, [Column(name, [cell(row) for row in rows]) for name, cell in columns])
        for title, columns in COLUMNS
    ]


def _milliseconds(name: str, statistic: str) -> Cell:
    def cell(row: Row) -> str:
        value = row[name][statistic]
        return number(None if value is None else 1e3 * value)

    return cell


def _mean_banded(name: str) -> Cell:
    return lambda row: _banded(row, name, row[name]["mean"], 1e3)


def _banded(row: Row, name: str, value: float | None, scale: float = 1.0) -> str:
    if value is None:
        return number(None)
    band = row["band"].get(name)
    text = number(scale * value)
    if not band:
        return text
    lo, hi = (_end(band[end], scale) for end in ("lo", "hi"))
    return f"{text} ({lo}-{hi})"


def _end(value: float | None, scale: float) -> str:
    return "?" if value is None else number(scale * value)


def _in_percent(share: float | None) -> str:
    """A share as a percentage that never rounds up to all of it."""
    if share is None:
        return number(None)
    short = number(100 * share)
    return short if share >= 1 or float(short) < 100 else number(100 * share, 5)


def _some(count: int) -> str:
    """A count of what seldom happens: a column of zeros is left out."""
    return str(count) if count else MISSING


def _percent_if_any(share: float) -> str:
    return _in_percent(share) if share else MISSING


def _gigabytes(value: float | None) -> str:
    return number(None if value is None else value / 1e9)


def _cost(row: Row) -> str:
    cost = row.get("usd_per_million_tokens", math.nan)
    if cost is None and row["tok_per_s_per_gpu"]:
        return "no price"
    return MISSING if cost is None or math.isnan(cost) else number(cost)


def _slo(row: Row, key: str) -> float | None:
    value: float | None = (row.get("slo") or {}).get(key)
    return value


def _statistics(title: str, name: str) -> tuple[str, list[tuple[str, Cell]]]:
    return title, [(statistic, _milliseconds(name, statistic)) for statistic in STATISTICS]


COLUMNS: tuple[tuple[str, list[tuple[str, Cell]]], ...] = (
    ("speedup", [("(band)", lambda row: _banded(row, "speedup", row["speedup"]))]),
    ("TPOT ms", [("mean (band)", _mean_banded("tpot_s"))]),
    ("TTFT ms", [("mean (band)", _mean_banded("ttft_s"))]),
    ("E2E ms", [("mean (band)", _mean_banded("e2e_s"))]),
    (
        "tok/s",
        [
            ("a user", lambda row: number(row["tok_per_s_per_user"])),
            ("a GPU", lambda row: number(row["tok_per_s_per_gpu"])),
        ],
    ),
    ("cost", [("USD/M tok", _cost)]),
    (
        "tau",
        [
            ("now", lambda row: number(row["tau"])),
            ("off below", lambda row: number(row["break_even_tau"])),
        ],
    ),
    ("regret %", [(title, regret(key)) for title, key in REGRETS.items()]),
    ("accepted", [("%", lambda row: _in_percent(row["acceptance_rate"]))]),
    (
        "KV memory",
        [
            ("peak %", lambda row: _in_percent(row["kv_use_peak"])),
            ("free GB", lambda row: _gigabytes(row["kv_free_bytes"])),
            ("unusable %", lambda row: _percent_if_any(row.get("kv_unusable", 0.0))),
        ],
    ),
    _statistics("TTFT ms", "ttft_s"),
    _statistics("TPOT ms", "tpot_s"),
    _statistics("ITL ms", "itl_s"),
    _statistics("E2E ms", "e2e_s"),
    _statistics("queue ms", "queue_s"),
    (
        "requests",
        [
            ("/s", lambda row: number(row["req_per_s"])),
            ("done", lambda row: str(row["finished"])),
            ("rejected", lambda row: str(row["rejected"])),
            ("timed out", lambda row: _some(row["timed_out"])),
            ("failed", lambda row: _some(row["failed"])),
            ("cut off", lambda row: str(row["unfinished"])),
            ("resent", lambda row: _some(row["resent"])),
            ("preempted", lambda row: str(row["preemptions"])),
        ],
    ),
    ("prefix", [("hits %", lambda row: _in_percent(row["prefix_hit_rate"]))]),
    (
        "SLO",
        [
            ("within %", lambda row: _in_percent(_slo(row, "attainment"))),
            ("good req/s", lambda row: number(_slo(row, "goodput_req_s"))),
        ],
    ),
)


def _legend(rows: Sequence[Row]) -> list[str]:
    marks = ["* best choice here"]
    if any(row.get("hypothetical") for row in rows):
        marks.append("? hypothetical: this engine cannot run it")
    return ["; ".join([*marks, *reading(rows)]) + ".", *bases(rows), *beyond(rows)]


def reading(rows: Sequence[Row]) -> list[str]:
    """How to read bands and speedups."""
    bands = [band for row in rows for band in row["band"].values()]
    notes = []
    if bands:
        notes.append(f"bands hold {percent(bands[0]['level'])} of outcomes")
    if any(band[end] is None for band in bands for end in ("lo", "hi")):
        notes.append("an end marked ? saturates")
    if any(row.get("regret") for row in rows):
        notes.append(REGRET)
    if any(compared(row) for row in rows):
        what = "time per token of plain decoding over the strategy's, at the same load"
        return [*notes, f"speedup: {what}"]
    return [*notes, "no speedup: plain decoding was not run"]


def bases(rows: Sequence[Row]) -> list[str]:
    """What the bands of each strategy rest on, in words."""
    texts = []
    for basis, meaning in BASIS.items():
        names = dict.fromkeys(
            row["strategy"]
            for row in rows
            if any(band["basis"] == basis for band in row["band"].values())
        )
        if names:
            texts.append(f"Band {basis} ({meaning}): {', '.join(names)}.")
    return texts


def _verdicts(rows: Sequence[Row], width: int) -> Iterator[Line]:
    chosen = best(rows)
    answer = f"choose {chosen['strategy']}." if chosen else "no strategy carries this load."
    where = describe.point(rows[0]["point"])
    yield Line(f"At {where}: {answer}" if where else answer[0].upper() + answer[1:], "title")
    for row in rows:
        off = switch_off(row)
        text = f"  {row['strategy']}: {row['verdict']}{'; ' + off if off else ''}."
        yield from paragraph(text, width, "best" if row is chosen else "text", "    ")
        worst = worst_window(row)
        if worst:
            yield from paragraph(f"    {worst}.", width, "note", "      ")
