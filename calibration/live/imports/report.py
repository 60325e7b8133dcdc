"""The printed table of an import: what each stage measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from calibration.live.imports.command import Imported
from calibration.live.recording import Stage
from sim.analysis import metrics
from sim.analysis.layout import Column, Group, Line, paragraph, render, table
from sim.analysis.metrics import Summary, Window
from sim.analysis.verdict import number
from sim.tables import RunTable

TITLES = {"concurrency": "users", "rate_per_s": "req/s", "rate_scale": "x trace"}


def import_report(imported: Imported, width: int, colour: bool = False) -> str:
    """Text of an import: a line a stage, then what was left out.

    Parameters
    ----------
    imported : Imported
    width : int
        Characters a line may have; wide tables are split, numbers are never cut.
    colour : bool
        Add the escape codes of a terminal.
    """
    return render(_lines(imported, width), colour)


def _lines(imported: Imported, width: int) -> Iterator[Line]:
    about, stages, runs = imported.about, imported.stages, imported.runs
    label = next(iter(about["strategies"]))
    head = f"{about['target']}, {label}: {len(stages)} stages of {about['options']['tool']}"
    yield from paragraph(head, width, "title")
    yield Line("")
    yield from table(_keys(stages), _groups(stages, runs), width, [False] * len(stages))
    for note in imported.notes:
        yield from paragraph(note, width, "note")


def _keys(stages: Sequence[Stage]) -> list[Column]:
    key = next(iter(stages[0].point))
    points = [f"{stage.point[key]:g}" for stage in stages]
    repeats = [str(stage.replication) for stage in stages]
    return [Column(TITLES.get(key, key), points), Column("repeat", repeats)]


def _groups(stages: Sequence[Stage], runs: Sequence[RunTable]) -> list[Group]:
    both = list(zip(stages, runs, strict=True))

    def column(title: str, cell: Callable[[Stage, RunTable], Any]) -> Column:
        return Column(title, [cell(stage, run) for stage, run in both])

    def latency(title: str, of: Callable[[Any], Any]) -> Group:
        found = [metrics.summary(of(run.columns)) for run in runs]
        return Group(title, [_milliseconds(name, found) for name in ("mean", "p50", "p95")])

    requests = [
        column("requests", lambda _, run: str(len(run.columns["id"]))),
        column("failed", lambda _, run: str(int(np.sum(~metrics.finished(run.columns))))),
        column("late", lambda stage, _: str(stage.late)),
    ]
    rates = [
        column("tok/s", lambda stage, run: number(metrics.tok_per_s(run.columns, _window(stage)))),
        column("tau", lambda stage, run: number(tau(stage, run))),
    ]
    return [
        Group("", requests),
        latency("TTFT ms", metrics.ttft_s),
        latency("TPOT ms", metrics.tpot_s),
        Group("", rates),
    ]


def _milliseconds(name: str, found: Sequence[Summary]) -> Column:
    values = [getattr(one, name) for one in found]
    return Column(name, [number(None if value is None else 1000 * value) for value in values])


def _window(stage: Stage) -> Window:
    return Window(0.0, stage.duration_s)


def tau(stage: Stage, run: RunTable) -> float | None:
    """Mean tokens a step emits: by the requests' own steps, else by the server's counters.

    Counters of drafts know nothing of steps that drafted nothing.
    """
    of_requests = metrics.tau(run.columns)
    drafts = stage.counters.get("spec_drafts", 0)
    if of_requests is not None or not drafts:
        return of_requests
    return 1 + stage.counters.get("spec_accepted", 0) / drafts
