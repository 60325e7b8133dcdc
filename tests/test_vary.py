"""``vary``: grids, lists of points, values of every kind, and keys that move together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.strict_yaml import load_yaml
from sim import experiment
from sim.analysis import describe
from sim.analysis.report import run_report
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import ScenarioFile, parse_scenario
from sim.scenario.template import json_schema
from sim.scenario.vary import size, values_of

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 8}
  requests: 20
strategies: [{kind: eagle3, k: 3}, {kind: ngram, k: 3}]
run: {band: false}
vary: """

FORMS: list[tuple[str, list[dict[str, Any]]]] = [
    ("{'strategies[0].k, strategies[1].k': [2, 4]}", [{"k": 2}, {"k": 4}]),
    (
        "[{model.tp: 1, run.seed: 5}, {run.seed: 6, model.tp: 2}]",
        [{"tp": 1, "seed": 5}, {"tp": 2, "seed": 6}],
    ),
    (
        "{'strategies[1]': [{kind: medusa}, {kind: ngram, k: 2}]}",
        [{"strategies[1]": "{kind: medusa}"}, {"strategies[1]": "{kind: ngram, k: 2}"}],
    ),
    (
        "{strategies: [[{kind: medusa}], [{kind: autoregressive}, {kind: eagle3, k: 2}]]}",
        [
            {"strategies": "[{kind: medusa}]"},
            {"strategies": "[{kind: autoregressive}, {kind: eagle3, k: 2}]"},
        ],
    ),
    (
        "[{workload.arrivals: {kind: closed_loop, users: 2}}, {workload.arrivals: {kind: poisson, "
        "rate_per_s: 2}}]",
        [
            {"arrivals": "{kind: closed_loop, users: 2}"},
            {"arrivals": "{kind: poisson, rate_per_s: 2}"},
        ],
    ),
]


def parse(vary: str, *overrides: str) -> ScenarioFile:
    return parse_scenario(load_yaml(f"{TEXT}{vary}\n", "what-if.yaml"), overrides)


@pytest.mark.parametrize(("vary", "labels"), FORMS, ids=lambda v: v if isinstance(v, str) else "")
def test_every_form_says_what_each_point_sets(vary: str, labels: list[dict[str, Any]]) -> None:
    told = [" ".join(f"{key}={value}" for key, value in label.items()) for label in labels]
    file = parse(vary)
    assert [describe.point(point.values) for point in file.points] == told
    assert size(file.resolved.vary) == len(told)


@pytest.mark.parametrize("vary", [vary for vary, _ in FORMS])
def test_written_out_every_form_loads_to_the_same_points(vary: str) -> None:
    """The baseline put in front moves the keys of strategies, and only them."""
    file = parse(vary)
    again = parse_scenario(load_yaml(resolved_yaml(file.resolved), "again.yaml"))
    assert [point.scenario for point in again.points] == [p.scenario for p in file.points]
    assert resolved_yaml(again.resolved) == resolved_yaml(file.resolved)


@pytest.mark.parametrize("vary", [vary for vary, _ in FORMS])
def test_every_form_runs_and_resumes_by_whole_points(vary: str) -> None:
    file = parse(vary)
    whole = experiment.run(file).document
    rows = whole["rows"]
    assert [row["point"] for row in rows] == [
        point.values for point in file.points for _ in point.scenario.strategies
    ]
    first = len(file.points[0].scenario.strategies)
    assert experiment.run(file, rows=rows[:first]).document == whole
    assert "choose" in run_report(whole, 100)


def test_keys_that_move_together_take_the_same_value() -> None:
    points = parse("{'strategies[0].k, strategies[1].k': [2, 4], model.tp: [1, 2]}").points
    depths = [[s.depth for s in point.scenario.strategies[1:]] for point in points]
    assert depths == [[2, 2], [2, 2], [4, 4], [4, 4]]
    assert [point.scenario.model.tp for point in points] == [1, 2, 1, 2]


def test_a_key_that_is_set_leaves_those_it_moved_with() -> None:
    file = parse("{'strategies[0].k, strategies[1].k': [2, 4]}", "strategies.0.k=7")
    depths = [[s.depth for s in point.scenario.strategies[1:]] for point in file.points]
    assert depths == [[7, 2], [7, 4]]
    assert [point.values for point in file.points] == [{"strategies[1].k": k} for k in (2, 4)]


def test_points_that_a_set_key_makes_the_same_come_once() -> None:
    listed = "[{model.tp: 1, run.seed: 5}, {model.tp: 2, run.seed: 5}, {model.tp: 2, run.seed: 6}]"
    file = parse(listed, "model.tp=4")
    assert [point.values for point in file.points] == [{"run.seed": 5}, {"run.seed": 6}]
    (point,) = parse(listed, "model.tp=4", "run.seed=9").points
    assert (point.values, point.scenario.run.seed) == ({}, 9)


def test_a_file_that_varies_is_the_same_file_when_the_scenario_is_written_elsewhere(
    tmp_path: Path,
) -> None:
    """A relative name would mean another file there."""
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,100,20\n"
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(rows, "utf-8")
    vary = "{workload.arrivals: [{kind: trace, file: one.csv}, {kind: trace, file: two.csv}]}"
    text = TEXT.replace("  requests: 20\n", "") + vary + "\n"
    file = parse_scenario(load_yaml(text, str(tmp_path / "what-if.yaml")))
    assert isinstance(file.resolved.vary, dict)
    named = [value["file"] for value in file.resolved.vary["workload.arrivals"]]
    assert named == [str(tmp_path / name) for name in ("one.csv", "two.csv")]
    assert file.points[0].values["workload.arrivals"]["file"] == "one.csv"


def test_the_values_of_a_key_are_found_however_it_varies() -> None:
    assert values_of({"a.b, c": [1, 2], "d": [3]}, "c") == [1, 2]
    assert values_of([{"a.b, c": 1, "d": 3}, {"a.b, c": 2, "d": 3}], "a.b") == [1, 2]
    assert values_of({"a": [1]}, "b") == []


def test_the_schema_for_editors_knows_both_forms() -> None:
    forms = json_schema()["properties"]["vary"]["oneOf"]
    assert {form["type"] for form in forms} == {"object", "array"}
