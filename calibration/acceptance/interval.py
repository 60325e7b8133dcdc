"""Means over steps with standard errors that treat a request as one observation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from calibration.acceptance.trace import Trace
from models.paths import Floats, Ints

LEVEL = 0.95


class Ratio(NamedTuple):
    """A mean over steps: its value, and a standard error, None with fewer than two requests."""

    value: float
    se: float | None


class Interval(NamedTuple):
    """Measured tau of a domain.

    Attributes
    ----------
    value, lo, hi : float
        Mean emitted tokens a step, and its 95 % interval.
    se : float or None
        Standard error, same unit; None for one request, whose interval is all there can be.
    steps, requests : int
        What it rests on.
    """

    value: float
    lo: float
    hi: float
    se: float | None
    steps: int
    requests: int

    @property
    def relative(self) -> float | None:
        """Standard error over value."""
        return None if self.se is None else self.se / self.value


def ratio(numerator: Floats | Ints, denominator: Floats | Ints) -> Ratio:
    """Ratio of two sums over requests, with the delta-method error of requests as clusters.

    Parameters
    ----------
    numerator, denominator : shape (n,)
        Sums of each request. Steps of a request resemble each other, so only whole requests are
        taken as independent: variance ``n / (n - 1) sum (y_r - R x_r)**2 / (sum x)**2``.
    """
    n, below = len(numerator), float(np.sum(denominator))
    value = float(np.sum(numerator)) / below
    if n < 2:
        return Ratio(value, None)
    residuals = numerator - value * denominator
    return Ratio(value, float(np.sqrt(n / (n - 1) * np.sum(residuals**2)) / below))


def tau_interval(trace: Trace, depth: int) -> Interval:
    """Tau with its 95 % interval (Student t with ``requests - 1`` degrees of freedom).

    Parameters
    ----------
    trace : Trace
    depth : int
        Most draft tokens a step accepts; the interval stays within 1 and ``depth + 1``.
    """
    value, se = _error(trace)
    lo, hi = 1.0, float(depth + 1)
    if se is not None:
        half = float(stats.t.ppf(0.5 + LEVEL / 2, trace.requests - 1)) * se
        lo, hi = max(lo, value - half), min(hi, value + half)
    return Interval(value, lo, hi, se, trace.steps, trace.requests)


def _error(trace: Trace) -> Ratio:
    """Of two or three requests that happen to agree, at least the error of independent steps."""
    found = ratio(trace.sums(trace.accepted + 1), trace.lengths)
    if found.se is None or not trace.few or trace.steps < 2:
        return found
    alone = float(trace.accepted.std(ddof=1)) / trace.steps**0.5
    return Ratio(found.value, max(found.se, alone))


def acceptance_rate(trace: Trace) -> float | None:
    """Accepted over drafted tokens; None where nothing was drafted."""
    drafted = int(trace.drafted.sum())
    return int(trace.accepted.sum()) / drafted if drafted else None
