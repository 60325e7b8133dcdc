"""Fit of positive constants to measured times in log space, with standard errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import approx_fprime, least_squares

from models.schema import Constant, ModelError

Floats = NDArray[np.float64]

SOFT = 0.1
"""Relative error beyond which a row counts for less and less: a bad row cannot pull the fit."""

CONVERGED = 1e-10
"""Relative change at which a fit stops: the digits of a profile do not hang on the path to it."""

SMALLEST, ZERO = 1e-9, 1e-6
"""Bound of every constant, and below what it is 0 as far as the rows can tell."""


class Form(NamedTuple):
    """A closed form of kernel time.

    Attributes
    ----------
    name : str
    start : tuple of float
        Constants to start a fit from, all positive.
    seconds : callable
        Times [s] of rows, from the constants and the rows.
    weigh : callable or None
        How much each row counts; None: all the same.
    """

    name: str
    start: tuple[float, ...]
    seconds: Callable[[Floats, pd.DataFrame], Floats]
    weigh: Callable[[pd.DataFrame], Floats] | None = None


class Fitted(NamedTuple):
    """Constants of a form and their standard errors; NaN where a constant is at its bound."""

    values: Floats
    se: Floats

    def constant(self, index: int, source: str, fitted_on: str, *, times: float = 1.0) -> Constant:
        """One of the constants, or a multiple, rounded to what a profile shows."""
        value, se = times * self.values[index], times * self.se[index]
        return Constant(
            value=rounded(value, 4) if self.values[index] > ZERO else 0.0,
            se=rounded(se, 2) if np.isfinite(se) else None,
            source=source,
            fitted_on=fitted_on,
        )


def rounded(value: float, digits: int) -> float:
    """Value to so many significant digits."""
    return float(f"{value:.{digits}g}")


def fit(
    predict: Callable[[Floats], Floats],
    start: Sequence[float],
    measured_s: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Fitted:
    """Constants that bring predicted times closest to measured ones.

    Parameters
    ----------
    predict : callable
        Times [s] of all rows, from the constants.
    start : sequence of float
        Constants to start from, all positive.
    measured_s : array_like
        Measured times [s].
    weights : array_like, optional
        How much each row counts; their scale does not matter.
    groups : array_like, optional
        Name of what rows have in common (a shape): their errors go together, and the standard
        errors are those of so many independent groups. By default every row is its own.

    Raises
    ------
    ModelError
        If there are fewer rows than constants, or no constants can be found for them.

    Notes
    -----
    Least squares of ``log(predicted / measured)`` with soft_l1 loss of scale 0.1; constants stay
    positive. Standard errors are the sandwich estimate, ``H^-1 (sum of outer products of the
    scores of groups) H^-1``.
    """
    measured = np.asarray(measured_s, dtype=np.float64)
    if len(measured) <= len(start):
        what = f"{len(start)} constants need more rows than that"
        raise ModelError(f"{what}, got {len(measured)}")
    scale = _root_weights(weights, len(measured))

    def residuals(values: Floats) -> Floats:
        return np.asarray(scale * np.log(predict(values) / measured))

    try:
        found = least_squares(
            residuals,
            start,
            bounds=(SMALLEST, np.inf),
            x_scale=start,
            loss="soft_l1",
            f_scale=SOFT,
            ftol=CONVERGED,
            xtol=CONVERGED,
        )
    except (ValueError, np.linalg.LinAlgError) as error:
        raise ModelError(f"no constants fit {len(measured)} rows: {error}") from error
    labels = np.arange(len(measured)) if groups is None else np.asarray(groups)
    return Fitted(found.x, _standard_errors(residuals, found.x, labels))


def fit_form(form: Form, rows: pd.DataFrame, shape: Sequence[str]) -> Fitted:
    """Constants of a form for timed kernels.

    Parameters
    ----------
    form : Form
    rows : DataFrame
        With ``time_s`` [s] and what the form reads.
    shape : sequence of str
        Columns that make a shape; errors of one shape go together.

    Raises
    ------
    ModelError
        See ``fit``.
    """
    return fit(
        lambda values: form.seconds(values, rows),
        form.start,
        rows["time_s"],
        weights=None if form.weigh is None else form.weigh(rows),
        groups=rows.groupby(list(shape), sort=True).ngroup(),
    )


def _root_weights(weights: ArrayLike | None, count: int) -> Floats:
    if weights is None:
        return np.ones(count)
    given = np.asarray(weights, dtype=np.float64)
    return np.asarray(np.sqrt(given / given.mean()))


def _standard_errors(
    residuals: Callable[[Floats], Floats], values: Floats, groups: NDArray[np.int64]
) -> Floats:
    """Sandwich estimate over the constants that are not at their bound."""
    errors = np.full(len(values), np.nan)
    free = values > ZERO
    _, codes = np.unique(groups, return_inverse=True)
    sets = int(codes.max()) + 1
    if not free.any() or sets <= free.sum():
        return errors

    def of_free(some: Floats) -> Floats:
        everything = values.copy()
        everything[free] = some
        return residuals(everything)

    slopes = approx_fprime(values[free], of_free, 1e-6 * values[free])
    off = residuals(values)
    bent = 1.0 + (off / SOFT) ** 2
    curvature = slopes.T @ (slopes * (bent**-1.5)[:, None])
    scores = np.zeros((sets, int(free.sum())))
    np.add.at(scores, codes, slopes * (off / np.sqrt(bent))[:, None])
    inverse = np.linalg.pinv(curvature)
    spread = inverse @ (scores.T @ scores) @ inverse
    errors[free] = np.sqrt(np.diag(spread) * sets / (sets - free.sum()))
    return errors
