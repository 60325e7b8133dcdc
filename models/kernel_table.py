"""Measured kernels, interpolated between the sizes that were timed; nothing beyond them.

Interpolated is the ratio of measured time to a closed form, in logarithms: it is smoother than the
time, and exact at every size that was timed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.gemm import ALIGNED_ROWS

Array = NDArray[np.float64]
Form = Callable[[Array], Array]
"""Seconds of a closed form at tokens, or bytes."""

GemmForm = Callable[[Array, float, float], Array]
"""Seconds of a closed form at (m, n, k)."""

COLUMNS = (
    *("operation", "dtype", "m", "n", "k", "gpus", "message_bytes"),
    *("experts", "experts_per_token", "time_s"),
)
"""What is read of a row."""

WIDEST_GAP = 4.0
"""Largest ratio of two neighbouring sizes of a matrix between which something is known."""


class ExpertShape(NamedTuple):
    """Routed experts of one layer on one GPU: width and hidden size of each, and how many."""

    dtype: str
    n: float
    k: int
    experts: int
    experts_per_token: int


@dataclass(frozen=True)
class Curve:
    """Times of one kernel by the tokens, or bytes, it handles.

    Attributes
    ----------
    at : ndarray
        Tokens or bytes, rising, shape (points,).
    seconds : ndarray
        Measured times [s], shape (points,).
    """

    at: Array
    seconds: Array

    @classmethod
    def of(cls, at: NDArray[Any], seconds: Array) -> Curve:
        """Curve through timed calls in any order; repeats are averaged in logarithms."""
        places, which = np.unique(np.asarray(at, dtype=np.float64), return_inverse=True)
        mean = np.bincount(which, np.log(seconds)) / np.bincount(which)
        return cls(places, np.exp(mean))

    def log_ratio(self, at: Array, form: Form) -> Array:
        """Logarithm of measured over ``form``; NaN outside of what was timed."""
        known = np.log(self.seconds / form(self.at))
        inside = np.maximum(at, self.at[0])
        found = np.interp(np.log(inside), np.log(self.at), known, right=np.nan)
        return np.where(at < self.at[0], np.nan, found)


@dataclass(frozen=True)
class GemmTable:
    """Timed GEMMs of one type: a curve over m for every (n, k); shapes may be missing.

    Notes
    -----
    Piecewise linear in log m, and between shapes bilinear in log k and log n: first along k at the
    nearest n on both sides that have k between two of theirs, then along n.
    """

    curves: Mapping[tuple[float, float], Curve]

    @cached_property
    def _lines(self) -> dict[float, list[float]]:
        """The k timed at every n, both rising."""
        lines: dict[float, list[float]] = {}
        for n, k in sorted(self.curves):
            lines.setdefault(n, []).append(k)
        return lines

    def log_ratio(self, m: Array, n: float, k: float, form: GemmForm) -> Array:
        """Logarithm of measured over ``form`` at every ``m``; NaN outside of what was timed."""
        reaching = [line for line, sizes in self._lines.items() if _between(sizes, k)]
        place = _between(reaching, n)
        if place is None:
            return np.full(np.shape(m), np.nan)
        low, high, weight = place
        return _mixed(self._along(m, low, k, form), self._along(m, high, k, form), weight)

    def _along(self, m: Array, n: float, k: float, form: GemmForm) -> Array:
        place = _between(self._lines[n], k)
        assert place is not None
        low, high, weight = place
        return _mixed(self._at(m, n, low, form), self._at(m, n, high, form), weight)

    def _at(self, m: Array, n: float, k: float, form: GemmForm) -> Array:
        return self.curves[n, k].log_ratio(m, lambda rows: form(rows, n, k))


@dataclass(frozen=True)
class KernelTable:
    """All timed kernels of one device that may stand in for a closed form.

    Attributes
    ----------
    gemm : mapping
        By type.
    moe : mapping
        Over tokens, by shape.
    all_reduce : mapping
        Over bytes, by GPUs of the group.
    """

    gemm: Mapping[str, GemmTable]
    moe: Mapping[ExpertShape, Curve]
    all_reduce: Mapping[int, Curve]

    @classmethod
    def of(cls, rows: Mapping[str, NDArray[Any]]) -> KernelTable:
        """Table of timed kernels given as columns.

        Parameters
        ----------
        rows : mapping
            Those of ``COLUMNS``, each of shape (rows,). Other operations are left out; several
            rows of one size count as repeats. GEMMs of one token past a multiple of 16 are left
            out: just past a tile, they say nothing of the sizes that follow.
        """
        edges = (rows["operation"] == "gemm") & past_a_tile(rows["m"])
        rows = {name: values[~edges] for name, values in rows.items()}
        gemms: dict[str, dict[tuple[float, float], Curve]] = {}
        for (dtype, n, k), curve in _curves(rows, "gemm", "m", ("dtype", "n", "k")).items():
            gemms.setdefault(dtype, {})[float(n), float(k)] = curve
        experts = _curves(rows, "moe", "m", ExpertShape._fields)
        sums = _curves(rows, "all_reduce", "message_bytes", ("gpus",))
        return cls(
            gemm={dtype: GemmTable(curves) for dtype, curves in gemms.items()},
            moe={ExpertShape(*shape): curve for shape, curve in experts.items()},
            all_reduce={gpus: curve for (gpus,), curve in sums.items()},
        )


def past_a_tile(m: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers of rows are one past a multiple of 16 and hence, perhaps, past a tile."""
    return np.asarray((m > ALIGNED_ROWS) & (m % ALIGNED_ROWS == 1))


def _curves(
    rows: Mapping[str, NDArray[Any]], operation: str, over: str, keys: Sequence[str]
) -> dict[tuple[Any, ...], Curve]:
    """A curve for each combination of ``keys`` among the rows of one operation."""
    mine = np.flatnonzero(rows["operation"] == operation)
    names = zip(*(rows[key][mine].tolist() for key in keys), strict=True)
    members: dict[tuple[Any, ...], list[int]] = {}
    for index, name in zip(mine.tolist(), names, strict=True):
        members.setdefault(name, []).append(index)
    return {
        name: Curve.of(rows[over][chosen], rows["time_s"][chosen])
        for name, chosen in members.items()
    }


def _between(sizes: Sequence[float], at: float) -> tuple[float, float, float] | None:
    """Neighbours of ``at`` among rising sizes, and how far it is towards the upper in logarithms.

    None outside of them, and where the neighbours are too far apart.
    """
    above = bisect_left(sizes, at)
    if above < len(sizes) and sizes[above] == at:
        return at, at, 0.0
    if not 0 < above < len(sizes):
        return None
    low, high = sizes[above - 1], sizes[above]
    if high > WIDEST_GAP * low:
        return None
    return low, high, math.log(at / low) / math.log(high / low)


def _mixed(low: Array, high: Array, weight: float) -> Array:
    return (1.0 - weight) * low + weight * high if weight else low
