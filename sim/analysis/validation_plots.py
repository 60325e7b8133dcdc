"""Pictures of a validation: each answers one question, which stands above it.

Tables have a row a figure: ``metric``, ``measured``, ``predicted``, ``lo``, ``hi``, ``relative``
and the labels a picture groups by. Only rows to be shown are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from sim.analysis import axes, plots
from sim.analysis.palette import BAD, INK, MUTED, PAPER, SHADES, Look, looks
from sim.analysis.sheet import Sheet, name

GOOD = SHADES["good"].light
NEAR = 0.05
"""The shade around a perfect prediction."""
FARTHEST = 0.3
"""Errors beyond are drawn at the edge."""
LATENCIES = {"e2e_s.mean": "E2E", "ttft_s.mean": "TTFT", "tpot_s.mean": "TPOT"}


def latencies(frame: pd.DataFrame) -> Any:
    """Predicted against measured mean latencies, both logarithmic, and their error below.

    Parameters
    ----------
    frame : DataFrame
        With ``model``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = {metric: text for metric, text in LATENCIES.items() if metric in set(frame["metric"])}
    look = looks(sorted(frame["model"].unique()))
    with plots.blank() as figure:
        sheet = Sheet(figure, len(shown), 3, 330, legend=-(-(len(look) + 1) // 5))
        for metric, text in shown.items():
            part = frame[frame["metric"] == metric].dropna(subset=["predicted"])
            upper, lower = sheet.parts(220)
            _diagonal(upper, part, look)
            off = f"{100 * part['relative'].abs().mean():.1f} % off on average"
            name(upper, text, off)
            _errors_by_size(lower, part, look)
        sheet.ask(
            "How near are predicted latencies of plain serving to measured ones?",
            "A dot is one load stage of a real server. Above: predicted against measured mean; "
            "below: the error. Shaded: within 5 %.",
        )
        sheet.legend([(label, _dot(figure, one)) for label, one in look.items()])
    return figure


def _diagonal(ax: Any, frame: pd.DataFrame, look: dict[str, Look]) -> None:
    lo, hi = _range(frame)
    ends = np.array([lo, hi])
    shade = {"color": GOOD, "alpha": 0.18, "linewidth": 0}
    ax.fill_between(ends, ends * (1 - NEAR), ends * (1 + NEAR), **shade)
    ax.plot(ends, ends, color=MUTED, linewidth=0.8)
    for model, part in frame.groupby("model"):
        _dots(ax, 1e3 * part["measured"], 1e3 * part["predicted"], look[str(model)])
    axes.log(ax, "x", lo, hi)
    axes.log(ax, "y", lo, hi)
    ax.set_xticklabels([])
    _y_title(ax, "predicted, ms")


def _range(frame: pd.DataFrame) -> tuple[float, float]:
    """What both axes span, so that an error lies below its dot [ms]."""
    both = 1e3 * frame[["measured", "predicted"]].to_numpy(float)
    return 0.8 * float(both.min()), 1.25 * float(both.max())


def _errors_by_size(ax: Any, frame: pd.DataFrame, look: dict[str, Look]) -> None:
    _error_axis(ax)
    for model, part in frame.groupby("model"):
        _dots(ax, 1e3 * part["measured"], _clipped(part["relative"]), look[str(model)])
    axes.log(ax, "x", *_range(frame))
    ax.set_xlabel("measured, ms")
    _y_title(ax, "error, %")


def errors_by_batch(frame: pd.DataFrame, near: float = NEAR) -> Any:
    """Relative error by batch, a panel a family of strategies; a bar is the mean of a batch.

    Parameters
    ----------
    frame : DataFrame
        With ``family``, ``engine`` and numeric ``batch``.
    near : float
        Half-width of the shade.
    """
    families = list(frame.groupby("family").size().sort_values(ascending=False).index)
    look = looks(sorted(frame["engine"].unique()))
    with plots.blank() as figure:
        sheet = Sheet(figure, len(families), 3, 150, legend=-(-(len(look) + 1) // 5))
        for family in families:
            part = frame[frame["family"] == family].dropna(subset=["relative"])
            ax = sheet.panel()
            _errors_of_family(ax, part, look, near)
            name(ax, str(family), f"n {len(part)}, {100 * part['relative'].abs().mean():.1f} % off")
        sheet.ask(
            "At which batch do predictions of a strategy go wrong?",
            f"A dot is one figure, a bar the mean of its batch; above 0 too much is predicted. "
            f"Shaded: within {100 * near:g} %.",
        )
        bar = figure.add_artist(_line(figure, INK, 2.4))
        entries = [(label, _dot(figure, one)) for label, one in look.items()]
        sheet.legend([*entries, ("mean", bar)])
    return figure


def _errors_of_family(ax: Any, frame: pd.DataFrame, look: dict[str, Look], near: float) -> None:
    batches = sorted(frame["batch"].unique())
    _error_axis(ax, near)
    x = pd.Series(_spread(frame, batches), frame.index)
    for engine, group in frame.groupby("engine"):
        _dots(ax, x[group.index], _clipped(group["relative"]), look[str(engine)], 4.5)
    for place, batch in enumerate(batches):
        own = frame.loc[frame["batch"] == batch, "relative"]
        if len(own) > 2:
            level = float(np.clip(100 * own.mean(), -100 * FARTHEST, 100 * FARTHEST))
            bar = {"color": INK, "linewidth": 2.4, "solid_capstyle": "butt"}
            ax.plot([place - 0.32, place + 0.32], [level, level], **bar, zorder=4)
    _batches(ax, batches, room=0.6)
    _y_title(ax, "error, %")


def _spread(frame: pd.DataFrame, batches: Sequence[float]) -> np.ndarray[Any, Any]:
    """Places on the axis, figures of one batch side by side."""
    places = {batch: index for index, batch in enumerate(batches)}
    order = frame.groupby("batch").cumcount()
    count = frame.groupby("batch")["batch"].transform("size")
    return np.asarray(frame["batch"].map(places) + 0.5 * ((order + 0.5) / count - 0.5), float)


def speedups(frame: pd.DataFrame) -> Any:
    """Speedup by batch, measured and predicted, a panel a ``panel``, a colour a family.

    Parameters
    ----------
    frame : DataFrame
        With ``panel``, ``family`` and numeric ``batch``; ``lo`` and ``hi`` where there is a band.
    """
    panels = list(dict.fromkeys(frame["panel"]))
    look = looks(sorted(frame["family"].unique()))
    batches = sorted(frame["batch"].unique())
    top = 1.08 * frame[["measured", "predicted"]].to_numpy(float).max()
    bottom = min(0.85, 0.93 * frame[["measured", "predicted"]].min().min())
    with plots.blank() as figure:
        sheet = Sheet(figure, len(panels), 4, 130, legend=-(-(len(look) + 2) // 6), left=34)
        for title in panels:
            part = frame[frame["panel"] == title]
            ax = sheet.panel()
            ax.axhspan(bottom, 1, color=BAD, alpha=0.09, linewidth=0)
            ax.axhline(1, color=BAD, linewidth=1)
            for family, group in part.groupby("family"):
                _pair(ax, group.sort_values("batch"), batches, look[str(family)])
            axes.log(ax, "y", bottom, top)
            _batches(ax, batches)
            name(ax, axes.short(str(title), 30))
        sheet.ask(
            "Does speculation pay, and up to which batch?",
            "Speedup over plain decoding at the same batch. Marks: measured. Lines: predicted, "
            "with the 90 % band. Red: slower than without.",
        )
        entries = [(label, _dot(figure, one)) for label, one in look.items()]
        sheet.legend([*entries, ("predicted", figure.add_artist(_line(figure, MUTED, 1.6)))])
    return figure


def _pair(ax: Any, frame: pd.DataFrame, batches: Sequence[float], look: Look) -> None:
    at = np.array([batches.index(batch) for batch in frame["batch"]], float)
    lo, hi, predicted = (frame[column].to_numpy(float) for column in ("lo", "hi", "predicted"))
    ax.fill_between(at, lo, hi, color=look.colour, alpha=0.15, linewidth=0)
    ax.plot(at, predicted, color=look.colour, linewidth=1.6)
    _dots(ax, at, frame["measured"], look)


def ladder(frame: pd.DataFrame) -> Any:
    """TTFT and TPOT of uncached prompts by users, measured and predicted, a colour a workload.

    Parameters
    ----------
    frame : DataFrame
        With ``workload`` and numeric ``batch``, the users.
    """
    look = looks(dict.fromkeys(frame["workload"]))
    users = sorted(frame["batch"].unique())
    with plots.blank() as figure:
        sheet = Sheet(figure, 2, 2, 230, legend=1)
        for metric, text in (("ttft_s.mean", "TTFT"), ("tpot_s.mean", "TPOT")):
            part = frame[frame["metric"] == metric]
            ax = sheet.panel()
            for workload, group in part.groupby("workload"):
                rows = group.sort_values("batch")
                times = ["measured", "predicted", "lo", "hi"]
                _pair(ax, rows.assign(**(1e3 * rows[times])), users, look[str(workload)])
            every = 1e3 * part[["measured", "predicted"]].to_numpy(float)
            axes.log(ax, "y", 0.75 * np.nanmin(every), 1.35 * np.nanmax(every))
            _batches(ax, users, "users")
            _y_title(ax, "ms")
            name(ax, text, f"{100 * part['relative'].abs().mean():.1f} % off on average")
        sheet.ask(
            "What do prompts cost that no cache holds?",
            "Closed loops of so many users. Marks: measured; lines: predicted, with the 90 % "
            "band. Prompt and output tokens below.",
        )
        entries = [(label, _dot(figure, one)) for label, one in look.items()]
        sheet.legend([*entries, ("predicted", figure.add_artist(_line(figure, MUTED, 1.6)))])
    return figure


def _batches(ax: Any, batches: Sequence[float], title: str = "batch", room: float = 0.3) -> None:
    """Batches at even places of the x axis."""
    ax.set_xticks(range(len(batches)), [f"{batch:g}" for batch in batches])
    ax.set_xlim(-room, len(batches) - 1 + room)
    ax.grid(visible=False, axis="x")
    ax.set_xlabel(title)


def _error_axis(ax: Any, near: float = NEAR) -> None:
    edge = 100 * FARTHEST
    ax.axhspan(-100 * near, 100 * near, color=GOOD, alpha=0.14, linewidth=0)
    ax.axhline(0, color=MUTED, linewidth=0.8)
    ax.set_ylim(-edge * 1.07, edge * 1.07)
    ax.set_yticks([-30, -15, 0, 15, 30], ["-30", "-15", "0", "+15", "+30"])


def _clipped(relative: pd.Series) -> np.ndarray[Any, Any]:
    """Errors in %, far ones at the edge."""
    return np.asarray(100 * np.clip(relative.to_numpy(float), -FARTHEST, FARTHEST), float)


def _dots(ax: Any, x: Any, y: Any, look: Look, size: float = 5.5) -> None:
    ax.plot(
        *(np.asarray(values, float) for values in (x, y)),
        color=look.colour,
        marker=look.marker,
        linestyle="",
        markersize=size,
        markeredgecolor=PAPER,
        clip_on=False,
        zorder=3,
    )


def _dot(figure: Any, look: Look) -> Any:
    return figure.add_artist(_line(figure, look.colour, 0, look.marker))


def _line(figure: Any, colour: str, width: float, marker: str = "") -> Any:
    """A mark for the legend, drawn nowhere else."""
    ax = figure.axes[0]
    (artist,) = ax.plot([], [], color=colour, linewidth=width, marker=marker)
    artist.remove()
    return artist


def _y_title(ax: Any, title: str) -> None:
    """The title of a y axis inside its upper left corner."""
    text = {"va": "top", "fontsize": 9.5, "color": MUTED, "zorder": 6}
    ax.text(0.015, 0.98, title, transform=ax.transAxes, **text)
