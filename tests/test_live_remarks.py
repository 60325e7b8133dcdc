"""Stages that are no measure of their load are left out, and cached prompts are said."""

from __future__ import annotations

import pytest
from live_recordings import PLAIN, SCENARIO, by_hand, observation, predicted, predicts

from calibration.live import remarks
from calibration.live.compare.output import failure
from calibration.live.compare.report import compare_report
from calibration.live.compare.stages import compare
from calibration.live.recording import Observation, Stage
from calibration.live.replay import replayed, usable
from models.strict_yaml import InputError
from sim.scenario.load import load_scenario
from sim.tables import RunTable, Status


def seen(*stages: tuple[int, int, int]) -> Observation:
    """Stages of so many users, requests and failures."""
    tables = []
    for _, requests, failed in stages:
        tables.append(by_hand(requests))
        tables[-1]["status"][:failed] = Status.FAILED
    points = [Stage({"concurrency": users}, 0, "autoregressive") for users, *_ in stages]
    return observation(points, tables, PLAIN)


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO, "utf-8")
    return load_scenario(path)


@pytest.mark.parametrize(
    ("requests", "failed", "good"), [(20, 1, True), (20, 2, False), (24, 20, False), (8, 8, False)]
)
def test_one_request_in_twenty_may_fail(requests, failed, good):
    found = seen((8, requests, failed))
    assert usable(found.stages[0], found.runs[0]) is good
    assert bool(remarks.left_out(found.stages, found.runs)) is not good


def test_a_stage_of_few_answers_is_left_out_and_named(monkeypatch, scenario):
    predicts(monkeypatch, predicted(by_hand(24)))
    found = compare(seen((1, 24, 0), (8, 24, 20)), scenario)
    assert [row.point for row in found.rows] == [{"concurrency": 1}]
    text = " ".join(compare_report(found.document(), 100).split())
    assert (
        "More than 5 % of the requests have no answer, so left out: concurrency=8 repeat 0 "
        "(4 of 24 answered)." in text
    )
    assert found.unanswered == []
    said = "concurrency=8 repeat 0 (4 of 24 answered) is not compared, so --fail-over fails"
    assert failure(found, 50.0) == said


def test_a_stage_without_an_answer_fails_a_check(monkeypatch, scenario):
    predicts(monkeypatch, predicted(by_hand(24)))
    found = compare(seen((1, 24, 0), (8, 24, 24)), scenario)
    assert found.overall == 0
    assert "concurrency=8 repeat 0 (0 of 24" in (failure(found, 50.0) or "")


def test_nothing_is_compared_where_all_stages_lost_too_much(scenario):
    with pytest.raises(InputError, match="too few requests were answered: nothing to compare"):
        compare(seen((8, 24, 20)), scenario)


def test_users_beyond_the_requests_never_were(tmp_path, scenario):
    found = seen((20, 20, 1))
    made = replayed(scenario.points[0].scenario, found.stages[0], found.runs[0], tmp_path)
    assert made.workload.arrivals.users == made.workload.requests == 19


@pytest.mark.parametrize(
    ("counters", "tokens", "share"),
    [
        ({"prefix_queries": 1000.0, "prefix_hits": 250.0}, 0, 0.25),
        ({"prompt_tokens": 1000.0, "prefix_hits": 100.0}, 0, 0.1),
        ({}, 50, 0.5),
        ({"prefix_queries": 1000.0, "prefix_hits": 20.0}, 50, 0.02),
        ({}, 0, 0.0),
    ],
)
def test_what_a_prefix_cache_answered_is_said(monkeypatch, scenario, counters, tokens, share):
    table = by_hand(4)
    table["cached_tokens"][:] = tokens
    stage = Stage({"concurrency": 1}, 0, "autoregressive", counters=counters)
    run = RunTable(stage.point, "autoregressive", 0, table)
    assert remarks.cached_share(stage, run) == pytest.approx(share)
    predicts(monkeypatch, predicted(table))
    found = compare(observation([stage], [table]), scenario)
    said = f"A prefix cache answered part of the prompt tokens: concurrency=1 ({100 * share:.0f} %)"
    text = " ".join(compare_report(found.document(), 100).split())
    assert (said in text) is (share > remarks.MOST_CACHED)
