"""What ``speccast observe`` prints: a line a stage, its repeats together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from calibration.live.recording import Stage
from calibration.live.server.emitted import tau_of_stages
from sim.analysis import metrics, steady
from sim.analysis.layout import Column, Group, Line, paragraph, render, table
from sim.analysis.verdict import number
from sim.tables import RunTable

Row = Mapping[str, Any]
SHOWN = ("mean", "p50", "p95")


def document(
    about: Mapping[str, Any], stages: Sequence[Stage], runs: Sequence[RunTable]
) -> dict[str, Any]:
    """All that was measured, JSON-ready: ``run.json`` and a row a point.

    Latencies pool the requests of all repeats, rates average over them.
    """
    names = dict.fromkeys(stage.name for stage in stages)
    pairs = list(zip(stages, runs, strict=True))
    (block,) = about["strategies"].values()
    rows = [
        _row(name, [pair for pair in pairs if pair[0].name == name], block["kind"])
        for name in names
    ]
    return {**about, "stages": rows}


def _row(name: str, own: Sequence[tuple[Stage, RunTable]], kind: str) -> dict[str, Any]:
    stages, tables = [stage for stage, _ in own], [run.columns for _, run in own]
    pooled = metrics.joined(tables)
    rates = [metrics.tok_per_s(table, steady.whole_run(table)) for table in tables]
    known = [rate for rate in rates if rate is not None]
    return {
        "point": dict(stages[0].point),
        "name": name,
        "repeats": len(own),
        "requests": len(pooled["id"]),
        **metrics.counts(pooled),
        **{
            metric: metrics.summary(metrics.LATENCIES[metric](pooled))._asdict()
            for metric in ("ttft_s", "tpot_s", "e2e_s")
        },
        "tok_per_s": sum(known) / len(known) if known else None,
        "tau": _tau(stages, metrics.tau(pooled), kind),
        "late": sum(stage.late for stage in stages),
        "latest_s": max(stage.latest_s for stage in stages),
    }


def _tau(stages: Sequence[Stage], told: float | None, kind: str) -> float | None:
    """Mean tokens a step emits: as told request by request, else by the server's counters."""
    if told is not None:
        return told
    counters, gauges = [one.counters for one in stages], [one.gauges for one in stages]
    return tau_of_stages(counters, gauges, kind)[0]


def report(said: Mapping[str, Any], width: int, colour: bool = False) -> str:
    """Text of a document."""
    return render(_lines(said, width), colour)


def _lines(said: Mapping[str, Any], width: int) -> Iterator[Line]:
    rows, server = said["stages"], said["server"]
    engine = " ".join(part for part in (server["engine"], server["version"]) if part)
    where = f" at {said['base_url']}" if said["base_url"] else ""
    by = "" if engine == "unknown" else f" ({engine})"
    title = f"{said['target']}{where}{by}: {next(iter(said['strategies']))}"
    yield from paragraph(title, width, "title", "")
    yield Line("")
    names = Column("at", [row["name"] for row in rows], left=True)
    yield from table([names], _groups(rows), width, [False] * len(rows))
    yield Line("")
    yield from paragraph(_reading(rows), width, "note")
    for note in said.get("notes", ()):
        yield from paragraph(note, width, "note")


def _groups(rows: Sequence[Row]) -> list[Group]:
    def column(title: str, cell: Callable[[Row], str]) -> Column:
        return Column(title, [cell(row) for row in rows])

    def milliseconds(metric: str) -> list[Column]:
        return [
            column(name, lambda row, name=name: _ms(row[metric][name]))  # type: ignore[misc]
            for name in SHOWN
        ]

    counts = [
        column("requests", lambda row: str(row["requests"])),
        column("failed", lambda row: str(row["requests"] - row["finished"] - row["unfinished"])),
    ]
    if any(row["unfinished"] for row in rows):
        counts.append(column("cut short", lambda row: str(row["unfinished"])))
    return [
        Group("", counts),
        Group("TTFT ms", milliseconds("ttft_s")),
        Group("TPOT ms", milliseconds("tpot_s")),
        Group(
            "",
            [
                column("tok/s", lambda row: number(row["tok_per_s"])),
                column("tau", lambda row: number(row["tau"])),
                column("late", lambda row: str(row["late"])),
            ],
        ),
    ]


def _ms(value: float | None) -> str:
    return number(None if value is None else 1e3 * value)


def _reading(rows: Sequence[Row]) -> str:
    repeats = max((row["repeats"] for row in rows), default=0)
    pooled = f"{repeats} repeats pooled; " if repeats > 1 else ""
    text = (
        f"{pooled}TTFT from when a request was due or sent; TPOT by the tokens the server counts; "
        "failed: all that did not finish."
    )
    if any(row["unfinished"] for row in rows):
        text += " cut short: in flight when it was stopped, not failed."
    late = max((row["latest_s"] for row in rows), default=0.0)
    if any(row["late"] for row in rows):
        text += f" late: sent after they were due, by up to {number(1e3 * late)} ms."
    return text
