"""Speedups of every strategy over two varied numbers, and what lies between those simulated."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.interpolate import PchipInterpolator
from scipy.ndimage import distance_transform_edt

from sim.analysis.maps import Axis, Floats, Sweep


class Map(NamedTuple):
    """Speedups of every strategy over two axes.

    Attributes
    ----------
    x, y : Axis
    rates, lo, hi : ndarray
        Logarithms of the rate of each strategy, and of the ends of the band of its speedup, shape
        (strategies, y, x); NaN where it saturates or was not simulated.
    baseline : int
    """

    x: Axis
    y: Axis
    rates: Floats
    lo: Floats
    hi: Floats
    baseline: int

    def gains(self) -> Floats:
        """Logarithms of the speedups, that of plain decoding being 0."""
        return np.asarray(self.rates - self.rates[self.baseline])

    def finer(self) -> Map:
        """Interpolate to FINE places along each axis."""
        x, y = (axis._replace(values=axis.fine()) for axis in (self.x, self.y))
        return self._between(x.values, y.values)._replace(x=x, y=y)

    def at(self, x: float, y: float) -> Map | None:
        """Interpolate to one place, of shape (strategies, 1, 1); None outside the map."""
        inside = [
            axis.values[0] <= value <= axis.values[-1] for axis, value in ((self.x, x), (self.y, y))
        ]
        return self._between([x], [y]) if all(inside) else None

    def _between(self, x: Any, y: Any) -> Map:
        to = self.y.places(y), self.x.places(x)
        nodes = self.y.places(), self.x.places()
        rates, lo, hi = (
            np.array([_interpolated(nodes, values, to) for values in stack])
            for stack in (self.rates, self.lo, self.hi)
        )
        return self._replace(rates=rates, lo=lo, hi=hi)

    def lead(self, index: int) -> Floats:
        """By how much a strategy is ahead of the fastest other; below 0 where it is behind.

        NaN where none is served. A strategy that saturates is behind all that do not.
        """
        others = np.delete(self.rates, index, axis=0)
        behind = np.where(np.isnan(self.rates).all(axis=0), np.nan, -np.inf)
        best = np.where(np.isnan(others).all(axis=0), -np.inf, _largest(others))
        lead = np.where(np.isnan(self.rates[index]), behind, self.rates[index] - best)
        return np.clip(lead, -1.0, 1.0)

    def fastest(self) -> npt.NDArray[np.int_]:
        """Index of the fastest strategy, shape (y, x); of plain decoding where none is served."""
        served = np.where(np.isnan(self.rates), -np.inf, self.rates)
        found = np.argmax(served, axis=0)
        return np.where(np.isinf(served).all(axis=0), self.baseline, found)

    def undecided(self) -> Floats:
        """Above 0 where the band of the fastest drafting strategy holds both 1 and others.

        Negative where it is all above 1 or all below.
        """
        drafting = [i for i in range(len(self.rates)) if i != self.baseline]
        rates = np.where(np.isnan(self.rates[drafting]), -np.inf, self.rates[drafting])
        first = np.argmax(rates, axis=0)[np.newaxis]
        lo, hi = (np.take_along_axis(a[drafting], first, 0)[0] for a in (self.lo, self.hi))
        return np.asarray(np.fmin(hi, -lo))


def _largest(stack: Floats) -> Floats:
    return np.asarray(np.fmax.reduce(stack, axis=0))


Pair = tuple[Floats, Floats]


def _interpolated(nodes: Pair, values: Floats, to: Pair) -> Floats:
    """Values between the nodes; NaN nearest to a node that has none.

    Monotone between neighbours along each axis. Beside a node without a value those of the nearest
    node that has one are taken, so that a map ends half way and not before.
    """
    missing = np.isnan(values)
    if missing.all():
        return np.full((len(to[0]), len(to[1])), np.nan)
    if missing.any():
        nearest = distance_transform_edt(missing, return_distances=False, return_indices=True)
        values = values[tuple(nearest)]
    found = values
    for which, (axis, places) in enumerate(zip(nodes, to, strict=True)):
        found = PchipInterpolator(axis, found, which)(places)
    near = [
        np.abs(axis[:, None] - places).argmin(axis=0)
        for axis, places in zip(nodes, to, strict=True)
    ]
    found[missing[np.ix_(*near)]] = np.nan
    return np.asarray(found)


def grid(sweep: Sweep, x: Axis, y: Axis) -> Map:
    """Speedups over two axes, of a sweep that has plain decoding."""
    assert sweep.baseline is not None
    lo, hi = sweep.band()
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [np.log(values) for values in (sweep.rates(), lo, hi)]
    rates, low, high = (over(sweep, x, y, values) for values in logs)
    return Map(x, y, rates, low, high, sweep.baseline)


def over(sweep: Sweep, x: Axis, y: Axis, values: Floats) -> Floats:
    """Values of shape (strategies, points) over two axes, shape (strategies, y, x)."""
    column = np.searchsorted(x.values, sweep.columns[x.column][0])
    row = np.searchsorted(y.values, sweep.columns[y.column][0])
    found = np.full((len(values), len(y.values), len(x.values)), np.nan)
    found[:, row, column] = values
    return found
