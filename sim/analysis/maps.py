"""From the flat table of a sweep to grids: which strategy is fastest where, and by how much."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sim.analysis.grid import LOADS
from sim.scenario.overrides import canonical

Floats = npt.NDArray[np.float64]
Kind = Literal["users", "rate", "k", "acceptance", "other"]

FINE = 161
"""Places along each axis of an interpolated map."""
LOG_FROM = 8.0
"""Ratio of the largest to the smallest load from which on its axis is logarithmic."""
TITLES = {
    "users": "users",
    "rate": "requests offered a second",
    "k": "K, tokens drafted a step",
}
ACCEPTANCE = {"alpha": "acceptance alpha", "tau": "tokens a step (tau)"}


class Axis(NamedTuple):
    """A varied number.

    Attributes
    ----------
    column : str
        Of the table: the varied key, or keys, as written.
    values : ndarray
        Rising.
    kind : str
        What it stands for.
    title : str
        What a picture calls it.
    """

    column: str
    values: Floats
    kind: Kind
    title: str

    @property
    def log(self) -> bool:
        """Whether it is drawn, and interpolated, logarithmically: loads over a wide range."""
        lo, hi = self.values[0], self.values[-1]
        return self.kind in ("users", "rate") and bool(lo > 0 and hi >= LOG_FROM * lo)

    def places(self, values: Any = None) -> Floats:
        """Values as they are interpolated; default its own."""
        found = np.asarray(self.values if values is None else values, dtype=float)
        return np.log(found) if self.log else found

    def fine(self) -> Floats:
        """Evenly spaced values to draw at, shape (FINE,)."""
        even = np.linspace(self.places()[0], self.places()[-1], FINE)
        return np.exp(even) if self.log else even

    def chosen(self, at: Mapping[str, float]) -> float | None:
        """What an operating point says of this axis, by any of its keys."""
        names = {canonical(part.strip()) for part in self.column.split(",")}
        return next((float(at[key]) for key in at if canonical(key) in names), None)


class Sweep(NamedTuple):
    """A results table by strategy.

    Attributes
    ----------
    axes : tuple of Axis
        The varied numbers that take two values or more.
    words : tuple of str
        Varied columns that hold no numbers.
    strategies : tuple of str
        Their names, in the order of the scenario; what varies is left out of a name, and one that
        the engine cannot run is said to be hypothetical.
    baseline : int or None
        Index of plain decoding; None where it was left out, and there are no speedups.
    columns : mapping
        Numbers of each column, shape (strategies, points); NaN where there is none.
    closed_loop : bool
        Whether users wait for their answers: gains are then of tokens a second.
    """

    axes: tuple[Axis, ...]
    words: tuple[str, ...]
    strategies: tuple[str, ...]
    baseline: int | None
    columns: Mapping[str, Floats]
    closed_loop: bool

    def of(self, name: str) -> Floats:
        """A column, shape (strategies, points); NaN throughout where the table lacks it."""
        some = next(iter(self.columns.values()))
        return self.columns.get(name, np.full(some.shape, np.nan))

    def rates(self) -> Floats:
        """What gains are ratios of: tokens a second of a GPU, or of a user; NaN if saturated."""
        name = "tok_per_s_per_gpu" if self.closed_loop else "tpot_s_mean"
        values = np.where(self.of("saturated") > 0, np.nan, self.of(name))
        values = np.where(values > 0, values, np.nan)
        return values if self.closed_loop else 1 / values

    def gains(self) -> Floats:
        """Speedups over plain decoding at the same load, that of plain decoding being 1."""
        rates = self.rates()
        if self.baseline is None:
            return np.full(rates.shape, np.nan)
        return np.asarray(rates / rates[self.baseline])

    def band(self) -> tuple[Floats, Floats]:
        """Ends of the band of each speedup; both are the speedup where it has none.

        Where the slow end saturates, the band reaches below 1, and as far as it reaches above.
        """
        gains, lo, hi = self.gains(), self.of("speedup_lo"), self.of("speedup_hi")
        mirrored = np.fmin(gains**2 / hi, 0.99)
        lo = np.where(np.isnan(lo), np.where(np.isnan(hi), gains, mirrored), lo)
        return np.where(np.isnan(gains), np.nan, lo), np.where(np.isnan(hi), gains, hi)


def read(results: pa.Table) -> Sweep:
    """Take a results table apart.

    Parameters
    ----------
    results : pyarrow.Table
        A row a point and strategy, in order of points: ``point``, a column a varied key,
        ``strategy``, then metrics. All strategies of a point are there.
    """
    names = results.column_names
    varied = names[names.index("point") + 1 : names.index("strategy")]
    points = np.asarray(results.column("point"))
    count = int(np.sum(points == points[0])) if len(points) else 0
    told = results.column("strategy").to_pylist()
    labels = [told[place :: max(count, 1)] for place in range(count)]
    columns = {
        name: _numbers(results.column(name)).reshape(-1, max(count, 1)).T
        for name in names
        if name != "strategy" and _numeric(results.schema.field(name).type)
    }
    axes = [
        _axis(name, np.unique(columns[name])) for name in varied if name in columns and len(points)
    ]
    offered = columns.get("offered_req_per_s")
    plain = columns.get("baseline", np.zeros((count, 1)))
    hypothetical = columns.get("hypothetical", np.zeros((count, 1)))
    unreal = [" (hypothetical)" if (row > 0).any() else "" for row in hypothetical[:count]]
    return Sweep(
        axes=tuple(axis for axis in axes if len(axis.values) > 1),
        words=tuple(name for name in varied if name not in columns),
        strategies=_distinct(
            [_common(row) + said for row, said in zip(labels, unreal, strict=True)]
        ),
        baseline=next((i for i, row in enumerate(plain[:count]) if row.any()), None),
        columns=columns,
        closed_loop=offered is None or bool(np.isnan(offered).all()),
    )


def _numeric(kind: pa.DataType) -> bool:
    return any(
        test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    )


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.array([np.nan if v is None else float(v) for v in column.to_pylist()], dtype=float)


def _axis(column: str, values: Floats) -> Axis:
    first = canonical(column.partition(",")[0].strip())
    last = first.rpartition(".")[2]
    values = values[~np.isnan(values)]
    if last in LOADS:
        kind: Kind = "users" if last == "users" else "rate"
        return Axis(column, values, kind, TITLES[kind])
    if last == "k":
        return Axis(column, values, "k", TITLES["k"])
    if ".acceptance." in first:
        return Axis(column, values, "acceptance", ACCEPTANCE.get(last, last))
    return Axis(column, values, "other", last)


def _common(labels: Sequence[str]) -> str:
    """What the names of one strategy share: ``eagle3`` of ``eagle3 K=1`` and ``eagle3 K=3``."""
    different = list(dict.fromkeys(map(str, labels)))
    if len(different) == 1:
        return different[0]
    same = itertools.takewhile(
        lambda letters: len(set(letters)) == 1, zip(*different, strict=False)
    )
    shared = "".join(letters[0] for letters in same)
    return shared.rpartition(" ")[0] or shared or different[0]


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names)
    )
