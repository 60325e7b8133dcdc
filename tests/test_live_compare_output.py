"""What ``compare`` prints, draws, and refuses."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from live_recordings import (
    PLAIN,
    SCENARIO,
    by_hand,
    observation,
    predicted,
    predicts,
    simulated,
)

from calibration.live.compare.predict import Ends
from calibration.live.compare.report import compare_report
from calibration.live.compare.stages import compare
from calibration.live.recording import Stage
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
    verb = EntryPoint("compare", "calibration.live.compare.cli:compare", verbs.GROUP)
    monkeypatch.setattr(
        verbs, "entry_points", lambda group, name=None: [verb] if name in (None, "compare") else []
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A closed loop of plain decoding, recorded from the simulator itself, and its scenario."""
    return simulated(tmp_path_factory.mktemp("plain"), "concurrency", (1, 6), PLAIN)


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
    lost = by_hand(50, 0.3)
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
        "Percentiles rest on few requests: 8 at one point.",
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
