"""Points and weights that stand for a standard normal level."""

from __future__ import annotations

import numpy as np

from models.paths import Floats

REACH = 4.0
"""Levels beyond this many standard deviations are left out."""


def request_nodes(spacing: float) -> tuple[Floats, Floats]:
    """Evenly spaced points: exact as long as the spacing is below 1.5 sd of a request's level.

    Where a request has many steps its level is known closely, and the few points of a
    Gauss-Hermite rule would fall on either side of it.
    """
    count = int(np.ceil(REACH / spacing))
    points = np.linspace(-REACH, REACH, 2 * count + 1)
    weights = np.exp(-0.5 * points**2)
    return points, weights / weights.sum()


def spacing_for(told: float) -> float:
    """Spacing fine enough for a request that tells this much of its level at a spread of 1.

    Parameters
    ----------
    told : float
        Its Fisher information, the sum of ``p (1 - p)`` of all it tried.
    """
    return float(np.clip(1.5 / np.sqrt(max(told, 1e-9)), 0.08, 0.4))


def passage_nodes(count: int) -> tuple[Floats, Floats]:
    """Gauss-Hermite points: a passage is a few steps, its level is never known closely."""
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return points, weights / weights.sum()
