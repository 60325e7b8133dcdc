"""Pictures of a capacity plan: their marks are the figures of the document."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from plan_document import PEAK, document
from plan_variants import bare, missed, nothing_runs, without_prices

from sim.analysis import plan_plots
from sim.analysis.palette import BAD, INK, SHADES
from sim.analysis.plan_day_plot import checked_day
from sim.analysis.plan_front_plot import front, pareto


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
