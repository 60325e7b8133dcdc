"""The page of a validation and its pictures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from fake_publication import everything, figures

from calibration.validation import page, page_tables, report
from calibration.validation.extras import Extras
from calibration.validation.figures import FILES, pictures
from models.strict_yaml import InputError
from sim.analysis import plots, validation_bars, validation_plots
from sim.analysis.palette import BAD

PEERS = pd.DataFrame(
    [
        {
            "name": "Another",
            "rows": 56,
            "e2e_mape": 0.08,
            "ttft_mape": np.nan,
            "itl_mape": 0.081,
            "caveat": "given longer prompts",
            "source": "its page",
        }
    ]
)
SCALARS = pd.DataFrame(
    [
        {
            "name": "request_us",
            "value": 7360.0,
            "unit": "us",
            "se": 120.0,
            "fitted_on": "load stages",
            "n": 3,
            "in_sample": 0.06,
            "held_out": 0.064,
            "source": "a fit",
        }
    ]
)
COVERAGE = pd.DataFrame([{"answer": "Plain serving", "n": 9, "inside": 0.91, "width": 0.2}])
EXTRAS = Extras(peers=PEERS, scalars=SCALARS, coverage=COVERAGE)


def texts(figure) -> set[str]:
    root = ElementTree.fromstring(plots.save(figure, "svg"))
    return {element.text for element in root.iter() if element.tag.endswith("}text")}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    page.Written(folder, folder / "errors.csv").write(everything(), EXTRAS)
    return folder


def test_page_pictures_and_errors_are_written(written):
    found = {path.name for path in written.rglob("*") if path.is_file()}
    assert found == {"validation.md", "errors.csv", *FILES}


def test_every_picture_is_on_the_page_and_every_table_is_square(written):
    text = (written / "validation.md").read_text("utf-8")
    for name in FILES:
        assert f"](images/{name})" in text
    assert "\n\n\n" not in text
    for block in text.split("\n\n"):
        cells = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(cells) <= 1, block


@pytest.mark.parametrize(
    "told",
    [
        "| Plain serving | E2E mean | 3 | 4.7 % | +2.7 % |",
        "| EAGLE | 12.0 % (2) | 12.0 % (2) | 12.0 % (2) |",
        "| `request_us` | 7360 us | 120.0 | load stages | 3 | 6.0 % | 6.4 % | a fit |",
        "| Another | 56 | 8.0 % | - | 8.1 % | given longer prompts | its page |",
        "| Plain serving | 9 | 91 % | ± 10 % |",
        "| E2E of plain serving | MAPE | at most 4.0 % | 4.7 % | 3 | **no** |",
        "| p99 of TTFT |",
        "speccast validate --scenario fake/",
    ],
)
def test_the_page_says(told, written):
    assert told in (written / "validation.md").read_text("utf-8")


def test_the_same_outcomes_give_the_same_bytes(written, tmp_path):
    page.write(everything(), EXTRAS, tmp_path)
    for path in sorted(tmp_path.rglob("*.*")):
        assert path.read_bytes() == (written / path.relative_to(tmp_path)).read_bytes(), path


def test_without_peers_and_scalars_the_page_says_less(tmp_path):
    page.write(everything(), Extras(), tmp_path)
    text = (tmp_path / "validation.md").read_text("utf-8")
    assert "validation_peers.svg" not in text
    assert "Bands made anew" not in text
    assert "None publishes errors" in text


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_simulated(tmp_path):
    (tmp_path / "taken").write_text("", "utf-8")
    for out, store, told in (
        (tmp_path / "taken", None, "needs a folder"),
        ("", None, "needs a folder"),
        (None, tmp_path, "would replace the folder"),
        (None, "", "needs a file"),
    ):
        with pytest.raises(InputError, match=told):
            page.check_out(None if out is None else str(out), store and str(store), None)
    mine = tmp_path / "mine.csv"
    mine.write_text("name", "utf-8")
    with pytest.raises(InputError, match="published runs"):
        page.check_out(str(tmp_path), None, mine)
    with pytest.raises(InputError, match="would replace the input"):
        page.check_out(None, str(mine), mine)


def test_each_picture_asks_one_question():
    asked = [
        next(text.get_text() for text in picture.figure.texts if text.get_text().endswith("?"))
        for picture in pictures(everything(), PEERS)
    ]
    assert len(set(asked)) == len(asked) == len(FILES)


def test_figures_of_one_kind_make_their_pictures_alone():
    speedups = everything()
    speedups = speedups[speedups["metric"] == "speedup"]
    assert [one.name for one in pictures(speedups, PEERS)] == ["speedup", "batch", "bands"]


def test_latencies_are_predicted_over_measured_in_ms():
    frame = figures([0.1, -0.1], "e2e_s.mean", 2.0)
    upper, lower = validation_plots.latencies(frame).axes
    (dots,) = [line for line in upper.lines if line.get_marker() != "None"]
    np.testing.assert_allclose(dots.get_xdata(), [2000, 2000])
    np.testing.assert_allclose(dots.get_ydata(), [2200, 1800])
    (dots,) = [line for line in lower.lines if line.get_marker() != "None"]
    np.testing.assert_allclose(dots.get_ydata(), [10, -10])
    assert upper.get_xlim() == upper.get_ylim() == lower.get_xlim()


def test_a_far_error_is_drawn_at_the_edge():
    frame = figures([0.9, -0.02]).assign(batch=16.0)
    (ax,) = validation_plots.errors_by_batch(frame).axes
    (dots,) = [line for line in ax.lines if line.get_marker() != "None"]
    assert sorted(dots.get_ydata()) == pytest.approx([-2, 30])
    assert ax.get_ylim()[1] > 30


def test_the_side_of_one_is_marked_and_the_line_is_the_prediction():
    frame = pd.concat([figures([0.1], batch=size, measured=2 / size) for size in (1.0, 2.0)])
    (ax,) = validation_plots.speedups(frame.assign(panel="a model")).axes
    level = [line for line in ax.lines if line.get_color() == BAD]
    assert [list(line.get_ydata()) for line in level] == [[1, 1]]
    lines = [line for line in ax.lines if len(line.get_ydata()) == 2 and line not in level]
    np.testing.assert_allclose(lines[0].get_ydata(), [2.2, 1.1])
    np.testing.assert_allclose(lines[1].get_ydata(), [2, 1])


def test_a_measured_figure_has_its_place_in_the_band():
    frame = figures([0.0, 0.0, 0.0]).assign(measured=[0.9, 1.0, 1.4], predicted=1.0, lo=0.8, hi=1.2)
    np.testing.assert_allclose(validation_bars.place_in_band(frame), [-0.5, 0, 2])
    told = texts(validation_bars.coverage(frame.assign(answer="chains")))
    assert {"chains", "67 % of 3", "± 20 %"} <= told


def test_peers_stand_beside_us_with_what_they_publish():
    own = PEERS.assign(name="speccast", rows=53, ttft_mape=0.06)
    told = texts(validation_bars.peers(pd.concat([own, PEERS])))
    assert {"speccast, 53 rows", "Another, 56 rows", " 8.1 %", " not published"} <= told


def test_a_missed_promise_is_printed_with_its_cause():
    text = report.validation_report(everything(), 100)
    assert "missed: E2E of plain serving: MAPE 4.7 % of 3, at most 4.0 %" in text


def test_a_figure_is_told_with_its_unit():
    assert report.value_text("ttft_s.p90", 0.0123) == "12.3 ms"
    assert report.value_text("duration_s", 63.5) == "63.5 s"
    assert report.value_text("speedup", 1.25) == "1.25"


def test_single_streams_are_told_by_method_and_harness():
    frame = pd.DataFrame(
        {
            "scored": True,
            "metric": "step_ratio",
            "family": ["EAGLE tree", "EAGLE tree", "n-gram"],
            "origin": ["single stream, one", "single stream, two", "single stream, two"],
            "measured": [1.2, 1.6, 1.0],
            "predicted": [1.32, 1.2, 1.0],
        }
    )
    found = page_tables.harnesses(frame)
    assert list(found.header) == ["method", "one", "two"]
    assert found.rows == [
        ["EAGLE tree", "1.20 (+10.0 %, 1)", "1.60 (-25.0 %, 1)"],
        ["n-gram", "", "1.00 (+0.0 %, 1)"],
    ]
    assert page_tables.harnesses(frame.assign(metric="speedup")).rows == []
