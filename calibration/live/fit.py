"""Fit of the factors: what recorded stages say beyond what was known before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.live import stages
from calibration.live.knobs import Factors, Serving
from calibration.live.stages import Case

Floats = NDArray[np.float64]

PRIOR = {"request": 1.5, "fixed": 1.0, "memory": 0.25, "compute": 0.25, "draft": 1.0}
"""Standard deviation of the logarithm of each factor before anything is measured. Host times differ
several-fold between machines; shares of bandwidth and peak rate were timed, and differ by a quarter
between versions of an engine (published kernel tables of one GPU). Assumed."""

STEP = 0.02
"""Change of a logarithm that slopes are taken over: a simulated mean is smooth only from afar."""

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
        Relative standard error; None where the stages do not say.
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
    known, weight = np.log(stages.measured(cases)), 1.0 / stages.errors(cases)
    names = [name for name in Factors._fields if name != "draft" or _drafting(cases)]
    count = 0

    def log_predicted(free: Sequence[str], logs: Floats) -> Floats:
        nonlocal count
        count += 1
        on_progress(count)
        moved = dict(zip(free, np.exp(logs).tolist(), strict=True))
        return np.log(stages.predicted(cases, serving, Factors(**moved)))

    before = known - log_predicted([], np.zeros(0))
    free, left = list(names), dict.fromkeys(names, 1.0)
    while True:
        best = _least_squares(free, known, weight, log_predicted)
        spread = dict(zip(free, best.deviations, strict=True))
        left |= {name: spread[name] / PRIOR[name] for name in free}
        vague = max(free, key=left.__getitem__, default=None)
        if vague is None or left[vague] <= IDENTIFIED:
            break
        free.remove(vague)
    found = dict(zip(free, best.logs, strict=True))
    estimates = tuple(
        Estimate(name, float(np.exp(found.get(name, 0.0))), spread.get(name), float(left[name]))
        for name in names
    )
    return Fit(estimates, known - log_predicted(free, best.logs), before, count)


class _Best(NamedTuple):
    logs: Floats
    deviations: Floats


def _least_squares(
    free: Sequence[str],
    known: Floats,
    weight: Floats,
    log_predicted: Callable[[Sequence[str], Floats], Floats],
) -> _Best:
    """Most likely logarithms of the free factors, and their standard deviations."""
    if not free:
        return _Best(np.zeros(0), np.zeros(0))
    prior = np.array([PRIOR[name] for name in free])

    def residuals(logs: Floats) -> Floats:
        return np.concatenate([weight * (known - log_predicted(free, logs)), logs / prior])

    def slopes(logs: Floats) -> Floats:
        middle = residuals(logs)
        moved = [residuals(logs + step) for step in STEP * np.eye(len(free))]
        return np.stack([(one - middle) / STEP for one in moved], axis=1)

    found = least_squares(residuals, np.zeros(len(free)), slopes, xtol=1e-3, ftol=1e-3)
    slope = np.asarray(slopes(found.x))
    covariance = np.linalg.inv(slope.T @ slope)
    freedom = max(1, known.size - len(free))
    # Where the stages scatter more than their errors say, so do the factors.
    scatter = max(1.0, float((found.fun[: known.size] ** 2).sum()) / freedom)
    return _Best(np.asarray(found.x), np.sqrt(np.diag(covariance) * scatter))


def _drafting(cases: Sequence[Case]) -> bool:
    return any(case.strategy.drafted for case in cases)
