"""Pictures of sequences that switch: acceptance and modes over time, and what it does to TPOT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.analysis import axes, plots
from sim.analysis.modes import Course, Floats
from sim.analysis.palette import BAD, MUTED, PAPER, SERIES, SHADES, Look, looks

PANEL, GAP = 110, 42
"""Height of a panel, and from one to the next, with a title between [px]."""
FEW = 12
"""Switches marked one by one; of more the rate is drawn."""
LEFT = 44
INNER = plots.WIDTH - LEFT - plots.RIGHT
TITLES = {
    "alpha": "draft tokens accepted of those reached, %",
    "acceptance": "accepted of levels offered, %",
    "tau": "tokens a step (tau)",
}


def modes_over_time(
    course: Course,
    switches_s: Sequence[float] | Floats,
    gate: Mapping[str, Any] | None = None,
    ax: Any = None,
) -> Any:
    """What drafting modes accept, the share of sequences in each mode, and switches.

    Parameters
    ----------
    course : Course
        Modes over time.
    switches_s : sequence of float
        When a gate switched [s].
    gate : mapping, optional
        ``measure``, ``leave_below`` and ``return_above`` of a gate: its thresholds are drawn.
    ax : Axes, optional
        The lowest panel; the others are put above it.
    """
    per_unit, unit = axes.duration_unit(float(course.edges[-1]))
    edges, many = course.edges * per_unit, len(switches_s) > FEW
    panels = 3 if many else 2
    with plots.drawing(ax, PANEL, LEFT, 26 + (panels - 1) * (PANEL + GAP)) as lowest:
        above = [_above(lowest, up) for up in range(panels - 1, 0, -1)]
        upper, shares = (above[0], above[1]) if many else (above[0], lowest)
        entries = _readings(upper, course, edges, gate or {"measure": "acceptance"})
        entries += _stack(shares, course, edges)
        if many:
            counts, _ = np.histogram(switches_s, course.edges)
            _steps(lowest, edges, counts / np.diff(edges), color=MUTED)
            axes.linear(lowest, "y")
        elif len(switches_s):
            lines = [shares.axvline(at * per_unit, **_MARK) for at in switches_s]
            entries.append(("a switch", lines[0]))
        for panel in (*above, lowest):
            axes.linear(panel, "x", edges[-1])
        axes.linear(shares, "y", 100)
        axes.finish(upper, "", TITLES[(gate or {}).get("measure", "acceptance")], [])
        last = f"switches a {unit}" if many else "sequences, %"
        if many:
            axes.finish(shares, "", "sequences, %", [])
        axes.finish(lowest, f"simulated time, {unit}", last, entries)
    return lowest


_MARK: Any = {"color": BAD, "linestyle": ":", "linewidth": 1.1}


def _above(lowest: Any, up: int) -> Any:
    """A panel that many places above the lowest one."""
    panel = lowest.inset_axes((0, up * (1 + GAP / PANEL), 1, 1))
    panel.yaxis.set_label_coords((6 - LEFT) / INNER, 1 + 8 / PANEL)
    panel.tick_params(labelbottom=False)
    return panel


def _colours(names: Sequence[str]) -> dict[str, str]:
    shades = [SHADES[name].light for name in SERIES[1:]]
    return {name: shades[place % len(shades)] for place, name in enumerate(names)}


def _steps(ax: Any, edges: Floats, values: Floats, **style: Any) -> Any:
    return ax.step(edges, np.append(values, values[-1:]), where="post", **style)[0]


def _readings(
    ax: Any, course: Course, edges: Floats, gate: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Readings of the modes that draft, and the thresholds of the gate."""
    entries: list[tuple[str, Any]] = []
    factor, colours = 1.0 if gate["measure"] == "tau" else 100.0, _colours(course.names)
    for name, values in course.readings(gate["measure"]).items():
        line = _steps(ax, edges, factor * values, color=colours.get(name, MUTED), linewidth=1.6)
        if name not in colours:
            entries.append((name, line))
    limits = {"leaves below": gate.get("leave_below"), "returns from": gate.get("return_above")}
    if limits["returns from"] == limits["leaves below"]:
        del limits["returns from"]
    for (text, limit), dashes in zip(limits.items(), ("--", ":"), strict=False):
        if limit is not None:
            line = ax.axhline(factor * limit, color=BAD, linestyle=dashes, linewidth=1.2)
            entries.append((f"{text} {factor * limit:g}{' %' if factor > 1 else ''}", line))
    axes.linear(ax, "y")
    return entries


def _stack(ax: Any, course: Course, edges: Floats) -> list[tuple[str, Any]]:
    """Shares of the modes that ran, one upon another."""
    entries: list[tuple[str, Any]] = []
    level, colours = np.zeros(len(edges) - 1), _colours(course.names)
    for name, share in zip(course.names, 100 * course.shares, strict=True):
        if share.any():
            ends = (np.append(each, each[-1:]) for each in (level, level + share))
            style: Any = {"color": colours[name], "edgecolor": PAPER, "linewidth": 0.4}
            entries.append((name, ax.fill_between(edges, *ends, step="post", alpha=0.8, **style)))
        level = level + share
    return entries


def tpot_over_time(
    lines: Mapping[str, tuple[Floats, Floats]],
    by_share: bool = False,
    ax: Any = None,
    look: Mapping[str, Look] | None = None,
) -> Any:
    """95th percentile of TPOT along a run, a line a strategy.

    Parameters
    ----------
    lines : mapping
        Places in the run and percentiles [s] of each strategy, as from ``modes.p95_along``.
    by_share : bool
        Places are shares of the requests, as in a closed loop, whose runs differ in length; else
        times [s].
    ax, look : optional
        Where to draw, and how each strategy looks.
    """
    look = look or looks(lines)
    last = max((float(times[-1]) for times, _ in lines.values() if times.size), default=1.0)
    per_unit, clock = axes.duration_unit(last)
    title = f"arrival, {clock}"
    if by_share:
        last, per_unit, title = 1.0, 100.0, "requests sent before, %"
    factor, unit = axes.time_unit(v for _, values in lines.values() for v in values)
    with plots.drawing(ax) as drawn:
        entries = []
        for label, (times, values) in lines.items():
            style = look[label].style() | {"linestyle": look[label].line, "markersize": 4}
            (line,) = drawn.plot(times * per_unit, values * factor, **style)
            line.set_markevery(max(len(times) // 8, 1))
            entries.append((label, line))
        axes.linear(drawn, "x", last * per_unit)
        axes.linear(drawn, "y")
        axes.finish(drawn, title, f"TPOT p95, {unit}", entries)
    return drawn
