"""A recorded run is compared with its prediction by the same code, request for request."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from live_recordings import EAGLE, PLAIN, SCENARIO, by_hand, observation, simulated

from calibration.live import compare as comparing
from calibration.live import recording
from calibration.live.compare import compare
from calibration.live.compare_report import compare_report
from calibration.live.comparison import METRICS, OVERALL
from calibration.live.predict import Ends, Prediction
from calibration.live.recording import Stage
from calibration.live.served import matches
from models.strategies import strategy_types
from models.strict_yaml import InputError
from sim import verbs
from sim.analysis import live_plots, plots
from sim.scenario.load import load_scenario
from sim.tables import Status


@pytest.fixture
def scenario(tmp_path):
    """A scenario file of plain decoding and EAGLE-3."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO, "utf-8")
    return path


@pytest.fixture
def declared(monkeypatch):
    """The verb as the installed package declares it."""
    verb = EntryPoint("compare", "calibration.live.compare_cli:compare", verbs.GROUP)
    monkeypatch.setattr(
        verbs, "entry_points", lambda group, name=None: [verb] if name in (None, "compare") else []
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A closed loop of plain decoding, recorded from the simulator itself, and its scenario."""
    return simulated(tmp_path_factory.mktemp("plain"), "concurrency", (1, 6), PLAIN)


def predicts(monkeypatch, *predictions):
    """Let these be what is predicted of the stages, in order."""
    left = iter(predictions)
    monkeypatch.setattr(comparing, "predict", lambda *_: next(left))


def predicted(table, kv_use=None, bands=None, saturated=False):
    return Prediction(table, kv_use, bands or {}, saturated)


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

    def predict(file, strategy, stage, run, band, on_progress):
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


@pytest.mark.parametrize(
    ("block", "same"),
    [
        ({"kind": "eagle3", "k": 3}, True),
        ({"kind": "eagle3", "k": 3, "label": "mine", "hypothetical": True}, True),
        ({"kind": "eagle3", "k": 4}, False),
        ({"kind": "eagle", "k": 3}, False),
        ({"kind": "eagle3", "k": 3, "unheard_of": 1}, False),
    ],
)
def test_a_block_is_compared_without_acceptance_and_defaults(block, same):
    eagle = strategy_types()["eagle3"]
    strategy = eagle.model_validate({"kind": "eagle3", "k": 3, "acceptance": {"alpha": 0.6}})
    assert matches(strategy, block) is same


def strategy_of(scenario, block, label="served", asked=None, overrides=()):
    stages = [Stage({"concurrency": 1}, 0, label)]
    seen = observation(stages, [by_hand(4)], {label: block})
    return compare(seen, load_scenario(scenario, overrides), asked).strategy


def test_the_strategy_is_told_by_block_then_label_then_by_the_user(monkeypatch, scenario):
    monkeypatch.setattr(comparing, "predict", lambda *_: predicted(by_hand(4)))
    assert strategy_of(scenario, {"kind": "eagle3", "k": 3}) == "eagle3 K=3"
    assert strategy_of(scenario, {"kind": "autoregressive"}) == "autoregressive"
    assert strategy_of(scenario, {"kind": "eagle3", "k": 5}, "eagle3 K=3") == "eagle3 K=3"
    assert strategy_of(scenario, {"kind": "medusa"}, asked="eagle3 K=3") == "eagle3 K=3"
    with pytest.raises(InputError) as error:
        strategy_of(scenario, {"kind": "eagle3", "k": 5})
    assert str(error.value) == (
        f"{scenario}:10: strategies: none of its strategies is what the server ran, 'served'; "
        "choose one of 'autoregressive', 'eagle3 K=3' with --strategy"
    )
    with pytest.raises(InputError, match="--strategy: must be one of 'autoregressive', "):
        strategy_of(scenario, {"kind": "eagle3", "k": 3}, asked="eagle")


def test_two_alike_are_told_apart_by_label(monkeypatch, scenario):
    monkeypatch.setattr(comparing, "predict", lambda *_: predicted(by_hand(4)))
    two = "[{kind: eagle3, k: 3, label: a}, {kind: eagle3, k: 3, label: b}]"
    block, sets = {"kind": "eagle3", "k": 3}, [f"strategies={two}"]
    assert strategy_of(scenario, block, "b", overrides=sets) == "b"
    with pytest.raises(InputError, match="several of its strategies are what the server ran, 'c'"):
        strategy_of(scenario, block, "c", overrides=sets)


def test_a_grid_of_deployments_is_refused_one_of_loads_is_not(recorded, tmp_path):
    runs, _ = recorded
    grid = tmp_path / "grid.yaml"
    grid.write_text(SCENARIO + "vary: {model.tp: [1, 2]}\n", "utf-8")
    with pytest.raises(InputError, match=r"grid\.yaml:14: vary: must vary the workload only"):
        compare(recording.read(runs), load_scenario(grid))
    assert compare(recording.read(runs), load_scenario(grid, ["model.tp=1"])).overall < 1e-9
    grid.write_text(SCENARIO + "vary: {workload.arrivals.users: [3, 5]}\n", "utf-8")
    assert compare(recording.read(runs), load_scenario(grid)).overall < 1e-9


def test_the_command_prints_draws_and_fails_when_it_is_too_far_off(
    declared, speccast, recorded, tmp_path
):
    runs, file = recorded
    figure = tmp_path / "live.svg"
    call = ("compare", runs, file, "--figure", figure, "--fail-over", 1)
    status, out, err = speccast(*call)
    assert (status, err) == (0, f"wrote {figure}\n")
    assert "0.0 % off on average over mean TTFT, TPOT, E2E and tokens a second, 2 points." in out
    assert figure.read_bytes().startswith(b"<?xml")
    faster = ("--set", "model.weights=fp8")
    status, out, err = speccast(*call[:3], "--fail-over", 15, "--json", *faster)
    document = json.loads(out)
    off = 100 * document["mape"]["overall"]
    assert status == 1
    assert err == f"speccast: {off:.1f} % off on average, more than the 15 % of --fail-over\n"
    assert document["rows"][1]["metrics"]["tpot_s_p95"]["relative"] < -0.25
    status, _, err = speccast(*call[:3], "--fail-over", f"{off + 0.1:.2f}", *faster)
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--figure", "{tmp}/live.pdf"), "{tmp}/live.pdf: --figure: must end in .svg or .png"),
        (("--figure", "{tmp}/no.svg/"), "--figure"),
        (("--fail-over", "-1"), "must be a percentage from 0, got -1"),
        (("--fail-over", "nan"), "must be a percentage from 0, got nan"),
        (("--strategy", "eagle"), "--strategy: must be one of 'autoregressive', 'eagle3 K=3'"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    declared, speccast, recorded, tmp_path, options, message
):
    (tmp_path / "no.svg").mkdir()
    arguments = [option.format(tmp=tmp_path) for option in options]
    status, out, err = speccast("compare", *recorded, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message.format(tmp=tmp_path) in err


def test_the_figure_does_not_replace_what_is_read(declared, speccast, recorded, tmp_path):
    runs, _ = recorded
    file = tmp_path / "scenario.svg"
    file.write_text(SCENARIO, "utf-8")
    status, _, err = speccast("compare", runs, file, "--figure", file)
    assert (status, "would replace the input file" in err) == (2, True)
    assert file.read_text("utf-8") == SCENARIO


def ladder(monkeypatch, scenario):
    """A document of three points with repeats, a band and some requests lost."""
    lost = by_hand(8, 0.3)
    lost["status"][:2] = Status.FAILED
    tables = [by_hand(8), by_hand(8, 0.2), lost, by_hand(8, 0.12)]
    points = [(1, 0), (8, 0), (32, 0), (1, 1)]
    stages = [Stage({"concurrency": n}, r, "autoregressive", late=n == 32) for n, r in points]
    ends = {"ttft_s": Ends(0.7, 1.2, 0.9, "assumed")}
    one = predicted(by_hand(8, 0.15), bands=ends)
    predicts(monkeypatch, one, one, one, one._replace(saturated=True))
    return compare(observation(stages, tables), load_scenario(scenario)).document()


@pytest.mark.parametrize("width", [40, 60, 100, 220])
def test_the_report_fits_its_width_and_says_what_is_lacking(monkeypatch, scenario, width):
    document = ladder(monkeypatch, scenario) | {"scenario": "live.yaml"}
    text = compare_report(document, width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for part in (
        "llama-3.1-8b, vllm 0.32.0, one H100, 2026-11-30, closed loop, autoregressive.",
        "Requests without an answer: 2 failed; measured latencies leave them out.",
        "1 request was sent late",
        "Predicted to be saturated: 32 users",
        "within the 90 % band, assumed",
        "Percentiles rest on few requests: 6 at one point.",
        "A single repeat of the measurement is",
    ):
        assert part in flat
    assert "tau" not in text


def test_the_picture_shows_what_was_measured_and_predicted(monkeypatch, scenario):
    figure = live_plots.compared(ladder(monkeypatch, scenario))
    ttft = figure.axes[0]
    line, marks = ttft.lines[:2]
    assert line.get_xydata() == pytest.approx(np.array([[1, 150], [8, 150], [32, 150]]))
    assert marks.get_ydata() == pytest.approx([110, 200, 300])
    (ranges,) = (one for one in ttft.collections if hasattr(one, "get_segments"))
    drawn = [segment[:, 1].tolist() for segment in ranges.get_segments() if len(segment)]
    assert drawn == [pytest.approx([100, 120])]
    assert ttft.get_xscale() == "log"
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["mean TTFT", "mean TPOT", "throughput"]
    assert plots.save(figure, "svg") == plots.save(figure, "svg")


def test_loads_set_in_several_ways_are_told_apart(monkeypatch, scenario):
    points = [{"concurrency": 1}, {"rate_per_s": 2.5}, {"rate_per_s": 1.0}]
    stages = [Stage(point, 0, "autoregressive") for point in points]
    predicts(monkeypatch, *(predicted(by_hand(8)) for _ in points))
    seen = observation(stages, [by_hand(8)] * 3)
    document = compare(seen, load_scenario(scenario)).document()
    text = compare_report(document, 100)
    assert "     load  requests" in text
    assert "2.5 req/s         8" in text
    figure = live_plots.compared(document)
    assert figure.axes[0].get_xlabel() == "requests a second"
    assert figure.axes[0].lines[0].get_xdata().tolist() == [1.0, 2.5]
    assert any(
        "Not drawn: 1 whose load was set otherwise." in one.get_text() for one in figure.texts
    )
    alone = live_plots.compared(document | {"rows": document["rows"][:1]})
    assert plots.save(alone, "svg")
