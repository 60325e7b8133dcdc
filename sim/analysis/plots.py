"""Pictures of results: each function draws tables or rows on an axes and returns it.

Without an axes of the caller's they draw on a figure 380 pixels wide, its legend below the axes.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.analysis import axes, series
from sim.analysis.axes import duration_unit, finish, short, time_unit
from sim.analysis.palette import BAD, CROSS, HATCHES, PAPER, RING, STYLE, Look, looks, part
from sim.analysis.timeline import QUANTITIES, course
from sim.tables import RunTable

Row = Mapping[str, Any]
Looks = Mapping[str, Look]
Entries = list[tuple[Any, ...]]

WIDTH, BAR, RIGHT, BOTTOM = 380, 36, 12, 40
"""A figure, the height of a bar with its name, space around the axes (legend below it) [px]."""
DOTS_PER_PIXEL = 2.5
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "queue_s": "queueing"}


@contextlib.contextmanager
def blank() -> Iterator[Figure]:
    """An empty figure in our own settings; a glyph our font lacks is no reason to warn."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield Figure()


@contextlib.contextmanager
def drawing(
    ax: Axes | None, height: float = 200, left: float = 44, top: float = 26
) -> Iterator[Axes]:
    """The caller's axes, or new ones of this height [px] with room for the legend below."""
    if ax is not None:
        yield ax
        return
    with blank() as figure:
        own = figure.add_axes((0, 0, 1, 1))
        yield own
        full = height + top + BOTTOM + axes.legend_height(own)
        inner = WIDTH - left - RIGHT
        figure.set_size_inches(WIDTH / 72, full / 72)
        own.set_position((left / WIDTH, 1 - (top + height) / full, inner / WIDTH, height / full))
        own.yaxis.set_label_coords((6 - left) / inner, 1 + 8 / height)
        if legend := own.get_legend():
            legend.set_bbox_to_anchor(((4 - left) / inner, -BOTTOM / height), own.transAxes)


def save(figure: Figure, kind: str) -> bytes:
    """A figure as an ``svg`` or ``png`` file; the same picture gives the same bytes."""
    file = io.BytesIO()
    metadata = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[kind]
    with blank():
        figure.savefig(file, format=kind, dpi=72 * DOTS_PER_PIXEL, metadata=metadata)
    return file.getvalue()


def latency_cdf(
    runs: Sequence[RunTable],
    name: str,
    ax: Axes | None = None,
    look: Looks | None = None,
    bounds: Mapping[str, float] | None = None,
) -> Axes:
    """Share of finished requests within a latency, a line a strategy; marks at p50 and p95.

    Parameters
    ----------
    runs : sequence of RunTable
        Request tables of one point; replications are pooled.
    name : str
        ``ttft_s``, ``tpot_s``, ``e2e_s`` or ``queue_s``.
    ax, look : optional
        Where to draw, and how each strategy looks.
    bounds : mapping, optional
        Bounds to show, by percentile [s].
    """
    curves, bounds = series.quantile_curves(runs, name), bounds or {}
    look = look or looks(curves)
    factor, unit = time_unit(curve[-2] for curve in curves.values())
    extremes = [np.array([*bounds.values()]), *(curve[[1, -2]] for curve in curves.values())]
    lo, hi = series.limits(extremes) or (1.0, 10.0)
    with drawing(ax) as ax:
        entries: Entries = []
        for label, curve in curves.items():
            (line,) = ax.plot(curve * factor, series.SHARES, **look[label].style())
            line.set_markevery([100, 190])
            entries.append((label, line))
        for percentile, bound in bounds.items():
            line = ax.axvline(bound * factor, color=BAD, linestyle=(0, (4, 2)), linewidth=1.2)
            entries.append((f"SLO: {percentile} within {bound * factor:g} {unit}", line))
        axes.log(ax, "x", 0.9 * factor * lo, 1.1 * factor * hi)
        ax.set_ylim(0, 1.02)
        ax.set_yticks([0, 0.25, 0.5, 0.75, 0.95], ["0", "25", "p50", "75", "p95"])
        finish(ax, f"{NAMES[name]}, {unit}", "share of requests, %", entries)
    return ax


def latency_by_load(
    rows: Sequence[Row], name: str, key: str, ax: Axes | None = None, look: Looks | None = None
) -> Axes:
    """Mean latency with its band, and p95, against the varied load, a line a strategy.

    Saturated points have no latency: a cross at the top marks them.

    Parameters
    ----------
    rows : sequence of mapping
        Result rows that differ in strategy and load only.
    name : str
        ``ttft_s``, ``tpot_s`` or ``e2e_s``.
    key : str
        The varied key, of arrivals a second or of users.
    ax, look
        As in ``latency_cdf``.
    """
    lines = series.load_lines(rows, name, key)
    look = look or looks(lines)
    lo, hi = series.limits(v for line in lines.values() for v in line[1:5]) or (1e-3, 1e-2)
    factor, unit = time_unit([hi])
    bottom, top = 0.9 * factor * lo, 1.6 * factor * hi
    with drawing(ax) as ax:
        entries: Entries = []
        for index, (label, line) in enumerate(lines.items()):
            style, colour = look[label].style(), look[label].colour
            entries.append((label, *ax.plot(line.load, line.mean * factor, **style)))
            style |= {"linestyle": ":", "linewidth": 1.1}
            ax.plot(line.load, line.p95 * factor, **style)
            shade = line.lo * factor, np.minimum(line.hi * factor, top)
            ax.fill_between(line.load, *shade, color=colour, alpha=0.15, linewidth=0)
            full = line.load[line.saturated]
            level = top * (top / bottom) ** (-0.04 - 0.05 * (index % 12))
            ax.plot(full, np.full(len(full), level), **CROSS, color=colour, mec=colour)
        axes.log(ax, "y", bottom, top)
        axes.load_axis(ax, np.concatenate([line.load for line in lines.values()]))
        entries += axes.statistics(ax, rows, name)
        load = "users" if key.endswith("users") else "requests offered a second"
        finish(ax, load, f"{NAMES[name]}, {unit}", entries)
    return ax


def throughput_by_speed(
    rows: Sequence[Row], key: str | None = None, ax: Axes | None = None, look: Looks | None = None
) -> Axes:
    """Tokens a second of a GPU against those of a user: a point a row, connected over the load.

    Saturated rows, which promise no speed, are left out.

    Parameters
    ----------
    rows : sequence of mapping
        Result rows that differ in strategy and load only.
    key : str, optional
        The varied key of the load, which orders the points of a strategy.
    ax, look
        As in ``latency_cdf``.
    """
    lines = series.speed_lines(rows, key)
    look = look or looks(lines)
    with drawing(ax) as ax:
        entries: Entries = []
        for label, (user, gpu) in lines.items():
            style = look[label].style() | ({} if key else {"linestyle": ""})
            entries.append((label, *ax.plot(user, gpu, **style, markersize=7)))
        for which, values in zip("xy", zip(*lines.values(), strict=True), strict=False):
            axes.linear(ax, which, 1.12 * max(map(np.max, values)))
        finish(ax, "tokens a second of a user", "tokens a second of a GPU", entries)
    return ax


def stacked_bars(
    rows: Sequence[tuple[str, str]],
    parts: Mapping[str, series.Floats],
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """A stacked bar a row, above it on the left what it is, on the right a note.

    Parameters
    ----------
    rows : sequence of (str, str)
        Name and note of each bar.
    parts : mapping
        Values of each component, shape (rows,), as from ``series.step_parts`` or ``memory_parts``.
    title : str
        Title of the axis, with its unit.
    ax : Axes, optional
    """
    at, end = np.arange(len(rows), dtype=float), 1.02 * np.max(sum(parts.values()))
    with drawing(ax, BAR * len(rows), left=8, top=0) as ax:
        entries: Entries = []
        left = np.zeros(len(rows))
        for name, values in parts.items():
            filled: Any = {"color": part(name), "hatch": HATCHES.get(name), "edgecolor": PAPER}
            bars = ax.barh(at, values, 0.42, left, linewidth=0.8, **filled)
            entries.append((name.replace("_", " "), bars[0]))
            left += values
        text: dict[str, Any] = {"va": "bottom", "fontsize": 10.5, "parse_math": False}
        for place, (name, note) in zip(at, rows, strict=True):
            ax.text(0, place - 0.24, short(name, 52 - len(note)), **text)
            ax.text(end, place - 0.24, note, ha="right", **text)
        axes.linear(ax, "x", end)
        ax.set(ylim=(len(rows) - 0.7, -0.8), yticks=[])
        ax.grid(visible=False)
        finish(ax, title, "", entries)
    return ax


def over_time(
    runs: Sequence[RunTable],
    name: str,
    ax: Axes | None = None,
    look: Looks | None = None,
    failures_s: Sequence[float] = (),
) -> Axes:
    """One quantity over simulated time, all replicas together, a line a strategy.

    Parameters
    ----------
    runs : sequence of RunTable
        Timeline tables, one a strategy.
    name : str
        One of ``timeline.QUANTITIES``.
    ax, look
        As in ``latency_cdf``.
    failures_s : sequence of float
        When replicas die [s].
    """
    courses = {run.strategy: course(run.columns, name) for run in runs}
    look = look or looks(courses)
    last = max((float(c.edges[-1]) for c in courses.values() if c.edges.size), default=1.0)
    per_unit, unit = duration_unit(last)
    with drawing(ax) as ax:
        entries: Entries = []
        for label, (edges, values) in courses.items():
            heights = np.append(values, values[-1:]) * (100 if name == "kv_use" else 1)
            style = look[label].style() | {"linestyle": look[label].line, "markersize": 4}
            (line,) = ax.step(edges * per_unit, heights, where="post", **style)
            line.set_markevery(max(len(edges) // 8, 1))
            entries.append((label, line))
        failed = [at_s * per_unit for at_s in failures_s if at_s <= last]
        marks = [ax.axvline(x, color=BAD, linestyle=":", linewidth=1.2) for x in failed]
        entries += [("a replica dies", mark) for mark in marks[:1]]
        axes.linear(ax, "x", last * per_unit)
        axes.linear(ax, "y")
        finish(ax, f"simulated time, {unit}", QUANTITIES[name], entries)
    return ax


def by_window(
    rows: Sequence[Row], name: str, ax: Axes | None = None, look: Looks | None = None
) -> Axes:
    """A latency percentile of each sliding window, a line a row; rings mark the worst windows.

    Parameters
    ----------
    rows : sequence of mapping
        Result rows of one point, with ``windows``.
    name : str
        ``ttft_s_p95``, ``tpot_s_p95`` or ``e2e_s_p95``.
    ax, look
        As in ``latency_cdf``.
    """
    lines = {row["strategy"]: series.window_line(row, name) for row in rows}
    look = look or looks(lines)
    lo, hi = series.limits(values for _, values in lines.values()) or (1e-3, 1e-2)
    factor, unit = time_unit([hi])
    last = max((float(starts[-1]) for starts, _ in lines.values() if starts.size), default=0.0)
    per_unit, clock = duration_unit(last)
    with drawing(ax) as ax:
        entries: Entries = []
        for row, (label, (starts, values)) in zip(rows, lines.items(), strict=True):
            style = look[label].style() | {"markersize": 4}
            (line,) = ax.plot(starts * per_unit, values * factor, **style)
            line.set_markevery(max(len(starts) // 8, 1))
            entries.append((label, line))
            worst = row["windows"].get("worst") or {}
            if worst.get(name) is not None:
                ax.plot([worst["start_s"] * per_unit], [worst[name] * factor], **RING)
        entries.append(("worst window", *ax.plot([], [], **RING)))
        axes.log(ax, "y", 0.8 * factor * lo, 1.25 * factor * hi)
        finish(ax, f"start of the window, {clock}", f"{NAMES[name[:-4]]} p95, {unit}", entries)
    return ax
