"""Accuracy of Medusa heads by rank, for trees other than the one that ran."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.acceptance.interval import ratio
from calibration.acceptance.trace import Trace


class HeadRates(NamedTuple):
    """By head and rank.

    Attributes
    ----------
    rates : list of list of float
        Share of the times a level was reached in which its head's guess of that rank was the
        target's token.
    errors : list of list of (float or None)
        Their standard errors, requests being clusters.
    """

    rates: list[list[float]]
    errors: list[list[float | None]]


def head_rates(trace: Trace) -> HeadRates | None:
    """Conditional accuracy of each head and rank.

    A level is reached where all before it were accepted, so these are the rates of the paths this
    tree holds. None where no ranks were recorded, or a head was never reached.
    """
    if not any(trace.ranks):
        return None
    levels = [text.split() for text in trace.ranks]
    depth = max(map(len, levels))
    rates: list[list[float]] = []
    errors: list[list[float | None]] = []
    for level in range(depth):
        found = np.array(
            [int(row[level]) if len(row) > level and row[level] != "-" else -1 for row in levels]
        )
        reached = np.array([len(row) > level for row in levels])
        times = trace.sums(reached)
        pairs = [ratio(trace.sums(found == rank), times) for rank in range(_ranks(found))]
        rates.append([pair.value for pair in pairs])
        errors.append([pair.se for pair in pairs])
    return HeadRates(rates, errors)


def _ranks(found: np.ndarray) -> int:
    """Ranks looked at: two at least, so that a head can be extended to further ones."""
    return max(2, int(found.max()) + 1)
