"""Pictures of real decoding runs: what is accepted, what a step takes, and what was forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from sim.analysis import axes, plots
from sim.analysis.palette import BAD, INK, PAPER, SHADES
from sim.analysis.sheet import Sheet, name

MEASURED, FORECAST = SHADES["series-1"].light, SHADES["series-2"].light
DOT: dict[str, Any] = {"color": MEASURED, "marker": "o", "linestyle": "", "zorder": 3}
RING: dict[str, Any] = {
    "marker": "o",
    "linestyle": "",
    "markerfacecolor": "none",
    "markeredgecolor": FORECAST,
    "markeredgewidth": 1.6,
    "zorder": 3,
}
PARTS = {
    "draft": SHADES["part-draft"].light,
    "verify": SHADES["part-weights"].light,
    "sample": SHADES["part-sampling"].light,
    "host": SHADES["part-host"].light,
}
"""Colours of the parts of a step, in the order they are stacked."""
ASIDE = 0.09
"""How far the two marks of a domain stand off its tick."""
ROW = 46
"""Height of the two bars of one strategy [px]."""


def acceptance(frame: pd.DataFrame) -> Any:
    """Tokens a step by domain with their confidence interval, and those of the fitted sampler.

    Parameters
    ----------
    frame : DataFrame
        A row a strategy and domain: ``strategy``, ``domain``, ``tau``, ``lo``, ``hi``, ``fitted``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    with plots.blank() as figure:
        sheet, drawn = _panels(figure, frame)
        top = 1.06 * float(frame["hi"].max())
        for ax, part in drawn:
            at = np.arange(len(part), dtype=float)
            bar = {"color": MEASURED, "linewidth": 2.4, "alpha": 0.45}
            ax.vlines(at - ASIDE, part["lo"], part["hi"], **bar)
            _marks(ax, at, part["tau"], part["fitted"])
            ax.set_ylim(0.9, top)
        sheet.ask(
            "How many tokens does a step emit?",
            "Dots: measured, with 95 % intervals over requests. Rings: drawn from the acceptance "
            "fitted to them, as the simulator does.",
        )
        _legend(sheet, figure, "fitted sampler")
    return figure


def speedups(frame: pd.DataFrame) -> Any:
    """Speedup over plain decoding by domain, measured and forecast.

    Parameters
    ----------
    frame : DataFrame
        A row a strategy and domain: ``strategy``, ``domain``, ``measured``, ``forecast``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    with plots.blank() as figure:
        sheet, drawn = _panels(figure, frame)
        both = frame[["measured", "forecast"]].to_numpy(float)
        bottom, top = 0.9 * np.nanmin(both), 1.1 * max(1.0, np.nanmax(both))
        for ax, part in drawn:
            ax.axhspan(bottom, 1, color=BAD, alpha=0.09, linewidth=0)
            ax.axhline(1, color=BAD, linewidth=1)
            at = np.arange(len(part), dtype=float)
            _marks(ax, at, part["measured"], part["forecast"])
            axes.log(ax, "y", bottom, top)
        sheet.ask(
            "Does it pay on this device, and was that forecast?",
            "Time per token of plain decoding over the strategy's, batch 1. Red: slower than "
            "without.",
        )
        _legend(sheet, figure, "forecast")
    return figure


def step_parts(frame: pd.DataFrame) -> Any:
    """Mean time of a step by part, measured above forecast, a pair of bars a strategy.

    Parameters
    ----------
    frame : DataFrame
        A row a strategy and ``kind`` (``measured`` or ``forecast``), with ``draft_s``,
        ``verify_s``, ``sample_s`` and ``host_s`` [s].

    Returns
    -------
    matplotlib.figure.Figure
    """
    strategies = list(dict.fromkeys(frame["strategy"]))
    with plots.blank() as figure:
        sheet = Sheet(figure, 1, 1, ROW * len(strategies), legend=1, left=190)
        ax = sheet.panel()
        for place, strategy in enumerate(strategies):
            for shift, kind in ((-0.19, "measured"), (0.19, "forecast")):
                row = frame[(frame["strategy"] == strategy) & (frame["kind"] == kind)]
                end = _stacked(ax, place + shift, row, kind)
                text = {"va": "center", "fontsize": 10, "color": INK}
                ax.text(end, place + shift, f"  {end:.0f} {kind}", **text)
        total = 1e3 * frame[[f"{part}_s" for part in PARTS]].sum(axis=1).max()
        ax.set(xlim=(0, 1.25 * total), ylim=(len(strategies) - 0.5, -0.5))
        ax.set_yticks(range(len(strategies)), strategies)
        ax.grid(visible=False, axis="y")
        ax.set_xlabel("ms a step")
        sheet.ask(
            "Where does the time of a step go?",
            "Mean over all steps at batch 1. Above: measured; below, paler: forecast from kernels "
            "timed one by one.",
        )
        patches = [(part, ax.barh([0], [0], color=colour)[0]) for part, colour in PARTS.items()]
        sheet.legend(patches)
    return figure


def _stacked(ax: Any, place: float, row: pd.DataFrame, kind: str) -> float:
    """One bar of parts; where it ends [ms]."""
    left = 0.0
    for part, colour in PARTS.items():
        width = 1e3 * float(row[f"{part}_s"].sum())
        alpha = 1.0 if kind == "measured" else 0.55
        ax.barh(place, width, 0.34, left=left, color=colour, alpha=alpha, linewidth=0)
        left += width
    return left


def _panels(figure: Any, frame: pd.DataFrame) -> tuple[Sheet, Sequence[tuple[Any, pd.DataFrame]]]:
    """A panel a strategy, domains along x."""
    strategies = list(dict.fromkeys(frame["strategy"]))
    domains = list(dict.fromkeys(frame["domain"]))
    sheet = Sheet(figure, len(strategies), 4, 150, legend=1, left=36)
    drawn = []
    for strategy in strategies:
        part = frame[frame["strategy"] == strategy].set_index("domain").reindex(domains)
        ax = sheet.panel()
        ax.set_xticks(range(len(domains)), domains, fontsize=8.5)
        ax.set_xlim(-0.5, len(domains) - 0.5)
        ax.grid(visible=False, axis="x")
        name(ax, axes.short(str(strategy), 26))
        drawn.append((ax, part))
    return sheet, drawn


def _marks(ax: Any, at: Any, measured: pd.Series, forecast: pd.Series) -> None:
    ax.plot(at - ASIDE, measured.to_numpy(float), markeredgecolor=PAPER, **DOT)
    ax.plot(at + ASIDE, forecast.to_numpy(float), **RING)


def _legend(sheet: Sheet, figure: Any, forecast: str) -> None:
    ax = figure.axes[0]
    marks = [ax.plot([], [], **style)[0] for style in (DOT, RING)]
    sheet.legend(list(zip(("measured", forecast), marks, strict=True)))
