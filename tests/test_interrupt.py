"""A run that is interrupted keeps what is complete, and the true beginning of what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.strict_yaml import load_yaml
from sim import experiment
from sim.analysis.report import interruption, run_report
from sim.scenario.load import ScenarioFile, parse_scenario
from sim.tables import Columns, RunTable, Status

TEXT = """\
# How does it end?
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b, replicas: 2}
workload:
  arrivals: {kind: poisson, rate_per_s: 30}
  requests: 200
  streams:
    - prompt_tokens: {kind: lognormal, mean: 300, cv: 0.8}
      output_tokens: {kind: lognormal, mean: 60, cv: 0.8}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {tau: 2.4}}
  - {kind: ngram, k: 4, acceptance: {match_rate: 0.3, alpha: 0.7}}
run: {replications: 2}
"""
NAMES = ("autoregressive", "eagle3 K=3", "ngram K=4")
RUNS = 3 * 5
"""Three strategies, each with two replications and three re-runs for its band."""


def load(*overrides: str) -> ScenarioFile:
    return parse_scenario(load_yaml(TEXT, "x.yaml"), overrides)


class After:
    """Interrupts after so many reports of progress; None: never."""

    def __init__(self, reports: int | None) -> None:
        self.left = reports

    def __call__(self, label: str, done: int, total: int) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt


def stopped(reports: int, *overrides: str) -> experiment.Result:
    with pytest.raises(experiment.Interrupted) as caught:
        experiment.run(load(*overrides), After(reports), keep_steps=True)
    return caught.value.result


@pytest.fixture(scope="module")
def whole() -> experiment.Result:
    return experiment.run(load(), keep_steps=True)


REPORTS = 101
"""Of a run of 200 requests: one before anything is done, and one for every second request."""


@pytest.mark.parametrize(
    ("reports", "rows", "runs"),
    [
        (2, 0, 1),
        (REPORTS - 1, 0, 1),
        (REPORTS + 50, 0, 2),
        (2 * REPORTS + 50, 0, 2),
        (5 * REPORTS + 50, 1, 3),
        (7 * REPORTS + 50, 1, 4),
        (14 * REPORTS + 50, 2, 6),
    ],
    ids=[
        "first run",
        "last requests of it",
        "second replication",
        "band of the baseline",
        "second strategy",
        "its band",
        "last band",
    ],
)
def test_what_is_complete_is_kept_unchanged(
    whole: experiment.Result, reports: int, rows: int, runs: int
) -> None:
    result = stopped(reports)
    assert result.document["interrupted"] is True
    assert result.document["rows"] == whole.document["rows"][:rows]
    assert len(result.requests) == len(result.steps) == runs
    for table, full in zip(result.requests[:-1], whole.requests, strict=False):
        assert same(table, full)
    for table, full in zip(result.steps[:-1], whole.steps, strict=False):
        assert same(table, full)


def same(table: RunTable, full: RunTable) -> bool:
    alike = all(np.array_equal(c, full.columns[n], equal_nan=True) for n, c in columns(table))
    return alike and table[:3] == full[:3]


def columns(table: RunTable) -> list[tuple[str, Any]]:
    return [(name, c) for name, c in table.columns.items() if c.dtype.kind != "U"]


@pytest.mark.parametrize("reports", [2, 30, 99, 100])
def test_the_run_in_progress_is_a_true_part_of_the_whole(
    whole: experiment.Result, reports: int
) -> None:
    result = stopped(reports)
    part, full = result.requests[0].columns, whole.requests[0].columns
    done = part["status"] == Status.FINISHED
    assert 2 * reports == done.sum()
    assert (part["status"][~done] == Status.UNFINISHED).all()
    for name in part:
        assert (part[name][done] == full[name][done]).all(), name
    assert np.isnan(part["finish_s"][~done]).all()
    check_steps(result.steps[0].columns, whole.steps[0].columns, part, done)


def check_steps(part: Columns, full: Columns, requests: Columns, done: np.ndarray) -> None:
    assert 0 < len(part["start_s"]) <= len(full["start_s"])
    for replica in (0, 1):
        ours, theirs = part["replica"] == replica, full["replica"] == replica
        for name in part:
            column = part[name][ours]
            assert (column == full[name][theirs][: len(column)]).all(), name
    assert part["emitted"].sum() >= requests["output_tokens"][done].sum()


def test_nothing_is_kept_where_nothing_had_finished() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        experiment.run(load(), After(0))
    assert not isinstance(caught.value, experiment.Interrupted)


def test_every_report_but_the_last_is_a_place_to_stop(whole: experiment.Result) -> None:
    seen: list[int] = []
    again = experiment.run(load(), lambda label, done, total: seen.append(done))
    assert again.document == whole.document
    assert len(seen) == RUNS * REPORTS
    assert seen == sorted(seen)
    assert seen[-1] == RUNS * 200


def test_points_of_a_grid_stay_whole() -> None:
    text = ("run.replications=1", "run.band=false", "workload.requests=40")
    grid = parse_scenario(load_yaml(TEXT + "vary: {model.tp: [1, 2]}\n", "x.yaml"), text)
    with pytest.raises(experiment.Interrupted) as caught:
        experiment.run(grid, After(4 * 41 + 20))
    document = caught.value.result.document
    assert [(row["point"], row["strategy"]) for row in document["rows"]] == [
        *(({"model.tp": 1}, name) for name in NAMES),
        ({"model.tp": 2}, NAMES[0]),
    ]
    assert interruption(document) == "interrupted: 4 of 6 rows are complete"


@pytest.mark.parametrize("rows", [0, 2])
def test_the_report_says_so(rows: int) -> None:
    document = stopped(2 if not rows else 14 * REPORTS).document
    text = run_report(document, 100)
    assert f"interrupted: {rows} of 3 strategies are complete." in text
    assert ("eagle3 K=3: " in text) == bool(rows)
    assert "ngram" not in text
