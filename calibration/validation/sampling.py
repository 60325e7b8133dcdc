"""Full sorts of logits, as PyTorch samples top-p: their cost fitted to published timings.

PyTorch sorts fewer than 128 rows all at once, and more of them each by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.validation.suites.rows import read

Floats = NDArray[np.float64]

ROWS = "kernels/full_sort_h100.csv"
MANY_ROWS = 128
SCALE = 0.1
"""Relative residual beyond which a timing counts less."""


class Cost(NamedTuple):
    """A number and its standard error."""

    value: float
    se: float


class Sort(NamedTuple):
    """``fixed_us + s_per_logit rows V`` below 128 rows, ``many_s_per_logit rows V`` from there."""

    fixed_us: Cost
    s_per_logit: Cost
    many_s_per_logit: Cost


def fit() -> Sort:
    """Fit the cost of a sort to its timings on H100."""
    timed = read(ROWS)
    rows = np.array([int(row["rows"]) for row in timed])
    logits = rows * np.array([int(row["vocab"]) for row in timed], dtype=float)
    seconds = np.array([float(row["time_ms"]) for row in timed]) / 1e3
    few = rows < MANY_ROWS
    rates = seconds[~few] / logits[~few]

    def off(values: Floats) -> Floats:
        found = values[0] * 1e-6 + values[1] * 1e-9 * logits[few]
        return np.asarray(np.log(found / seconds[few]))

    best = least_squares(off, (100.0, 0.2), loss="soft_l1", f_scale=SCALE)
    jacobian: Floats = np.asarray(best.jac)
    variance = 2 * best.cost / (few.sum() - 2)
    se = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)) * variance)
    return Sort(
        Cost(float(best.x[0]), float(se[0])),
        Cost(float(best.x[1]) * 1e-9, float(se[1]) * 1e-9),
        Cost(float(np.median(rates)), float(rates.std(ddof=1) / np.sqrt(len(rates)))),
    )
