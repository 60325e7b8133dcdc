"""Pictures of a validation in bars and strips: bands that hold, and other simulators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sim.analysis import axes, plots
from sim.analysis.palette import BAD, GRID, INK, MUTED, SHADES
from sim.analysis.sheet import Sheet, name

GOOD, ACCENT, OTHER = (SHADES[shade].light for shade in ("good", "accent", "series-0"))
EDGE = 2.2
"""Farther out, in half-widths of the band, dots are drawn at the edge."""
BINS = 45
STRIP = 62
"""Height of one kind of answer [px]."""
ROOM = 1.4
"""How much farther than its longest bar an axis reaches, for what is written behind it."""
PEERS = {"e2e_mape": "E2E", "ttft_mape": "TTFT", "itl_mape": "ITL or TPOT"}
OWN = "speccast"


def place_in_band(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Where a measured figure lies: 0 as predicted, -1 and 1 the ends of the band."""
    measured, predicted, lo, hi = (
        frame[column].to_numpy(float) for column in ("measured", "predicted", "lo", "hi")
    )
    below = measured < predicted
    half = np.where(below, predicted - lo, hi - predicted)
    return np.asarray((measured - predicted) / np.where(half > 0, half, np.nan), float)


def coverage(frame: pd.DataFrame, level: float = 0.9) -> Any:
    """Where measured figures lie within their band, a strip of dots a kind of ``answer``.

    Parameters
    ----------
    frame : DataFrame
        With ``answer``, ``measured``, ``predicted``, ``lo`` and ``hi``.
    level : float
        What the band promises.

    Returns
    -------
    matplotlib.figure.Figure
    """
    answers = list(dict.fromkeys(frame["answer"]))
    with plots.blank() as figure:
        height = STRIP * len(answers)
        sheet = Sheet(figure, 1, 1, height, legend=1, left=220, foot=28)
        ax = sheet.panel()
        ax.axvspan(-1, 1, color=GOOD, alpha=0.12, linewidth=0)
        ax.axvline(0, color=MUTED, linewidth=0.8)
        for row, answer in enumerate(answers):
            _strip(ax, row, str(answer), frame[frame["answer"] == answer])
        ax.set_xlim(-EDGE - 0.1, EDGE + 0.9)
        ax.set_ylim(len(answers), 0)
        ax.set_yticks([])
        ax.set_xticks([-1, 0, 1], ["lower end", "as predicted", "upper end"])
        ax.grid(visible=False)
        ax.set_xlabel("")
        sheet.ask(
            "Do the bands hold what was measured?",
            f"A dot is one measured figure at its place in its own {100 * level:g} % band. Right: "
            "how many lie inside, and half the width of the band.",
        )
        entries = []
        for label, colour in (("inside", ACCENT), ("outside", BAD)):
            (mark,) = ax.plot([], [], color=colour, marker="o", linestyle="")
            entries.append((label, mark))
        sheet.legend(entries)
    return figure


def _strip(ax: Any, row: int, answer: str, frame: pd.DataFrame) -> None:
    at = place_in_band(frame)
    at = at[np.isfinite(at)]
    clipped = np.clip(at, -EDGE, EDGE)
    bins = np.round((clipped + EDGE) / (2 * EDGE) * BINS).astype(int)
    order = pd.Series(bins).groupby(bins).cumcount().to_numpy()
    most = max(int(order.max(initial=0)) + 1, 8)
    y = row + 0.92 - 0.8 * (order + 0.5) / most
    x = bins / BINS * 2 * EDGE - EDGE
    inside = np.abs(at) <= 1
    mark = {"marker": "o", "linestyle": "", "markersize": 4.6}
    ax.plot(x[inside], y[inside], color=ACCENT, **mark)
    ax.plot(x[~inside], y[~inside], color=BAD, **mark)
    ax.axhline(row + 0.96, color=GRID, linewidth=0.8)
    width = ((frame["hi"] - frame["lo"]) / frame["predicted"]).median() / 2
    label = axes.short(answer, 32)
    text: dict[str, Any] = {"va": "center", "clip_on": False}
    ax.text(-EDGE - 0.2, row + 0.5, label, ha="right", fontsize=11, **text)
    share = f"{100 * inside.mean():.0f} % of {len(at)}"
    ax.text(EDGE + 0.2, row + 0.38, share, weight="bold", fontsize=11, **text)
    ax.text(EDGE + 0.2, row + 0.7, f"± {100 * width:.0f} %", color=MUTED, fontsize=10, **text)


def peers(frame: pd.DataFrame) -> Any:
    """Mean errors that simulators publish on runs of the same kind, a panel a latency.

    Parameters
    ----------
    frame : DataFrame
        Columns ``name``, ``rows``, ``e2e_mape``, ``ttft_mape`` and ``itl_mape`` (shares, NaN where
        none is published); the row ``speccast`` stands out.
    """
    count = len(frame)
    with plots.blank() as figure:
        sheet = Sheet(figure, len(PEERS), 3, 34 * count, legend=0, left=14, foot=8)
        for column, title in PEERS.items():
            ax = sheet.panel()
            _bars(ax, frame, column)
            name(ax, title)
        sheet.ask(
            "How far off are other simulators on runs of the same kind?",
            "Mean error in % as published, logarithmic. Not all on the same rows, nor given the "
            "same prompts: see the table.",
        )
    return figure


def _bars(ax: Any, frame: pd.DataFrame, column: str) -> None:
    values = 100 * frame[column].to_numpy(float)
    finite = values[np.isfinite(values)]
    top = max(finite.max(), 2.0) ** ROOM if len(finite) else 10.0
    at = np.arange(len(values), dtype=float)
    colours = [ACCENT if text == OWN else OTHER for text in frame["name"]]
    ax.barh(at + 0.16, np.nan_to_num(values, nan=1.0) - 1, 0.36, left=1, color=colours)
    for place, value, text, rows in zip(at, values, frame["name"], frame["rows"], strict=True):
        own = {"weight": "bold", "color": ACCENT} if text == OWN else {"color": INK}
        ax.text(1, place - 0.2, f"{text}, {rows} rows", va="center", fontsize=10, **own)
        told = f" {value:.{int(value < 100)}f} %" if np.isfinite(value) else " not published"
        ends = max(value, 1.0) if np.isfinite(value) else 1.0
        ax.text(ends, place + 0.17, told, va="center", fontsize=10.5, **own)
    axes.log(ax, "x", 1, top)
    ax.set_xticklabels([])
    ax.set(ylim=(len(values) - 0.5, -0.5), yticks=[])
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
