"""Maps of a sweep: the fastest strategy, the speedup of one, and where each breaks even."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sim.analysis import axes, plots
from sim.analysis.axes import finish
from sim.analysis.map_grid import Map
from sim.analysis.maps import Axis, Floats
from sim.analysis.palette import BAD, INK, MUTED, PAPER, SERIES, SHADES, Look

HEIGHT = 260
"""Of a map without its titles [px]."""
GOOD = SHADES["good"].light
REGION = 0.5
"""Opacity of the colour of a strategy on a map."""
SPEEDUPS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Contours drawn, break-even apart."""
SHADED = (0.25, 0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 8.0)
"""Levels between which the ground of a map has one shade."""
LONG = 20
"""Vertices a contour needs to bear its value."""
HERE: dict[str, Any] = {
    "marker": "*",
    "markersize": 15,
    "markerfacecolor": PAPER,
    "markeredgecolor": INK,
    "markeredgewidth": 1.4,
    "linestyle": "",
    "zorder": 6,
}
Entries = list[tuple[str, Any]]
Looks = Mapping[str, Look]


class Curve(NamedTuple):
    """Break-even of one strategy along a load.

    Attributes
    ----------
    name : str
    needed, own : ndarray
        Tau at which it equals plain decoding, and tau it has, shape (loads,); NaN where unknown.
    """

    name: str
    needed: Floats
    own: Floats


def fastest(
    field: Map,
    names: Sequence[str],
    look: Looks,
    at: tuple[float | None, float | None] = (None, None),
    ax: Any = None,
) -> Any:
    """Regions in the colour of the fastest strategy, contours of its speedup.

    Where the band of the fastest drafting strategy holds 1 it is hatched: undecided.

    Parameters
    ----------
    field : Map
    names : sequence of str
        Of the strategies.
    look : mapping
        How each of them is drawn.
    at : pair of float or None
        The operating point.
    ax : Axes, optional
    """
    fine = field.finer()
    x, y = fine.x.values, fine.y.values
    with plots.drawing(ax, HEIGHT) as drawn:
        entries: Entries = []
        for index, name in enumerate(names):
            lead = fine.lead(index)
            if (lead > 0).any():
                colour = _area(drawn, look[name].colour, REGION)
                drawn.contourf(x, y, lead, [0, 2], colors=[look[name].colour], alpha=REGION)
                entries.append((name, colour))
        undecided = fine.undecided()
        if (undecided > 0).any():
            marks: dict[str, Any] = {"colors": "none", "hatches": ["////"]}
            drawn.contourf(x, y, undecided, [0, 99], **marks)
            swatch = drawn.fill([], [], facecolor=MUTED, hatch="////", alpha=REGION, linewidth=0)
            entries.append(("undecided: band holds 1", swatch[0]))
        best, gains = fine.fastest(), fine.gains()
        own = [np.where(best == i, gain, np.nan) for i, gain in enumerate(gains)]
        entries += _contours(drawn, x, y, [own[i] for i in range(len(own)) if i != field.baseline])
        entries += _nodes(drawn, field)
        entries += _here(drawn, at)
        _frame(drawn, field.x, field.y, entries)
    return drawn


def speedup(
    field: Map,
    index: int,
    at: tuple[float | None, float | None] = (None, None),
    ax: Any = None,
) -> Any:
    """Contours of the speedup of one strategy, break-even heavy, the best of y marked at each x.

    Parameters
    ----------
    field : Map
    index : int
        Of the strategy.
    at, ax
        As of ``fastest``.
    """
    fine = field.finer()
    x, y, gains = fine.x.values, fine.y.values, fine.gains()[index]
    with plots.drawing(ax, HEIGHT) as drawn:
        for lo, hi in itertools.pairwise(SHADED):
            colour = BAD if hi <= 1 else GOOD
            depth = abs(np.log(lo if hi > 1 else hi)) + 0.12
            levels = [np.log(lo), np.log(hi)]
            drawn.contourf(x, y, gains, levels, colors=[colour], alpha=min(0.55 * depth, 0.7))
        entries: Entries = _contours(drawn, x, y, [gains]) + _heavy(drawn, x, y, gains)
        if field.y.kind == "k":
            entries += _best(drawn, field, index)
        entries += _nodes(drawn, field)
        entries += _here(drawn, at)
        if np.nanmax(gains, initial=0.0) > 0:
            entries.append(("faster than plain", _area(drawn, GOOD, 0.3)))
        if np.nanmin(gains, initial=0.0) < 0:
            entries.append(("slower", _area(drawn, BAD, 0.2)))
        _frame(drawn, field.x, field.y, entries)
    return drawn


def break_even(
    x: Axis,
    curves: Sequence[Curve],
    look: Looks,
    at: float | None = None,
    ax: Any = None,
) -> Any:
    """Tau each strategy needs to equal plain decoding, and the tau it has, against the load.

    Parameters
    ----------
    x : Axis
    curves : sequence of Curve
    look : mapping
        How each of them is drawn.
    at : float, optional
        The operating point.
    ax : Axes, optional
    """
    with plots.drawing(ax) as drawn:
        entries: Entries = []
        for curve in curves:
            style = look[curve.name].style()
            (line,) = drawn.plot(x.values, curve.needed, **style)
            entries.append((f"{curve.name}: needs", line))
            style |= {"linestyle": "--", "marker": "", "linewidth": 1.2}
            (line,) = drawn.plot(x.values, curve.own, **style)
            entries.append((f"{curve.name}: has", line))
            shade: dict[str, Any] = {"color": look[curve.name].colour, "alpha": 0.1, "linewidth": 0}
            pays = curve.own >= curve.needed
            drawn.fill_between(x.values, curve.needed, curve.own, pays, interpolate=True, **shade)
        entries += _here(drawn, (at, None))
        values = np.concatenate([[2.0], *((c.needed, c.own) for c in curves)], axis=None)
        drawn.set_ylim(0.9, 1.08 * float(np.nanmax(values)))
        _along(drawn, "x", x)
        finish(drawn, x.title, "tokens a step (tau)", entries)
    return drawn


def along(
    x: Axis,
    lines: Mapping[str, tuple[Floats, Floats, Floats]],
    look: Looks,
    at: float | None = None,
    ax: Any = None,
) -> Any:
    """Speedup of each strategy with its band, against the one number that varies.

    Parameters
    ----------
    x : Axis
    lines : mapping
        Speedup, low and high end of its band, by strategy, shape (values,).
    look, at, ax
        As of ``break_even``.
    """
    with plots.drawing(ax) as drawn:
        entries: Entries = []
        for name, (gains, lo, hi) in lines.items():
            entries.append((name, drawn.plot(x.values, gains, **look[name].style())[0]))
            shade: dict[str, Any] = {"color": look[name].colour, "alpha": 0.15, "linewidth": 0}
            drawn.fill_between(x.values, lo, hi, **shade)
        entries.append(
            ("as fast as plain decoding", drawn.axhline(1.0, color=INK, linewidth=2.0, zorder=1.5))
        )
        entries += _here(drawn, (at, None))
        axes.linear(
            drawn, "y", 1.1 * max(1.0, *(np.nanmax(h, initial=1) for _, _, h in lines.values()))
        )
        _along(drawn, "x", x)
        finish(drawn, x.title, "speedup (shade: its band)", entries)
    return drawn


def _area(ax: Any, colour: str, alpha: float) -> Any:
    return ax.fill([], [], color=colour, alpha=alpha, linewidth=0)[0]


def _contours(ax: Any, x: Floats, y: Floats, parts: Sequence[Floats]) -> Entries:
    """Lines of equal speedup with their values, in each part of a map."""
    style: dict[str, Any] = {"colors": [INK], "linewidths": 0.9, "linestyles": "solid"}
    drawn = False
    for gains in parts:
        lo, hi = np.nanmin(gains, initial=0.0), np.nanmax(gains, initial=0.0)
        found = [np.log(g) for g in SPEEDUPS if lo < np.log(g) < hi]
        if found:
            lines = ax.contour(x, y, gains, found, **style)
            _name(ax, lines)
            drawn = True
    return [("equal speedup", ax.plot([], [], color=INK, linewidth=0.9)[0])] if drawn else []


def _name(ax: Any, lines: Any) -> None:
    """Write the value of each line at the middle of its longest part, where that is long enough."""
    places = []
    for parts in lines.allsegs:
        longest = max(parts, key=len, default=())
        if len(longest) >= LONG:
            places.append(tuple(longest[len(longest) // 2]))
    if places:
        texts = {"fmt": lambda value: f"{np.exp(value):.3g}x", "fontsize": 9.5, "inline_spacing": 3}
        ax.clabel(lines, manual=places, **texts)


def _heavy(ax: Any, x: Floats, y: Floats, gains: Floats) -> Entries:
    """The line of break-even."""
    if not np.nanmin(gains, initial=0.0) < 0 < np.nanmax(gains, initial=0.0):
        return []
    ax.contour(x, y, gains, [0.0], colors=[INK], linewidths=2.6)
    return [("break-even", ax.plot([], [], color=INK, linewidth=2.6)[0])]


def _best(ax: Any, field: Map, index: int) -> Entries:
    """The y of the largest speedup at each x."""
    gains = field.gains()[index]
    served = ~np.isnan(gains).all(axis=0)
    best = field.y.values[np.nanargmax(gains[:, served], axis=0)]
    style: dict[str, Any] = {"color": SHADES[SERIES[2]].light, "marker": "o", "markersize": 8}
    (line,) = ax.plot(field.x.values[served], best, **style, linewidth=1.6, zorder=5)
    return [("best at this load", line)]


def _nodes(ax: Any, field: Map) -> Entries:
    """Where something was simulated; what lies between is interpolated."""
    x, y = np.meshgrid(field.x.values, field.y.values)
    served = ~np.isnan(field.rates).all(axis=0)
    dots: dict[str, Any] = {"linestyle": "", "marker": ".", "markersize": 5, "color": INK}
    (line,) = ax.plot(x[served], y[served], **dots, markeredgewidth=0, zorder=3)
    return [("simulated", line)]


def _here(ax: Any, at: tuple[float | None, float | None]) -> Entries:
    """The operating point, or a line across where only one of its numbers is known."""
    x, y = at
    if x is not None and y is not None:
        return [("your operating point", ax.plot([x], [y], **HERE)[0])]
    style: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.8, "zorder": 4}
    if x is not None:
        return [("your operating point", ax.axvline(x, **style))]
    return [("your operating point", ax.axhline(y, **style))] if y is not None else []


def _frame(ax: Any, x: Axis, y: Axis, entries: Entries) -> None:
    _along(ax, "x", x)
    _along(ax, "y", y)
    ax.grid(visible=False)
    finish(ax, x.title, y.title, entries)


def _along(ax: Any, which: str, axis: Axis) -> None:
    """Scale, ends and ticks: at the values themselves where they leave room."""
    lo, hi = axis.values[0], axis.values[-1]
    places = axis.places()
    gaps = np.diff(places)
    if axis.log:
        axes.log(ax, which, lo, hi)
    ax.set(**{f"{which}lim": (lo, hi)})
    if len(places) <= 9 and gaps.min() > 0.07 * gaps.sum():
        getattr(ax, f"set_{which}ticks")(axis.values, [f"{value:g}" for value in axis.values])
