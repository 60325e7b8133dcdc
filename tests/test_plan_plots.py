"""Pictures of a capacity plan, and its page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from plan_document import PEAK, document
from plan_variants import VARIANTS, bare, missed, nothing_runs, without_prices

from sim.analysis import plan_html, plan_plots, plan_words
from sim.analysis.palette import BAD, INK, SHADES
from sim.analysis.plan_day_plot import checked_day
from sim.analysis.plan_front_plot import front, pareto

HOSTILE = '<img src=x onerror="alert(1)">'
WRITTEN = {
    "document": {"gpus", "pareto", "tornado", "day"},
    "missed": {"gpus", "pareto", "tornado", "day"},
    "bare": {"gpus"},
    "nothing_at_all": set(),
    "nothing_runs": {"gpus", "pareto"},
}
"""Variants written as files, and their pictures."""


def texts(figure: Any) -> list[str]:
    """Everything written on a picture outside its axes' ticks."""
    inside = [text.get_text() for ax in figure.axes for text in ax.texts]
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return [*inside, *legends, *(text.get_text() for text in figure.texts)]


def bars_of(ax: Any) -> list[Any]:
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def upright(ax: Any, colour: str) -> list[float]:
    """Where vertical lines of a colour stand."""
    lines = [line for line in ax.lines if line.get_color() == colour]
    pairs = [np.unique(line.get_xdata()) for line in lines]
    return [float(pair[0]) for pair in pairs if len(pair) == 1]


def test_every_plan_has_a_bar_and_the_whisker_of_its_band():
    (ax,) = plan_plots.gpus_by_plan(document()).axes
    bars = [bar.get_width() for bar in bars_of(ax)]
    assert bars == [plan["gpus"] for plan in document()["plans"]]
    lines = [line for line in ax.lines if line.get_color() == INK and line.get_linestyle() == "-"]
    bands = [plan["gpus_band"] for plan in document()["plans"][:-1]]
    whiskers = [tuple(line.get_xdata()) for line in lines if len(line.get_xdata()) == 2]
    assert whiskers[:-1] == [(band["lo"], band["hi"]) for band in bands]
    arrows = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == ">"]
    assert len(arrows) == 1
    assert arrows[0] > 20
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[0] == "eagle3 K=3, h100_sxm"
    assert [text.get_weight() == "bold" for text in ax.get_yticklabels()] == [True, *[False] * 7]


def test_hypothetical_plans_are_hatched_and_explained():
    figure = plan_plots.gpus_by_plan(document())
    bars = bars_of(figure.axes[0])
    assert [bool(patch.get_hatch()) for patch in bars] == [*[False] * 7, True]
    assert "hypothetical: this engine cannot run it" in texts(figure)
    assert "90 % band" in texts(figure)
    runs = document()
    runs["plans"] = runs["plans"][:3]
    assert "hypothetical" not in " ".join(texts(plan_plots.gpus_by_plan(runs)))


def test_the_tornado_has_its_ends_and_the_gpus_bought():
    figure = plan_plots.tornado(document())
    (ax,) = figure.axes
    bars = bars_of(ax)
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    np.testing.assert_allclose(spans, [(6.7, 10.6), (6.6, 9.6), (7.3, 9.3), (7.9, 8.4)])
    assert upright(ax, BAD) == [8.0]
    written = [text.get_text() for text in ax.texts]
    assert written[:4] == ["113 %", "86 %", "84 %", "117 %"]
    assert "8 GPUs bought" in texts(figure)
    fewer = document()
    fewer["plans"][0]["gpus"] = 6
    assert upright(plan_plots.tornado(fewer).axes[0], BAD) == [6.0]


def look_of(made: dict[str, Any]) -> Any:
    return pareto(made, plan_plots.appearance(made))


def test_cost_stands_against_both_latencies_with_the_slo_and_the_front():
    made = document()
    figure = look_of(made)
    ttft, tpot = figure.axes
    assert ttft.get_xlabel() == tpot.get_xlabel() == "USD a day"
    for ax, key, bound in ((ttft, "ttft_s_p95", 500), (tpot, "tpot_s_p95", 25)):
        marks = {(line.get_xdata()[0], line.get_ydata()[0]) for line in single(ax)}
        expected = {(plan["usd_per_day"], 1e3 * plan["worst"][key]) for plan in made["plans"]}
        assert marks == expected
        assert list(ax.get_lines()[-1].get_ydata()) == [bound, bound]
    steps = [line for line in tpot.lines if line.get_drawstyle() == "steps-post"]
    chosen, better = made["plans"][0], made["plans"][2]
    assert list(steps[0].get_xdata()) == [chosen["usd_per_day"], better["usd_per_day"]]
    assert "h200_sxm +53 %" in texts(figure)
    better["hypothetical"] = True
    alone = look_of(made).axes[1]
    assert not [line for line in alone.lines if line.get_drawstyle() == "steps-post"]


def single(ax: Any) -> list[Any]:
    return [line for line in ax.lines if len(line.get_xdata()) == 1]


def test_plans_on_the_front_are_filled_and_headroom_makes_marks_larger():
    made = document()
    marks = {line.get_xdata()[0]: line for line in single(look_of(made).axes[1])[:1]}
    assert len(marks) == 1
    drawn = [line for line in single(look_of(made).axes[1]) if line.get_markerfacecolor() != "none"]
    paper = SHADES["paper"].light
    assert [line.get_markerfacecolor() != paper for line in drawn] == [
        plan["pareto"] for plan in made["plans"]
    ]
    assert drawn[2].get_markersize() > drawn[0].get_markersize() > drawn[7].get_markersize()


def test_without_prices_gpus_take_their_place():
    assert {ax.get_xlabel() for ax in look_of(without_prices()).axes} == {"GPUs"}
    assert look_of(bare()) is None


def test_the_front_keeps_what_no_other_matches_in_both():
    assert front([(2, 5), (1, 9), (3, 5), (4, 4), (1, 8)]) == [(1, 8), (2, 5), (4, 4)]
    assert front([]) == []


def test_the_day_shows_load_latencies_bounds_and_the_kill():
    made = document()
    figure = checked_day(made)
    load, ttft, tpot = figure.axes
    for ax, key, scale in (
        (load, "offered_req_per_s", 1),
        (ttft, "ttft_s_p95", 1e3),
        (tpot, "tpot_s_p95", 1e3),
    ):
        line = ax.lines[0]
        series = made["check"]["series"]
        np.testing.assert_allclose(line.get_ydata(), [scale * each[key] for each in series])
        assert line.get_xdata()[60] == pytest.approx(1.0)
        assert upright(ax, BAD)[-1] == pytest.approx(14.0)
    assert PEAK * 1.09 in [line.get_ydata()[0] for line in load.lines]
    assert 500 in [line.get_ydata()[0] for line in ttft.lines]
    assert 25 in [line.get_ydata()[0] for line in tpot.lines]
    assert tpot.get_xlabel() == "hour of the day"
    assert {"SLO", "a replica is killed", "worst window", "the fleet holds"} <= set(texts(figure))


def test_windows_without_requests_are_gaps_and_a_dead_replica_shades_the_rest():
    made = missed()
    _, _, tpot = checked_day(made).axes
    assert np.isnan(tpot.lines[0].get_ydata()[200:230]).all()
    right = max(patch.get_extents().x1 for patch in tpot.patches)
    assert right == pytest.approx(tpot.transData.transform((24, 0))[0])
    assert tpot.get_ylim()[1] > 29.1
    made["check"]["killed_at_s"] = None
    assert "a replica is killed" not in texts(checked_day(made))


class Reader(HTMLParser):
    """Collects elements, attributes and visible text; every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[str], Path]]:
    """Page, files and folder of variants that differ in what is drawn."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_html, "KINDS", ("svg",))
        for name in WRITTEN:
            folder = tmp_path_factory.mktemp(name)
            files = plan_html.write(VARIANTS[name](), folder)
            made[name] = ((folder / "report.html").read_text("utf-8"), files, folder)
    return made


@pytest.mark.parametrize("name", VARIANTS)
def test_a_page_comes_of_every_kind_of_plan(name: str):
    text = Reader(plan_html.page(VARIANTS[name](), {})).text
    assert "None" not in text
    assert "nan" not in text.split()
    assert plan_words.answer(VARIANTS[name]()) in text.replace("\u00a0", " ")


@pytest.mark.parametrize("name", WRITTEN)
def test_every_plan_becomes_a_page_that_fetches_nothing(name: str, pages: Any):
    page, files, folder = pages[name]
    drawn = WRITTEN[name]
    figures = {f"figures/{each}.svg" for each in drawn}
    assert set(files) == {"report.html", *figures}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == set(files)
    read = Reader(page)
    assert {tag for tag, _ in read.tags}.isdisjoint({"script", "img", "iframe", "object"})
    for _, attributes in read.tags:
        assert not [key for key in attributes if key.startswith("on") or key == "src"]
    assert not re.search(r"@import|url\((?!#)", page)
    assert page.count("<svg") == len(drawn)


def test_the_same_plan_gives_the_same_bytes(
    pages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, files, folder = pages["document"]
    monkeypatch.setattr(plan_html, "KINDS", ("svg",))
    assert plan_html.write(document(), tmp_path) == files
    for name in files:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_every_picture_is_written_as_svg_and_as_png(tmp_path: Path):
    figures = ["figures/gpus.svg", "figures/gpus.png"]
    assert plan_html.write(bare(), tmp_path) == ["report.html", *figures]
    assert (tmp_path / figures[1]).read_bytes()[:4] == b"\x89PNG"


def test_the_page_answers_first_and_tells_what_the_report_tells(pages: Any):
    text = " ".join(Reader(pages["document"][0]).text.replace("\u00a0", " ").split())
    order = (
        "Buy 8 h100_sxm (90 %: 8-12)",
        "The cheapest plan of each strategy and GPU",
        "Launch each replica with",
        "A full day of the plan chosen",
        "What to measure next",
        "What this rests on",
        "What cannot hold the SLO",
        "512 candidates",
    )
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "Candidates searched, cheapest first: 16" in text


def test_the_page_marks_bounds_held_and_missed(pages: Any):
    assert 'class="card good-line"' in pages["document"][0]
    assert 'class="card bad-line"' in pages["missed"][0]
    assert "✓ within 25 ms" in pages["document"][0].replace("\u00a0", " ")
    made = document()
    made["plans"][0]["worst"]["tpot_s_p95"] = 0.026
    assert "✗ over 25 ms" in plan_html.page(made, {}).replace("\u00a0", " ")


def test_text_from_input_stays_text():
    made = document(question=HOSTILE, engine=HOSTILE)
    for plan in made["plans"][:2]:
        plan["strategy"] = HOSTILE
        plan["launch"] = f"vllm serve {HOSTILE}"
    for row in (*made["impossible"], *made["search"]):
        row["strategy"] = HOSTILE
    for row in made["inputs"]:
        row |= {"input": HOSTILE, "value": HOSTILE, "source": HOSTILE}
    for row in made["tornado"]:
        row["what"] = HOSTILE
    svgs = {"gpus": plan_html.inline(picture(made), "gpus", HOSTILE)}
    page = plan_html.page(made, svgs)
    assert HOSTILE not in page
    assert HOSTILE in Reader(page).text


def picture(made: dict[str, Any]) -> bytes:
    return plan_html.plots.save(plan_plots.gpus_by_plan(made), "svg")


def test_pictures_follow_the_theme(pages: Any):
    for svg in re.findall(r"<svg.*?</svg>", pages["document"][0], re.DOTALL):
        assert not re.search(r"#[0-9a-f]{6}", re.sub(r">[^<]*<", "><", svg))
        assert "var(--" in svg
    ids = re.findall(r'\bid="([^"]+)"', pages["document"][0])
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("made", [document, nothing_runs])
def test_what_stands_on_a_picture_stays_on_it(made: Any):
    variant = made()
    for each in plan_plots.pictures(variant):
        each.figure.canvas.draw()
        whole = each.figure.bbox
        for ax in each.figure.axes:
            for text in (*ax.texts, *(() if ax.get_xlabel() else ax.get_yticklabels())):
                box = text.get_window_extent()
                assert box.x0 >= whole.x0 - 1, text.get_text()
                assert box.x1 <= whole.x1 + 1, text.get_text()
