"""Who takes the tables of a run gets them in order, in parts of a fixed size, and once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import requests

from models.strict_yaml import load_yaml
from sim import experiment
from sim.collect import Collector, KeptTables
from sim.engine import step_rows
from sim.engine.step_rows import StepRow, StepRows
from sim.scenario.load import ScenarioFile, parse_scenario
from sim.tables import STEPS, RunTable

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 20}
  requests: 30
  streams: [{prompt_tokens: {kind: fixed, value: 99}, output_tokens: {kind: fixed, value: 20}}]
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {tau: 2.4}}
run: {replications: 2}
"""
RUN = RunTable({"model.tp": 1}, "eagle3 K=3", 0, {}, ("chat",), ("prose",))


class Listed:
    """Notes which table of which run it is given, and how many rows."""

    def __init__(self, takes_steps: bool = True) -> None:
        self.takes_steps = takes_steps
        self.got: list[tuple[str, str, int, int]] = []

    def _note(self, table: str, run: RunTable) -> None:
        rows = len(next(iter(run.columns.values())))
        self.got.append((table, run.strategy, run.replication, rows))

    def add_steps(self, run: RunTable) -> None:
        self._note("steps", run)

    def add_timeline(self, run: RunTable) -> None:
        self._note("timeline", run)

    def add_requests(self, run: RunTable) -> None:
        self._note("requests", run)


def file() -> ScenarioFile:
    return parse_scenario(load_yaml(TEXT, "x.yaml"), [])


def row(number: int) -> StepRow:
    return (0, float(number), 1.0, 0.0, 1.0, 0.0, 1, 0, 1, 1, 9, 0)


@pytest.mark.parametrize(
    ("count", "parts"), [(0, []), (2, [2]), (3, [3]), (4, [3, 1]), (9, [3, 3, 3])]
)
def test_step_rows_leave_in_full_parts(
    monkeypatch: pytest.MonkeyPatch, count: int, parts: list[int]
) -> None:
    monkeypatch.setattr(step_rows, "CHUNK_STEPS", 3)
    got: list[list[StepRow]] = []
    rows = StepRows(got.append)
    for number in range(count):
        rows.append(row(number))
    rows.flush()
    rows.flush()
    assert [len(part) for part in got] == parts
    assert [r[1] for part in got for r in part] == list(range(count))


def test_steps_of_a_run_come_before_its_requests_and_runs_come_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Re-runs for the bands are nobody's business."""
    monkeypatch.setattr(step_rows, "CHUNK_STEPS", 50)
    taker = Listed()
    result = experiment.run(file(), tables=[taker])
    assert (result.requests, result.steps) == ([], [])
    runs = [(name, number) for name in ("autoregressive", "eagle3 K=3") for number in (0, 1)]
    assert list(dict.fromkeys(got[1:3] for got in taker.got)) == runs
    for run in runs:
        tables = [got[0] for got in taker.got if got[1:3] == run]
        assert tables.count("requests") == 1
        assert tables.index("requests") == len(tables) - 1
        assert tables.count("steps") > 1
    assert all(rows <= 50 for table, _, _, rows in taker.got if table == "steps")


def test_no_step_rows_are_made_where_nobody_takes_them() -> None:
    taker = Listed(takes_steps=False)
    assert Collector([taker]).steps_of(RUN) is None
    experiment.run(file(), tables=[taker])
    assert [got[0] for got in taker.got if got[0] != "timeline"] == 4 * ["requests"]


def test_parts_are_kept_as_one_table_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = experiment.run(file(), keep_steps=True).steps
    monkeypatch.setattr(step_rows, "CHUNK_STEPS", 7)
    parts = experiment.run(file(), keep_steps=True).steps
    assert len(whole) == len(parts) == 4
    for one, two in zip(whole, parts, strict=True):
        assert one[:3] == two[:3]
        for name, column in one.columns.items():
            assert (column == two.columns[name]).all(), name


def test_a_run_without_steps_keeps_an_empty_table() -> None:
    kept = KeptTables(takes_steps=True)
    Collector([kept]).end(RUN, requests(2))
    (steps,) = kept.steps
    assert set(steps.columns) == set(STEPS.names) - {"strategy", "point", "replication"}
    assert not any(len(column) for column in steps.columns.values())


def test_time_bins_are_handed_over_where_there_are_any() -> None:
    kept = KeptTables(takes_steps=False)
    bins: dict[str, Any] = {"start_s": np.zeros(3)}
    collector = Collector([kept])
    collector.end(RUN, requests(2), bins)
    collector.end(RUN, requests(3))
    assert [run.columns for run in kept.timelines] == [bins]
    assert collector.finished == 5
