"""Pictures: what they draw from tables and rows, and that no text of the user's breaks them."""

from __future__ import annotations

import logging
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from report_cases import LABELS, RATE, case, parts, table, timeline, windows
from rows import band, requests, row, saturated_row

from sim.analysis import plots, series
from sim.analysis.axes import duration_unit, log_ticks, short
from sim.analysis.palette import SHADES, looks
from sim.analysis.svg import inline
from sim.analysis.timeline import course
from sim.tables import TIMELINE, RunTable, run_to_arrow

LOADS = [
    row("autoregressive", None, point={RATE: 4}),
    row("autoregressive", None, point={RATE: 8}),
    row("eagle3", 1.6, point={RATE: 8}),
    row("eagle3", 1.8, point={RATE: 4}),
    saturated_row("eagle3", point={RATE: 12}),
]


def run(columns: dict[str, Any], strategy: str = "eagle3") -> RunTable:
    return RunTable({}, strategy, 0, columns)


def texts(ax: Any) -> list[str]:
    """Every text of the figure as its SVG file says it."""
    root = ElementTree.fromstring(plots.save(ax.figure, "svg"))
    return [element.text or "" for element in root.iter() if element.tag.endswith("}text")]


def test_every_picture_draws_on_the_axes_it_is_given():
    _, tables, timelines = case(("autoregressive", "eagle3"), rates=(4,))
    with_windows = [row("a", windows=windows(0.3))]
    drawn = [
        lambda ax: plots.latency_cdf(tables, "ttft_s", ax),
        lambda ax: plots.latency_by_load(LOADS, "tpot_s", RATE, ax),
        lambda ax: plots.throughput_by_speed(LOADS, RATE, ax),
        lambda ax: plots.stacked_bars([("a", "")], {"weights": np.ones(1)}, "GB", ax),
        lambda ax: plots.over_time(timelines, "running", ax),
        lambda ax: plots.by_window(with_windows, "ttft_s_p95", ax),
    ]
    for draw in drawn:
        ax = Figure().add_subplot()
        assert draw(ax) is ax
        assert ax.get_xlabel()
        assert draw(None) is not ax


def test_the_distribution_is_that_of_finished_requests_of_all_replications():
    lost = requests(100, status=np.ones(100, dtype=np.int8), first_token_s=np.full(100, 1e6))
    one, two = table("eagle3", {}, 200, seed=1), table("eagle3", {}, 300, seed=2)
    curve = series.quantile_curves([one, two, run(lost)], "ttft_s")["eagle3"]
    pooled = [t.columns["first_token_s"] - t.columns["arrival_s"] for t in (one, two)]
    expected = np.quantile(np.concatenate(pooled), [0.5, 0.95])
    np.testing.assert_allclose(curve[[100, 190]], expected)
    assert series.quantile_curves([run(lost)], "ttft_s") == {}


def test_the_distribution_marks_median_and_p95_and_the_bound():
    ax = plots.latency_cdf([table("eagle3", {})], "ttft_s", bounds={"p95": 0.5})
    assert ax.get_xscale() == "log"
    assert {"p50", "p95", "TTFT, ms", "SLO: p95 within 500 ms"} <= set(texts(ax))
    assert ax.lines[0].get_markevery() == [100, 190]


def test_a_table_of_millions_is_thinned():
    ax = plots.latency_cdf([table("eagle3", {}, 600_000)], "tpot_s")
    assert len(ax.lines[0].get_xdata()) == 201


def test_lines_over_the_load_are_in_its_order_and_stop_where_it_saturates():
    line = series.load_lines(LOADS, "tpot_s", RATE)["eagle3"]
    assert line.load.tolist() == [4, 8, 12]
    np.testing.assert_allclose(line.mean[:2], [0.02 / 1.8, 0.02 / 1.6])
    assert np.isnan(line.mean[2])
    assert line.saturated.tolist() == [False, False, True]
    assert line.lo[0] < line.mean[0] < line.hi[0]


def test_a_band_without_an_upper_end_reaches_the_top():
    openly = row("eagle3", point={RATE: 4}, band={"tpot_s": band(0.02) | {"hi": None}})
    assert np.isinf(series.load_lines([openly], "tpot_s", RATE)["eagle3"].hi[0])
    both = [openly, row("eagle3", point={RATE: 8})]
    ax = plots.latency_by_load(both, "tpot_s", RATE)
    shade = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert shade.max() == pytest.approx(ax.get_ylim()[1])


def test_the_picture_over_load_names_band_and_crosses():
    found = texts(plots.latency_by_load(LOADS, "tpot_s", RATE))
    assert {"mean", "p95", "90 % band of mean", "saturated", "TPOT, ms"} <= set(found)
    assert "requests offered a second" in found
    calm = [each for each in LOADS if not each["saturated"]]
    assert "saturated" not in texts(plots.latency_by_load(calm, "tpot_s", RATE))


def test_throughput_leaves_out_what_promises_no_speed():
    lines = series.speed_lines(LOADS, RATE)
    assert [len(user) for user, _ in lines.values()] == [2, 2]
    assert series.speed_lines([saturated_row("eagle3")], None) == {}


def test_parts_of_a_step_add_up_and_small_ones_are_joined():
    rows = [row("a", **parts()), row("b", **parts())]
    found = series.step_parts(rows)
    assert list(found) == ["weights", "kv", "draft", "other"]
    assert sum(found.values())[0] == pytest.approx(11.005)


def test_parts_of_the_memory_add_up_to_it():
    found = series.memory_parts([row("a", **parts())])
    assert list(found) == ["weights", "draft", "reserve", "kv_peak_used", "kv_free", "unused"]
    assert sum(found.values())[0] == pytest.approx(84.9)
    assert found["kv_free"][0] == pytest.approx(44.0)


def test_the_timeline_adds_counts_and_averages_shares_over_replicas():
    columns = timeline(bins=4, replicas=2)
    first = columns["start_s"] == 5
    waiting, kv = course(columns, "waiting"), course(columns, "kv_use")
    assert waiting.edges.tolist() == [0, 5, 10, 15, 20]
    assert waiting.values[1] == pytest.approx(columns["waiting"][first].sum())
    assert kv.values[1] == pytest.approx(columns["kv_use"][first].mean())
    assert course(columns, "preemptions").values.tolist() == [4, 4, 4, 4]
    tau = course(columns, "tau").values
    assert np.isnan(tau[0])
    assert (tau[1:] == 2).all()


def test_tau_over_time_is_weighted_by_steps():
    columns = timeline(bins=2, replicas=2)
    columns |= {"tau": np.array([1.0, 1.0, 3.0, np.nan]), "steps": np.array([300, 1, 100, 0])}
    assert course(columns, "tau").values.tolist() == [1.5, 1.0]


def test_a_long_timeline_is_joined_without_losing_anything():
    columns = timeline(bins=1000, replicas=3)
    short_course = course(columns, "preemptions", most=150)
    assert len(short_course.values) <= 150
    assert short_course.values.sum() == columns["preemptions"].sum()
    level = course(columns, "waiting")
    area = (level.values * np.diff(level.edges)).sum()
    assert area == pytest.approx((columns["waiting"] * columns["width_s"]).sum())


def test_a_replica_that_was_away_adds_nothing():
    columns = timeline(bins=4, replicas=2)
    there = ~((columns["replica"] == 1) & (columns["start_s"] == 5))
    gone = course({name: values[there] for name, values in columns.items()}, "waiting")
    assert gone.values[1] == pytest.approx(course(columns, "waiting").values[1] / 2)


def test_a_timeline_fits_its_schema_and_an_empty_one_draws_nothing():
    assert run_to_arrow(TIMELINE, run(timeline())).num_rows == 80
    empty = {name: values[:0] for name, values in timeline().items()}
    assert course(empty, "waiting").values.size == 0
    assert plots.over_time([run(empty)], "waiting").get_xlabel()


def test_the_worst_window_survives_thinning():
    long = row("a", windows=windows(0.3, count=1001))
    starts, values = series.window_line(long, "ttft_s_p95")
    assert len(starts) <= series.MOST_WINDOWS
    assert values.max() == long["windows"]["worst"]["ttft_s_p95"]
    assert "worst window" in texts(plots.by_window([long], "ttft_s_p95"))


def test_windows_without_requests_leave_a_gap():
    made = windows(0.3, count=3)
    made["series"][1]["ttft_s_p95"] = None
    made["worst"] = None
    _, values = series.window_line(row("a", windows=made), "ttft_s_p95")
    assert np.isnan(values).tolist() == [False, True, False]
    plots.by_window([row("a", windows=made)], "ttft_s_p95")


@pytest.mark.parametrize("label", [*LABELS, 'a < b > c & "d"', "50 %", "\\alpha", "{}", " "])
def test_any_label_shows_as_it_is(label: str):
    shown = short(label)
    for ax in (
        plots.latency_cdf([table(label, {})], "ttft_s"),
        plots.stacked_bars([(label, "1 ms")], {"weights": np.ones(1)}, "ms"),
        plots.over_time([run(timeline(), label)], "tau"),
    ):
        assert shown[:12] in " ".join(texts(ax))
        plots.save(ax.figure, "png")


def test_labels_are_cut_in_the_middle():
    assert short("draft_model llama-3.2-1b K=4", 20) == "draft_model …-1b K=4"
    assert short("長" * 50, 11) == "長長長…長長"
    assert short("one\nline\x07") == "one line "


def test_same_picture_same_bytes_whatever_the_settings():
    def files() -> list[bytes]:
        ax = plots.latency_cdf([table("eagle3", {})], "ttft_s", bounds={"p95": 0.5})
        return [plots.save(ax.figure, kind) for kind in ("svg", "png")]

    usual = files()
    with matplotlib.rc_context({"font.size": 30, "axes.linewidth": 5, "svg.hashsalt": "x"}):
        assert files() == usual


def test_inside_a_page_ids_are_its_own_and_colours_follow_the_theme():
    ax = plots.stacked_bars([("a", "")], {"weights": np.ones(1), "draft": np.ones(1)}, "GB")
    element = inline(plots.save(ax.figure, "svg"), "memory", 'a "picture"')
    assert "fill: var(--part-weights)" in element
    assert "url(#memory-" in element
    assert 'aria-label="a &quot;picture&quot;"' in element
    assert not any(f'"{shade.light}"' in element for shade in SHADES.values())


def test_no_two_strategies_look_alike():
    made = looks([f"s{index}" for index in range(64)], "s0")
    assert len({(look.colour, look.marker) for look in made.values()}) == 64
    assert made["s0"].colour == SHADES["series-0"].light
    assert len({shade.light for shade in SHADES.values()}) == len(SHADES)


@pytest.mark.parametrize(
    ("lo", "hi"), [(1, 2), (6, 20), (7.0, 7.3), (0.001, 1e9), (99, 100.5), (0.5, 3), (20, 900)]
)
def test_ticks_are_few_round_and_inside(lo: float, hi: float):
    ticks = log_ticks(lo, hi)
    assert 2 <= len(ticks) <= 7
    assert all(lo <= tick <= hi for tick in ticks)


def test_long_runs_are_shown_in_minutes_or_hours():
    assert [duration_unit(s)[1] for s in (60, 1200, 86_400)] == ["s", "min", "h"]


def test_drawing_says_nothing(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]):
    with caplog.at_level(logging.WARNING):
        plots.save(plots.latency_cdf([table(LABELS[-1], {})], "ttft_s").figure, "png")
    assert not caplog.records
    assert capsys.readouterr() == ("", "")
