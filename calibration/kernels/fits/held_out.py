"""How far a fit is off on rows it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits.robust import Form, fit_form
from models.schema import ModelError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
RANGES = {"decode": (1, 512), "verify": (8, 1024), "prefill": (512, 8192)}
"""Tokens a step that decoding, verification and prefill bring."""

SEED = 0


class Score(NamedTuple):
    """Error of one form on held-out rows.

    Attributes
    ----------
    operation, dtype : str
        What was timed.
    what : str
        The form or back-end that was scored, and on what.
    m : (int, int) or None
        Tokens a step of the rows; None: any.
    rows : int
        How many.
    median, p90 : float
        Of the absolute relative error.
    lo, hi : float
        The 5 % and 95 % quantile of measured/predicted.
    """

    operation: str
    dtype: str
    what: str
    m: tuple[int, int] | None
    rows: int
    median: float
    p90: float
    lo: float
    hi: float


def halves(rows: pd.DataFrame, by: Sequence[str], seed: int = SEED) -> Mask:
    """Which rows a fit may see: those of half of the shapes, drawn at random.

    Parameters
    ----------
    rows : DataFrame
    by : sequence of str
        Columns that make a shape; all rows of one shape are on one side.
    seed : int

    Raises
    ------
    ModelError
        If there is only one shape.
    """
    shape = rows.groupby(list(by), sort=True).ngroup().to_numpy()
    count = int(shape.max(initial=-1)) + 1
    if count < 2:
        raise ModelError(f"two shapes or more are needed to hold one out, got {count}")
    seen = np.random.default_rng(seed).permutation(count)[: count - count // 2]
    return np.isin(shape, seen)


def by_octave_of_m(rows: pd.DataFrame) -> Floats:
    """Weight of each row such that every octave of ``m`` counts the same."""
    octave = np.floor(np.log2(np.maximum(rows["m"].to_numpy(dtype=np.float64), 1.0)))
    _, which, counts = np.unique(octave, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[which])


def of_times(
    operation: str,
    dtype: str,
    what: str,
    measured: Floats,
    predicted: Floats,
    m: tuple[int, int] | None = None,
) -> Score:
    """Score of predicted times against measured ones, both [s] and of one shape."""
    off = np.abs(predicted / measured - 1.0)
    ratio = measured / predicted
    return Score(
        *(operation, dtype, what, m, len(measured)),
        *(float(value) for value in np.quantile(off, (0.5, 0.9))),
        *(float(value) for value in np.quantile(ratio, (0.05, 0.95))),
    )


def by_range(
    operation: str, dtype: str, what: str, rows: pd.DataFrame, predicted: Floats
) -> list[Score]:
    """One score for each of ``RANGES`` that holds rows."""
    m, measured = rows["m"].to_numpy(), rows["time_s"].to_numpy(dtype=np.float64)
    scores = []
    for lo, hi in RANGES.values():
        inside = (m >= lo) & (m <= hi)
        if inside.any():
            score = of_times(operation, dtype, what, measured[inside], predicted[inside], (lo, hi))
            scores.append(score)
    return scores


def predicted_unseen(
    form: Form, rows: pd.DataFrame, shape: Sequence[str], seed: int = SEED
) -> Floats:
    """Time of every row as predicted by a fit to the half of the shapes it is not in [s]."""
    first = halves(rows, shape, seed)
    predicted = np.zeros(len(rows))
    for seen in (first, ~first):
        constants = fit_form(form, rows[seen], shape).values
        predicted[~seen] = form.seconds(constants, rows[~seen])
    return predicted
