"""What happened over simulated time, thinned to what a picture can show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.tables import Columns

Floats = npt.NDArray[np.float64]

MOST_BINS = 150

QUANTITIES = {
    "waiting": "requests waiting",
    "running": "sequences running",
    "kv_use": "KV blocks in use, %",
    "tau": "tau, tokens a step",
    "preemptions": "preemptions",
}
"""Columns a picture can show, and the title of its axis."""


class Course(NamedTuple):
    """One quantity over time: ``values[i]`` holds from ``edges[i]`` to ``edges[i + 1]`` [s]."""

    edges: Floats
    values: Floats


def course(columns: Columns, quantity: str, most: int = MOST_BINS) -> Course:
    """One quantity of a timeline table, all replicas together.

    Requests waiting and running and preemptions add up over replicas, KV use is averaged, tau is
    weighted by steps. Neighbouring bins are joined until at most ``most`` are left.

    Parameters
    ----------
    columns : Columns
        The timeline table of one run.
    quantity : str
        One of ``QUANTITIES``.
    most : int
        Most bins returned.

    Returns
    -------
    Course
        Tau is NaN where nothing was decoded.
    """
    starts, bin_of = np.unique(columns["start_s"], return_inverse=True)
    if not starts.size:
        return Course(np.zeros(0), np.zeros(0))
    joined = -(-len(starts) // most)
    group = bin_of // joined
    edges = np.append(starts[::joined], np.max(columns["start_s"] + columns["width_s"]))
    return Course(edges, _values(columns, quantity, group, np.diff(edges)))


def _values(
    columns: Columns, quantity: str, group: npt.NDArray[np.int64], lengths_s: Floats
) -> Floats:
    n = len(lengths_s)
    values = columns[quantity].astype(np.float64)
    if quantity == "preemptions":
        return np.asarray(np.bincount(group, values, n), dtype=np.float64)
    weights = columns["steps" if quantity == "tau" else "width_s"].astype(np.float64)
    known = ~np.isnan(values) & (weights > 0)
    weights = np.where(known, weights, 0.0)
    total = np.bincount(group, np.where(known, values, 0.0) * weights, n)
    weight = np.bincount(group, weights, n)
    if quantity in ("waiting", "running"):
        return np.asarray(total / lengths_s)
    mean: Floats = np.divide(total, weight, out=np.full(n, np.nan), where=weight > 0)
    return mean
