"""What sequences that switch did in each mode, from the table of modes over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.tables import Columns

Floats = npt.NDArray[np.float64]

MOST_BINS = 100
MOST_LINES = 3
COUNTS = ("steps", "emitted", "accepted", "reached", "offered", "drafted")
RATIOS = {
    "alpha": ("accepted", "reached"),
    "acceptance": ("accepted", "offered"),
    "tau": ("emitted", "steps"),
}
"""What a gate may watch: the first over the second."""


def by_mode(runs: Sequence[Columns]) -> dict[str, dict[str, Any]]:
    """Sums and means of each mode.

    Parameters
    ----------
    runs : sequence of Columns
        Tables of modes, one a replication.

    Returns
    -------
    dict
        By mode, in the order of the strategy: ``share`` of the time sequences decoded, ``steps``,
        ``alpha`` (draft tokens accepted over those reached, the first refused one included),
        ``acceptance`` (over levels offered) and ``tau`` (tokens a step); None where there was
        none.
    """
    names = dict.fromkeys(str(name) for run in runs for name in run["mode"])
    sums = {name: _sums(runs, name) for name in names}
    whole = sum(one["sequence_s"] for one in sums.values())
    return {
        name: {
            "share": one["sequence_s"] / whole if whole else None,
            "steps": round(one["steps"]),
            **{name: _ratio(one[above], one[below]) for name, (above, below) in RATIOS.items()},
        }
        for name, one in sums.items()
    }


def _sums(runs: Sequence[Columns], mode: str) -> dict[str, float]:
    found = {"sequence_s": 0.0, **dict.fromkeys(COUNTS, 0.0)}
    for run in runs:
        own = run["mode"] == mode
        found["sequence_s"] += float((run["running"] * run["width_s"])[own].sum())
        for name in COUNTS:
            found[name] += float(run[name][own].sum())
    return found


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


class Course(NamedTuple):
    """Modes over time: bin ``i`` lasts from ``edges[i]`` to ``edges[i + 1]`` [s].

    Attributes
    ----------
    edges : array, shape (bins + 1,)
    names : tuple of str
        Modes.
    running : array, shape (modes, bins)
        Mean sequences in each.
    counts : dict of arrays, shape (modes, bins)
        Sums by name, as in the table.
    """

    edges: Floats
    names: tuple[str, ...]
    running: Floats
    counts: dict[str, Floats]

    @property
    def shares(self) -> Floats:
        """Share of the sequences in each mode, shape (modes, bins); 0 where none decoded."""
        return _divided(self.running, self.running.sum(axis=0), 0.0)

    def readings(self, measure: str) -> dict[str, Floats]:
        """One of ``RATIOS`` of the modes that draft; NaN where none ran.

        Of more than three such modes all together, as ``all modes``.
        """
        part, whole = RATIOS[measure]
        drafts = self.counts["offered"].sum(axis=1) > 0
        above, below = self.counts[part][drafts], self.counts[whole][drafts]
        if drafts.sum() > MOST_LINES:
            above, below = above.sum(axis=0)[None], below.sum(axis=0)[None]
            return {"all modes": _divided(above, below)[0]}
        names = np.array(self.names, dtype=object)[drafts]
        return dict(zip(names, _divided(above, below), strict=True))


def _divided(part: Floats, whole: Floats, otherwise: float = np.nan) -> Floats:
    result: Floats = np.divide(part, whole, out=np.full(part.shape, otherwise), where=whole > 0)
    return result


def course(columns: Columns, most: int = MOST_BINS) -> Course:
    """Modes of one run over time, all replicas together.

    Widths of bins are powers of two of one another, so the widest hold all the others.

    Parameters
    ----------
    columns : Columns
        The table of modes of one run, with at least a row.
    most : int
        Most bins returned.
    """
    names = tuple(dict.fromkeys(str(name) for name in columns["mode"]))
    width_s, last_s = float(columns["width_s"].max()), float(columns["start_s"].max())
    width_s *= -(-(int(last_s / width_s) + 1) // most)
    place = (columns["start_s"] / width_s).astype(np.int64)
    bins = int(place.max()) + 1
    codes = {name: code for code, name in enumerate(names)}
    mode = np.array([codes[str(name)] for name in columns["mode"]])

    def summed(values: Floats) -> Floats:
        sums = np.zeros((len(names), bins))
        np.add.at(sums, (mode, place), values)
        return sums

    return Course(
        np.arange(bins + 1, dtype=np.float64) * width_s,
        names,
        summed(columns["running"] * columns["width_s"] / width_s),
        {name: summed(columns[name]) for name in COUNTS},
    )


def sent_share(arrival_s: Floats) -> Floats:
    """Share of the requests sent before each one, 0 to 1, shape (requests,)."""
    share = np.empty(len(arrival_s))
    share[np.argsort(arrival_s, kind="stable")] = np.arange(len(arrival_s)) / max(len(arrival_s), 1)
    return share


def p95_along(
    places: Floats, values: Floats, least: int = 20, most: int = 40
) -> tuple[Floats, Floats]:
    """95th percentile of a latency along a run: middles of bins of requests, and values [s].

    Parameters
    ----------
    places, values : array, shape (requests,)
        When a request came, in any unit; its latency, NaN where it has none.
    least : int
        Requests a bin holds; with fewer in all there is one bin.
    most : int
        Most bins.
    """
    known = ~np.isnan(values)
    order = np.argsort(places[known], kind="stable")
    places, values = places[known][order], values[known][order]
    bins = min(max(len(values) // least, 1), most)
    parts = [part for part in np.array_split(np.arange(len(values)), bins) if part.size]
    middles = [float(np.median(places[part])) for part in parts]
    return np.array(middles), np.array([float(np.quantile(values[part], 0.95)) for part in parts])
