"""Fit of the factors: what recorded stages say beyond what was known before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.live import stages
from calibration.live.knobs import Factors, Serving
from calibration.live.stages import Case

Floats = NDArray[np.float64]

PRIOR = {"request": 3.0, "fixed": 1.0, "memory": 0.25, "compute": 0.25, "draft": 20.0}
"""Standard deviation of each factor before anything is measured; of shares that of the logarithm.
Host times differ several-fold between machines, those for drafts most; shares of bandwidth and peak
rate were timed, and differ by a quarter between versions of an engine (published kernel tables of
one GPU). Assumed."""

SHARES = ("memory", "compute")
"""Factors that multiply a rate; the others are times, which add up and may vanish."""

STEP = 0.05
"""Distance that slopes are taken over, as a share of what was uncertain: a simulated mean is smooth
only from afar."""

IDENTIFIED = 0.5
"""A factor counts as measured if the stages leave at most this share of what was uncertain."""


class Estimate(NamedTuple):
    """One factor.

    Attributes
    ----------
    name : str
        A field of ``Factors``.
    factor : float
        Measured over known before; 1 where the stages do not say.
    error : float or None
        Standard error of ``factor``; None where the stages do not say.
    left : float
        Share of the earlier uncertainty that the stages leave.
    """

    name: str
    factor: float
    error: float | None
    left: float

    @property
    def identified(self) -> bool:
        """Whether the stages say anything about it."""
        return self.error is not None


@dataclass(frozen=True)
class Fit:
    """Factors with what is known of them, and how well the stages are met.

    Attributes
    ----------
    estimates : tuple of Estimate
        In the order of ``Factors``; ``draft`` only where drafts were served.
    residuals : ndarray
        Logarithm of measured over fitted, a figure each.
    before : ndarray
        The same before the fit.
    evaluations : int
        Times the stages were simulated.
    """

    estimates: tuple[Estimate, ...]
    residuals: Floats
    before: Floats
    evaluations: int

    @property
    def factors(self) -> Factors:
        """All factors."""
        return Factors(**{one.name: one.factor for one in self.estimates})


def fit(
    cases: Sequence[Case], serving: Serving, on_progress: Callable[[int], None] = lambda _: None
) -> Fit:
    """Fit the factors to recorded stages.

    Parameters
    ----------
    cases : sequence of Case
        At least one.
    serving : Serving
        As device and engine are known so far.
    on_progress : callable
        Called with how often the stages were simulated.

    Notes
    -----
    Least squares of the logarithms of all figures, weighted by their errors, and of the factors,
    weighted by what was known of them. A factor that the stages hardly narrow down is set back to 1
    and the rest is fitted again: what two factors share goes to the one that was less certain.
    """
    known, first = np.log(stages.measured(cases)), stages.simulated(cases, serving, Factors())
    weight = 1.0 / first.errors
    names = [name for name in Factors._fields if name != "draft" or _drafting(cases)]
    count = 1

    def log_predicted(free: Sequence[str], moves: Floats) -> Floats:
        nonlocal count
        count += 1
        on_progress(count)
        return np.log(stages.simulated(cases, serving, _factors(free, moves)).values_s)

    free, left = list(names), dict.fromkeys(names, 1.0)
    while True:
        best = _least_squares(free, known, weight, log_predicted)
        spread = dict(zip(free, best.deviations, strict=True))
        left |= {name: spread[name] / PRIOR[name] for name in free}
        vague = max(free, key=left.__getitem__, default=None)
        if vague is None or left[vague] <= IDENTIFIED:
            break
        free.remove(vague)
    factors = _factors(free, best.moves)
    estimates = tuple(
        Estimate(name, getattr(factors, name), _error(name, factors, spread), float(left[name]))
        for name in names
    )
    after = log_predicted(free, best.moves)
    return Fit(estimates, known - after, known - np.log(first.values_s), count)


def _factors(free: Sequence[str], moves: Floats) -> Factors:
    """Factors at some distance from 1: added to a time, of a share that of the logarithm."""
    pairs = zip(free, moves.tolist(), strict=True)
    return Factors(**{n: float(np.exp(by)) if n in SHARES else 1.0 + by for n, by in pairs})


def _error(name: str, factors: Factors, spread: Mapping[str, float]) -> float | None:
    if name not in spread:
        return None
    return float(spread[name]) * (getattr(factors, name) if name in SHARES else 1.0)


class _Best(NamedTuple):
    moves: Floats
    deviations: Floats


def _least_squares(
    free: Sequence[str],
    known: Floats,
    weight: Floats,
    log_predicted: Callable[[Sequence[str], Floats], Floats],
) -> _Best:
    """Most likely distances of the free factors from 1, and their standard deviations."""
    if not free:
        return _Best(np.zeros(0), np.zeros(0))
    prior = np.array([PRIOR[name] for name in free])
    step = STEP * np.diag(prior)

    def residuals(moves: Floats) -> Floats:
        return np.concatenate([weight * (known - log_predicted(free, moves)), moves / prior])

    def slopes(moves: Floats) -> Floats:
        middle = residuals(moves)
        moved = [(residuals(moves + one) - middle) / one.sum() for one in step]
        return np.stack(moved, axis=1)

    least = [-np.inf if name in SHARES else -1.0 for name in free]
    start = np.zeros(len(free))
    found = least_squares(
        residuals, start, slopes, (least, np.inf), x_scale=prior, xtol=1e-4, ftol=1e-6
    )
    slope = np.asarray(slopes(found.x))
    covariance = np.linalg.inv(slope.T @ slope)
    freedom = max(1, known.size - len(free))
    # Where the stages scatter more than their errors say, so do the factors.
    scatter = max(1.0, float((found.fun[: known.size] ** 2).sum()) / freedom)
    return _Best(np.asarray(found.x), np.sqrt(np.diag(covariance) * scatter))


def _drafting(cases: Sequence[Case]) -> bool:
    return any(case.strategy.drafted for case in cases)
