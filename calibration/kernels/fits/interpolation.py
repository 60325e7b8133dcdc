"""How far interpolation between measured GEMMs is off on sizes that it does not hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.select import column
from models.gemm import gemm_s
from models.hardware import Accelerator
from models.kernel_constants import GemmConstants
from models.kernel_table import Curve, GemmForm, GemmTable, past_a_tile
from models.schema import Dtype

Floats = NDArray[np.float64]

WITHOUT_M, WITHOUT_N = "table, one m left out", "table, one n left out"


def table_scores(
    rows: pd.DataFrame, dtype: Dtype, constants: GemmConstants, accelerator: Accelerator
) -> list[Score]:
    """Errors of interpolation with one m, or one n, left out at a time.

    Parameters
    ----------
    rows : DataFrame
        Timed GEMMs of one type and kernel.
    dtype : str
    constants : GemmConstants
        Of the closed form the interpolated ratio is to.
    accelerator : Accelerator
    """

    def form(m: Floats, n: float, k: float) -> Floats:
        return gemm_s(constants, accelerator, m, n, k, dtype)

    curves = gemm_curves(rows)
    scores = []
    left_out = {WITHOUT_M: _without_m, WITHOUT_N: _without_n}
    for what, predict in left_out.items():
        known = predict(curves, form).dropna()
        scores += held_out.by_range("gemm", dtype, what, known, column(known, "predicted_s"))
    return scores


def gemm_curves(rows: pd.DataFrame) -> dict[tuple[float, float], Curve]:
    """Measured times over m for every (n, k), at the m that are interpolated between."""
    inner = rows[~past_a_tile(rows["m"].to_numpy())]
    shapes: Any = inner.groupby(["n", "k"], sort=True)
    return {
        (float(n), float(k)): Curve.of(column(group, "m"), column(group, "time_s"))
        for (n, k), group in shapes
    }


def _without_m(curves: dict[tuple[float, float], Curve], form: GemmForm) -> pd.DataFrame:
    parts = []
    for (n, k), curve in curves.items():
        closed = form(curve.at, n, k)
        ratio = np.log(curve.seconds / closed)
        at = np.log(curve.at)
        between = np.full(len(at), np.nan)
        share = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
        between[1:-1] = (1.0 - share) * ratio[:-2] + share * ratio[2:]
        parts.append(_predicted(curve, closed * np.exp(between)))
    return pd.concat(parts, ignore_index=True)


def _without_n(curves: dict[tuple[float, float], Curve], form: GemmForm) -> pd.DataFrame:
    parts = []
    for gone in sorted({n for n, _ in curves}):
        others = GemmTable({shape: curve for shape, curve in curves.items() if shape[0] != gone})
        for (n, k), curve in curves.items():
            if n == gone:
                ratios = others.log_ratio(curve.at, n, k, form)
                parts.append(_predicted(curve, form(curve.at, n, k) * np.exp(ratios)))
    return pd.concat(parts, ignore_index=True)


def _predicted(curve: Curve, seconds: Floats) -> pd.DataFrame:
    return pd.DataFrame({"m": curve.at, "time_s": curve.seconds, "predicted_s": seconds})
