"""Which maps a sweep has, with their titles and what to see in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sim.analysis import map_grid, map_plots
from sim.analysis.axes import short
from sim.analysis.figures import Looks, Picture
from sim.analysis.map_plots import Curve
from sim.analysis.maps import Axis, Floats, Sweep
from sim.analysis.palette import looks

MAPS = "Maps"
MOST_MAPS = 6
"""Strategies that get a map of their own."""
MOST_CURVES = 5
"""Values of K with a break-even curve each."""
BLANK = " Blank: saturated, nothing is promised there."


def pictures(sweep: Sweep, at: Mapping[str, float]) -> list[Picture]:
    """Draw what the varied numbers allow: maps over two, lines over one, else nothing.

    Parameters
    ----------
    sweep : Sweep
    at : mapping
        The operating point: values of varied keys.
    """
    if sweep.words or sweep.baseline is None or not drafting(sweep):
        return []
    look = looks(sweep.strategies, sweep.strategies[sweep.baseline])
    if len(sweep.axes) == 2:
        return list(_over_two(sweep, at, look))
    return list(_over_one(sweep, at, look)) if len(sweep.axes) == 1 else []


def drafting(sweep: Sweep) -> list[int]:
    """Indices of the strategies other than plain decoding."""
    return [index for index in range(len(sweep.strategies)) if index != sweep.baseline]


def ordered(sweep: Sweep) -> tuple[Axis, Axis]:
    """The two axes, that of the load first."""
    x, y = sweep.axes
    return (y, x) if y.kind in ("users", "rate") and x.kind not in ("users", "rate") else (x, y)


def _over_two(sweep: Sweep, at: Mapping[str, float], look: Looks) -> Iterator[Picture]:
    x, y = ordered(sweep)
    field = map_grid.grid(sweep, x, y)
    here = x.chosen(at), y.chosen(at)
    blank = BLANK if np.isnan(field.rates).any() else ""
    if not (y.kind == "k" and len(drafting(sweep)) == 1):
        yield Picture(
            "map_fastest",
            MAPS,
            "Which strategy is fastest where",
            "Colour: the fastest strategy. Lines: its speedup over plain decoding. Hatched: the "
            f"band of the speedup holds 1, so measure tau on your traffic.{blank}",
            map_plots.fastest(field, sweep.strategies, look, here).figure,
        )
    for index in _moved(sweep, field)[:MOST_MAPS]:
        best = " Circles: the best K at each load." if y.kind == "k" else ""
        yield Picture(
            f"map_speedup_{index}",
            MAPS,
            f"Speedup of {short(sweep.strategies[index], 40)}",
            "Over plain decoding at the same load. On the heavy line both are as fast."
            f"{best}{blank}",
            map_plots.speedup(field, index, here).figure,
        )
    if curves := _curves(sweep, x, y, here[1]):
        names = looks([curve.name for curve in curves]) if y.kind == "k" else look
        yield _break_even(x, curves, names, here[0], _slice(y, here[1]))


def _over_one(sweep: Sweep, at: Mapping[str, float], look: Looks) -> Iterator[Picture]:
    (x,) = sweep.axes
    order = np.argsort(sweep.columns[x.column][0])
    lo, hi = sweep.band()
    lines = {
        sweep.strategies[i]: (sweep.gains()[i][order], lo[i][order], hi[i][order])
        for i in drafting(sweep)
    }
    yield Picture(
        "line_speedup",
        MAPS,
        "Speedup over plain decoding",
        "Above the heavy line a strategy pays; where its shade holds that line it is undecided.",
        map_plots.along(x, lines, look, x.chosen(at)).figure,
    )
    needed, own = (sweep.of(name)[:, order] for name in ("break_even_tau", "tau"))
    curves = [Curve(sweep.strategies[i], needed[i], own[i]) for i in drafting(sweep)]
    if known := [curve for curve in curves if not np.isnan(curve.needed).all()]:
        yield _break_even(x, known, look, x.chosen(at), "")


def _break_even(
    x: Axis, curves: list[Curve], look: Looks, here: float | None, where: str
) -> Picture:
    return Picture(
        "break_even",
        MAPS,
        "Where each strategy breaks even",
        f"Solid: tokens a step needed to equal plain decoding{where}. Dashed: tokens a step it "
        "has. It pays while the dashed line is above.",
        map_plots.break_even(x, curves, look, here).figure,
    )


def _moved(sweep: Sweep, field: map_grid.Map) -> list[int]:
    """Drafting strategies whose speed depends on the second axis; all where none does."""
    moved = [
        index
        for index in drafting(sweep)
        if not np.allclose(field.rates[index], field.rates[index][:1], equal_nan=True)
    ]
    return moved or drafting(sweep)


def _nearest(y: Axis, value: float | None) -> int:
    """Row of the map for lines along the load: nearest the operating point, else the middle."""
    if value is None:
        return len(y.values) // 2
    return int(np.abs(y.places() - y.places([value])).argmin())


def _slice(y: Axis, value: float | None) -> str:
    return "" if y.kind == "k" else f", at {y.title} {y.values[_nearest(y, value)]:g}"


def _curves(sweep: Sweep, x: Axis, y: Axis, value: float | None) -> list[Curve]:
    """Break-even along the load: of every strategy, or of every K of the one there is."""
    needed, own = (map_grid.over(sweep, x, y, sweep.of(name)) for name in ("break_even_tau", "tau"))
    if y.kind == "k":
        return _of_every_k(sweep, y, needed, own)
    row = _nearest(y, value)
    found = [Curve(sweep.strategies[i], needed[i, row], own[i, row]) for i in drafting(sweep)]
    return _known(found)


def _of_every_k(sweep: Sweep, y: Axis, needed: Floats, own: Floats) -> list[Curve]:
    index = _first_moved(sweep, own)
    rows = np.unique(np.linspace(0, len(y.values) - 1, min(MOST_CURVES, len(y.values))).round())
    return _known(
        [
            Curve(f"K={y.values[row]:g}", needed[index, row], own[index, row])
            for row in rows.astype(int)
        ]
    )


def _first_moved(sweep: Sweep, own: Floats) -> int:
    moved: Any = [i for i in drafting(sweep) if not np.allclose(own[i], own[i][:1], equal_nan=True)]
    return int((moved or drafting(sweep))[0])


def _known(curves: list[Curve]) -> list[Curve]:
    return [curve for curve in curves if not np.isnan(curve.needed).all()]
