"""Pictures of a calibration: times measured against times fitted, and their ratio below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.analysis import axes, plots
from sim.analysis.palette import MUTED, Look, looks

Floats = NDArray[np.float64]

UPPER, LOWER, GAP = 190, 76, 34
"""Heights of the times and of the ratios below them, and the space between both [px]."""
TITLE, LEFT = 44, 58
FARTHEST = 2.2
"""A ratio farther from 1 is not shown."""


class Curve(NamedTuple):
    """One shape: where it was timed, and times measured and fitted there [s]."""

    x: Floats
    measured_s: Floats
    fitted_s: Floats


class Ratio(NamedTuple):
    """Measured/fitted over all shapes: 5 %, 50 % and 95 % quantile at each ``x``."""

    x: Floats
    lo: Floats
    median: Floats
    hi: Floats


class Panel(NamedTuple):
    """What one pair of axes shows."""

    title: str
    x: str
    curves: Mapping[str, Curve]
    ratio: Ratio


def measured_against_fitted(panels: Sequence[Panel], columns: int = 3) -> Any:
    """A figure of panels side by side: times above, both axes logarithmic, and ratios below.

    Parameters
    ----------
    panels : sequence of Panel
        At least one.
    columns : int
        Panels in a row.

    Returns
    -------
    matplotlib.figure.Figure
    """
    columns = min(columns, len(panels))
    with plots.blank() as figure:
        pairs = []
        for index, panel in enumerate(panels):
            upper, lower = (figure.add_axes((0, 0, 1, 1), label=f"{index}{part}") for part in "ab")
            _times(upper, panel)
            _ratios(lower, panel)
            pairs.append((upper, lower))
        rows = [pairs[at : at + columns] for at in range(0, len(pairs), columns)]
        heights = [
            TITLE
            + UPPER
            + GAP
            + LOWER
            + plots.BOTTOM
            + max(axes.legend_height(lower) for _, lower in row)
            for row in rows
        ]
        size = columns * plots.WIDTH, sum(heights)
        figure.set_size_inches(size[0] / 72, size[1] / 72)
        top = 0.0
        for row, height in zip(rows, heights, strict=True):
            for column, (upper, lower) in enumerate(row):
                left = column * plots.WIDTH + LEFT
                _place(upper, left, top + TITLE, UPPER, size)
                _place(lower, left, top + TITLE + UPPER + GAP, LOWER, size)
            top += height
    return figure


def _times(ax: Any, panel: Panel) -> None:
    look = looks(panel.curves)
    for label, curve in panel.curves.items():
        style = look[label].style()
        ax.plot(curve.x, 1e6 * curve.fitted_s, color=style["color"], linewidth=1.4)
        ax.plot(curve.x, 1e6 * curve.measured_s, **style, linestyle="", markersize=4.5)
    times = np.concatenate([[*c.measured_s, *c.fitted_s] for c in panel.curves.values()])
    axes.log(ax, "y", 0.8e6 * times.min(), 1.25e6 * times.max())
    _same_x(ax, panel)
    ax.set_xticks([])
    axes.finish(ax, "", "time of a call, µs", [])
    ax.text(0, 1 + 28 / UPPER, panel.title, transform=ax.transAxes, weight="bold", va="bottom")


def _ratios(ax: Any, panel: Panel) -> None:
    ratio = panel.ratio
    ax.axhline(1, color=MUTED, linewidth=0.8)
    shade = ax.fill_between(ratio.x, ratio.lo, ratio.hi, color=MUTED, alpha=0.22, linewidth=0)
    (line,) = ax.plot(ratio.x, ratio.median, color=MUTED, linewidth=1.6)
    axes.log(ax, "y", 1 / FARTHEST, FARTHEST)
    ax.set_yticks([0.5, 0.7, 1, 1.4, 2], ["0.5", "0.7", "1", "1.4", "2"])
    _same_x(ax, panel)
    entries = [(label, _key(ax, look)) for label, look in looks(panel.curves).items()]
    entries += [("median of all shapes", line), ("5 to 95 % of them", shade)]
    axes.finish(ax, panel.x, "measured / fitted", entries)


def _key(ax: Any, look: Look) -> Any:
    (artist,) = ax.plot([], [], **look.style(), markersize=4.5)
    return artist


def _same_x(ax: Any, panel: Panel) -> None:
    x = np.concatenate([panel.ratio.x, *(curve.x for curve in panel.curves.values())])
    axes.log(ax, "x", 0.8 * x.min(), 1.25 * x.max())


def _place(ax: Any, left: float, top: float, height: float, size: tuple[float, float]) -> None:
    """Put an axes at a place given in pixels from the upper left corner of a figure."""
    inner = plots.WIDTH - LEFT - plots.RIGHT
    bottom = 1 - (top + height) / size[1]
    ax.set_position((left / size[0], bottom, inner / size[0], height / size[1]))
    ax.yaxis.set_label_coords((6 - LEFT) / inner, 1 + 6 / height)
    if legend := ax.get_legend():
        legend.set_bbox_to_anchor(((4 - LEFT) / inner, -plots.BOTTOM / height), ax.transAxes)
