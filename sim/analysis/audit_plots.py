"""Picture of one audited claim: what the model predicts in every case, and the range claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.analysis import axes, plots
from sim.analysis.palette import BAD, MUTED, PAPER, SHADES
from sim.analysis.sheet import Sheet, name

GOOD, ACCENT = SHADES["good"].light, SHADES["accent"].light
MOST_PANELS = 4
HEIGHT = 190
ROOM = 0.12
"""Of the span of what is drawn, left free above and below it."""
WIDE = 30.0
"""From this ratio of the largest to the smallest figure on, the axis is logarithmic."""
LETTERS_A_ROW = 74
"""Of all labels of a panel together; more of them are tilted."""


def claim(panels: Sequence[Mapping[str, Any]], question: str, varied: str) -> Any:
    """A panel a figure: predictions with their bands over the cases tried.

    Parameters
    ----------
    panels : sequence of mapping
        ``title``, ``unit`` (as shown), ``claimed`` (two ends, either None), ``outer`` (the same
        with the tolerance) and ``dots``: ``label``, ``value``, ``lo``, ``hi``, ``agrees`` and
        ``plausible`` of each, in the unit shown.
    question : str
        Stands above.
    varied : str
        What the cases differ in: the title of the x axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = panels[:MOST_PANELS]
    columns = min(len(shown), 2)
    with plots.blank() as figure:
        tilted = any(_crowded(panel["dots"], columns) for panel in shown)
        foot = 96 if tilted else 44
        sheet = Sheet(figure, len(shown), columns, HEIGHT, legend=1, left=56, foot=foot)
        for panel in shown:
            ax = sheet.panel()
            _panel(ax, panel, tilted)
            ax.set_xlabel(axes.short(varied, 60), fontsize=10.5, color=MUTED)
            name(ax, axes.short(str(panel["title"]), 40), panel["unit"].strip())
        sheet.ask(
            axes.short(question, 100),
            "A dot is a prediction, its line the 90 % band. Green: the range claimed, paler with "
            "its tolerance.",
        )
        if entries := _legend(figure, shown):
            sheet.legend(entries)
    return figure


def _crowded(dots: Sequence[Mapping[str, Any]], columns: int) -> bool:
    letters = sum(len(dot["label"]) + 2 for dot in dots)
    return letters > LETTERS_A_ROW * 2 / (columns + 1)


def _panel(ax: Any, panel: Mapping[str, Any], tilted: bool) -> None:
    dots = panel["dots"]
    at = np.arange(len(dots), dtype=float)
    lo, hi = _span(panel)
    for ends, alpha in ((panel["outer"], 0.1), (panel["claimed"], 0.2)):
        if ends == [None, None]:
            continue
        least, most = (lo if ends[0] is None else ends[0]), (hi if ends[1] is None else ends[1])
        if least == most:
            ax.axhline(least, color=GOOD, linewidth=1.4)
        ax.axhspan(max(least, lo), min(most, hi), color=GOOD, alpha=alpha, linewidth=0)
    for place, dot in zip(at, dots, strict=True):
        if dot["value"] is not None:
            _dot(ax, place, dot)
        else:
            ax.text(place, lo + (hi - lo) * 0.03, "none", ha="center", color=MUTED, fontsize=10)
    if lo > 0 and hi / lo > WIDE:
        axes.log(ax, "y", lo, hi)
    else:
        ax.set_ylim(lo, hi)
    turn: dict[str, Any] = {"rotation": 28, "ha": "right", "rotation_mode": "anchor"}
    labels = [axes.short(dot["label"], 22) for dot in dots]
    ax.set_xticks(at, labels, **(turn if tilted else {}))
    ax.set_xlim(-0.6, len(dots) - 0.4)
    ax.grid(visible=False, axis="x")


def _dot(ax: Any, place: float, dot: Mapping[str, Any]) -> None:
    colour = BAD if dot["agrees"] is False else ACCENT
    if dot["lo"] is not None or dot["hi"] is not None:
        bottom, top = ax.get_ylim() if None in (dot["lo"], dot["hi"]) else (0, 0)
        ends = [dot["lo"] if dot["lo"] is not None else bottom, dot["hi"] or top]
        ax.plot([place, place], ends, color=colour, linewidth=2.2, alpha=0.45)
    fill = colour if dot["plausible"] else PAPER
    style = {"marker": "X" if dot["agrees"] is False else "o", "markersize": 8.5, "linestyle": ""}
    ax.plot([place], [dot["value"]], markerfacecolor=fill, markeredgecolor=colour, **style)


def _span(panel: Mapping[str, Any]) -> tuple[float, float]:
    """Ends of the y axis: everything drawn, with room."""
    drawn = [value for dot in panel["dots"] for value in (dot["value"], dot["lo"], dot["hi"])]
    known = [value for value in (*drawn, *panel["claimed"]) if value is not None]
    if not known:
        return 0.0, 1.0
    lo, hi = min(known), max(known)
    if lo > 0 and hi / lo > WIDE:
        return lo / 1.5, hi * 1.5
    room = ROOM * ((hi - lo) or abs(hi) or 1.0)
    floor = 0.0 if 0 <= lo < 0.5 * hi else lo - room
    return floor, hi + room


def _legend(figure: Any, panels: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    dots = [dot for panel in panels for dot in panel["dots"]]
    entries = []
    for label, colour, fill, marker, wanted in (
        ("agrees", ACCENT, ACCENT, "o", [d for d in dots if d["agrees"]]),
        ("does not", BAD, BAD, "X", [d for d in dots if d["agrees"] is False]),
        ("hollow: not plausible", MUTED, PAPER, "o", [d for d in dots if not d["plausible"]]),
    ):
        if wanted:
            (mark,) = figure.axes[0].plot(
                [], [], marker=marker, linestyle="", markerfacecolor=fill, markeredgecolor=colour
            )
            entries.append((label, mark))
    return entries
