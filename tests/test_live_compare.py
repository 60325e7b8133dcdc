"""A recorded run is compared with its prediction by the same code, request for request."""

from __future__ import annotations

import numpy as np
import pytest
from live_recordings import (
    EAGLE,
    PLAIN,
    SCENARIO,
    by_hand,
    observation,
    predicted,
    predicts,
    simulated,
)

from calibration.live import recording
from calibration.live.compare import stages as comparing
from calibration.live.compare.comparison import METRICS, OVERALL
from calibration.live.compare.predict import Ends
from calibration.live.compare.report import compare_report
from calibration.live.compare.stages import compare
from calibration.live.recording import Stage
from models.strict_yaml import InputError
from sim.scenario.load import load_scenario
from sim.tables import Status


@pytest.fixture
def scenario(tmp_path):
    """A scenario file of plain decoding and EAGLE-3."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO, "utf-8")
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A closed loop of plain decoding, recorded from the simulator itself, and its scenario."""
    return simulated(tmp_path_factory.mktemp("plain"), "concurrency", (1, 6), PLAIN)


@pytest.mark.parametrize(
    ("key", "loads", "strategies"),
    [("concurrency", (1, 6), EAGLE), ("rate_per_s", (2.0, 400.0), PLAIN)],
)
def test_a_recording_of_the_simulator_is_predicted_exactly(tmp_path, key, loads, strategies):
    runs, file = simulated(tmp_path, key, loads, strategies)
    found = compare(recording.read(runs), load_scenario(file))
    assert found.strategy == next(iter(strategies))
    assert [row.point for row in found.rows] == [{key: load} for load in loads]
    assert [row.repeats for row in found.rows] == [2, 2]
    assert found.overall == pytest.approx(0.0, abs=1e-9)
    for name in METRICS:
        slack = 0.05 if name == "kv_use" else 1e-9
        assert found.mape(name) == pytest.approx(0.0, abs=slack), name
    assert found.spread > 0


def test_another_server_is_not_predicted_exactly(recorded):
    runs, file = recorded
    found = compare(recording.read(runs), load_scenario(file, ["model.weights=fp8"]))
    assert all(row.scores["tpot_s_mean"].relative < -0.25 for row in found.rows)
    assert all(row.scores["tok_per_s"].relative > 0.35 for row in found.rows)


def test_errors_are_relative_to_what_was_measured(monkeypatch, scenario):
    predicts(monkeypatch, predicted(by_hand(8, 0.12, 0.008)))
    seen = observation([Stage({"concurrency": 1}, 0, "autoregressive")], [by_hand(8)])
    found = compare(seen, load_scenario(scenario))
    errors = {name: found.rows[0].scores[name].relative for name in OVERALL}
    e2e, tokens = 0.2 / 0.2 - 1, 0.2 / 0.2 - 1
    assert errors == pytest.approx(
        {"ttft_s_mean": 0.2, "tpot_s_mean": -0.2, "e2e_s_mean": e2e, "tok_per_s": tokens}
    )
    assert found.overall == pytest.approx(0.4 / 4)
    assert found.mape("ttft_s_p99") == pytest.approx(0.2)
    assert found.mape("tau") is None
    assert found.spread is None


def test_a_stage_counts_from_its_first_request_to_its_last_answer(monkeypatch, scenario):
    table = by_hand(200)
    # All are due within two seconds of forty: what waits longest has waited almost all the time.
    table["arrival_s"] = table["arrival_s"] / 20
    predicts(monkeypatch, predicted(table))
    seen = observation([Stage({"rate_per_s": 100.0}, 0, "autoregressive")], [table])
    (row,) = compare(seen, load_scenario(scenario)).rows
    waited = table["first_token_s"] - table["arrival_s"]
    assert row.scores["ttft_s_mean"].measured == pytest.approx(waited.mean())
    assert row.scores["tok_per_s"].measured == pytest.approx(200 * 11 / 40.0)
    assert row.scores["tok_per_s"].predicted == pytest.approx(200 * 11 / 40.0)


def test_the_overall_error_weighs_points_and_metrics_alike(monkeypatch, scenario):
    predicts(monkeypatch, predicted(by_hand(8, 0.2)), predicted(by_hand(8, 0.1)))
    stages = [Stage({"concurrency": users}, 0, "autoregressive") for users in (1, 2)]
    found = compare(observation(stages, [by_hand(8), by_hand(8)]), load_scenario(scenario))
    # At one user TTFT doubles, so that E2E grows from 0.2 s to 0.3 s and tokens a second shrink.
    assert found.overall == pytest.approx((1.0 + 0.0 + 0.5 + 1 / 3) / 8)
    assert found.mape("ttft_s_mean") == pytest.approx(0.5)


def test_repeats_are_pooled_and_their_range_is_kept(monkeypatch, scenario):
    tables = [by_hand(10, 0.1), by_hand(30, 0.2)]
    predicts(monkeypatch, predicted(tables[0], 0.1), predicted(tables[1], 0.3))
    stages = [Stage({"concurrency": 1}, n, "autoregressive", late=n) for n in (0, 1)]
    (row,) = compare(observation(stages, tables), load_scenario(scenario)).rows
    score = row.scores["ttft_s_mean"]
    assert score.measured == pytest.approx(0.175) == score.predicted
    assert (score.least, score.most) == pytest.approx((0.1, 0.2))
    assert row.spread["ttft_s_mean"] == pytest.approx((0.075 / 0.175 + 0.025 / 0.175) / 2)
    rate = row.scores["tok_per_s"]
    assert rate.measured == pytest.approx((11 / 0.2 + 11 / 0.3) / 2)
    assert row.scores["kv_use"].predicted == pytest.approx(0.2)
    assert (row.repeats, row.late, row.requests["finished"]) == (2, 1, 40)


def test_the_band_of_the_first_repeat_is_that_of_all(monkeypatch, scenario):
    ends = {"ttft_s": Ends(0.5, None, 0.9, "assumed"), "tok_per_s": Ends(0.8, 1.1, 0.9, "assumed")}
    predicts(monkeypatch, predicted(by_hand(8, 0.3), bands=ends), predicted(by_hand(8, 0.3)))
    stages = [Stage({"concurrency": 1}, n, "autoregressive") for n in (0, 1)]
    found = compare(observation(stages, [by_hand(8)] * 2), load_scenario(scenario))
    scores = found.rows[0].scores
    assert (scores["ttft_s_mean"].lo, scores["ttft_s_mean"].hi) == (pytest.approx(0.15), None)
    assert scores["ttft_s_mean"].inside is False
    assert scores["tok_per_s"].hi == pytest.approx(1.1 * scores["tok_per_s"].predicted)
    assert scores["ttft_s_p50"].lo is None
    assert found.document()["within_band"] == {"inside": 0, "of": 2}


def test_only_the_first_repeat_simulates_its_band(monkeypatch, scenario):
    asked = []

    def predict(file, strategy, stage, run, band, on_progress, repeat):
        asked.append(band)
        return predicted(run.columns)

    monkeypatch.setattr(comparing, "predict", predict)
    stages = [Stage({"concurrency": 1}, n, "autoregressive") for n in (0, 1)]
    seen = observation(stages, [by_hand(8)] * 2)
    compare(seen, load_scenario(scenario, ["run.band=true"]))
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("stages", "tau", "source"),
    [
        ([{"counters": {"spec_drafts": 100.0, "spec_accepted": 170.0}}], 2.7, "counters"),
        (
            [{"counters": {"spec_drafts": 9.0}, "gauges": {"tau_gauge": {"mean": 2.5}}}],
            2.5,
            "gauge",
        ),
        ([{"counters": {}}], None, None),
        (
            [
                {"counters": {"spec_drafts": 100.0, "spec_accepted": 100.0}},
                {"counters": {"spec_drafts": 300.0, "spec_accepted": 600.0}},
            ],
            2.75,
            "counters",
        ),
    ],
)
def test_tau_comes_from_the_server_where_requests_say_nothing(
    monkeypatch, scenario, stages, tau, source
):
    predicts(monkeypatch, *(predicted(by_hand(4)) for _ in stages))
    told = [Stage({"concurrency": 1}, n, "eagle3 K=3", **one) for n, one in enumerate(stages)]
    seen = observation(told, [by_hand(4) for _ in stages], EAGLE)
    (row,) = compare(seen, load_scenario(scenario)).rows
    assert (row.scores["tau"].measured, row.tau_from) == (tau, source)


def test_tau_of_the_requests_goes_first(monkeypatch, scenario):
    table = by_hand(4) | {"n_steps": np.full(4, 5), "accepted": np.full(4, 6)}
    predicts(monkeypatch, predicted(table))
    counters = {"spec_drafts": 1.0, "spec_accepted": 0.0}
    seen = observation([Stage({"concurrency": 1}, 0, "x", counters=counters)], [table], EAGLE)
    (row,) = compare(seen, load_scenario(scenario)).rows
    assert (row.scores["tau"].measured, row.tau_from) == (pytest.approx(2.2), "requests")


def test_stages_nobody_answered_are_left_out(monkeypatch, scenario):
    dead = by_hand(4) | {"status": np.full(4, Status.REJECTED, dtype=np.int8)}
    stages = [Stage({"concurrency": users}, 0, "autoregressive") for users in (1, 64)]
    predicts(monkeypatch, predicted(by_hand(4)))
    found = compare(observation(stages, [by_hand(4), dead]), load_scenario(scenario))
    assert [row.point for row in found.rows] == [{"concurrency": 1}]
    assert found.document()["unanswered"] == ["concurrency=64"]
    assert "left out: concurrency=64" in compare_report(found.document(), 100)
    with pytest.raises(InputError, match="no request was answered"):
        compare(observation(stages[:1], [dead]), load_scenario(scenario))


def test_an_interruption_keeps_the_points_that_are_complete(recorded):
    runs, file = recorded

    def stop(stage, done, total):
        if stage == "concurrency=6":
            raise KeyboardInterrupt

    with pytest.raises(comparing.Interrupted) as stopped:
        compare(recording.read(runs), load_scenario(file), on_progress=stop)
    assert [row.point for row in stopped.value.comparison.rows] == [{"concurrency": 1}]
    assert stopped.value.comparison.overall == pytest.approx(0.0, abs=1e-9)


def test_progress_runs_over_all_stages_and_never_back(recorded):
    runs, file = recorded
    said = []
    compare(recording.read(runs), load_scenario(file), on_progress=lambda *one: said.append(one))
    done = [one[1] for one in said]
    assert done == sorted(done)
    assert {one[2] for one in said} == {4 * 24}
    assert done[-1] <= 4 * 24
