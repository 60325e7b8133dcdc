"""Maximum of a likelihood with weak priors, and standard errors from its curvature there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from models.paths import Floats

Objective = Callable[[Floats], tuple[float, Floats]]
"""Parameters -> log posterior and its gradient."""

LOGIT_SD = 4.0
"""Prior of every logit: normal around 0. A rate of a few percent to 98 % is moved by less than a
third of one observation."""
SPREAD_SD = 1.0
"""Prior of spreads: half-normal, three times the usual spread of public traces. That between
requests has a factor ``spread`` besides (Chung et al., Psychometrika 78, 2013): a few requests that
happen to agree would else be taken for a population without any spread."""
SLOPE_SD = 0.3
"""Prior of the context slope: normal around 0 [logit an octave]."""
LEAST_SPREAD = 0.01
"""Between requests, where the likelihood is taken."""
MEMORY_POWER = 1.0
"""Prior of the step memory: (m (1 - m)) to this power, which keeps it off 0 and 1."""

_STEP = 1e-3
_AT_BOUND = 1e-4


class Maximum(NamedTuple):
    """Where the posterior is highest.

    Attributes
    ----------
    vector : float64, shape (p,)
    covariance : float64, shape (p, p)
        Inverse of the negative Hessian; zero for parameters held fixed or at a bound.
    known : bool, shape (p,)
        Which parameters have a standard error.
    """

    vector: Floats
    covariance: Floats
    known: NDArray[np.bool_]


def maximum(objective: Objective, start: Floats, lower: Floats, upper: Floats) -> Maximum:
    """Maximise within bounds; parameters whose bounds coincide are held fixed."""
    free = lower < upper
    full = np.clip(start, lower, upper)

    def downwards(free_values: Floats) -> tuple[float, Floats]:
        full[free] = free_values
        value, slope = objective(full)
        return -value, -slope[free]

    bounds = list(zip(lower[free], upper[free], strict=True))
    found = optimize.minimize(
        downwards, full[free], jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-10}
    )
    full[free] = found.x
    inside = free & (full - lower > _AT_BOUND) & (upper - full > _AT_BOUND)
    return _with_errors(objective, full, inside)


def _with_errors(objective: Objective, at: Floats, inside: NDArray[np.bool_]) -> Maximum:
    covariance = np.zeros((at.size, at.size))
    places = np.flatnonzero(inside)
    hessian = np.empty((places.size, places.size))
    for row, place in enumerate(places):
        moved = np.zeros(at.size)
        moved[place] = _STEP
        above, below = objective(at + moved)[1], objective(at - moved)[1]
        hessian[row] = (below - above)[places] / (2 * _STEP)
    hessian = 0.5 * (hessian + hessian.T)
    if places.size == 0 or np.linalg.eigvalsh(hessian).min() <= 0:
        return Maximum(at, covariance, np.zeros_like(inside))
    covariance[np.ix_(places, places)] = np.linalg.inv(hessian)
    return Maximum(at, covariance, inside)


def spread_prior(spread: float) -> tuple[float, Floats]:
    """Of the spread between requests: log density up to a constant, and its gradient."""
    value = np.log(spread) - 0.5 * spread**2 / SPREAD_SD**2
    return float(value), np.array([1.0 / spread - spread / SPREAD_SD**2])


def memory_prior(memory: float) -> tuple[float, Floats]:
    """Of the step memory: log density up to a constant, and its gradient; none where it is 0."""
    if memory == 0.0:
        return 0.0, np.zeros(1)
    density = MEMORY_POWER * np.log(memory * (1.0 - memory))
    return float(density), np.array([MEMORY_POWER * (1.0 / memory - 1.0 / (1.0 - memory))])


def normal_prior(values: Floats, sd: float) -> tuple[float, Floats]:
    """Log density up to a constant, and its gradient."""
    return -0.5 * float((values**2).sum()) / sd**2, -values / sd**2
