"""How far interpolation between measured GEMMs is off on sizes that it does not hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.select import column
from models.gemm import gemm_s
from models.hardware import Accelerator
from models.kernel_table import Curve, GemmForm, GemmTable
from models.profile import GemmConstants
from models.schema import Dtype

Floats = NDArray[np.float64]


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

    curves = {
        (float(n), float(k)): Curve.of(column(group, "m"), column(group, "time_s"))
        for (n, k), group in rows.groupby(["n", "k"], sort=True)
    }
    scores = []
    for name, predicted in (("m", _without_m(curves, form)), ("n", _without_n(curves, form))):
        known = predicted.dropna()
        what = f"table, one {name} left out"
        scores += held_out.by_range("gemm", dtype, what, known, column(known, "predicted_s"))
    return scores


def _without_m(curves: dict[tuple[float, float], Curve], form: GemmForm) -> pd.DataFrame:
    parts = []
    for (n, k), curve in curves.items():
        ratios = np.full(len(curve.at), np.nan)
        for index in range(1, len(curve.at) - 1):
            others = Curve(np.delete(curve.at, index), np.delete(curve.seconds, index))
            at = curve.at[index : index + 1]
            ratios[index] = others.log_ratio(at, lambda m, n=n, k=k: form(m, n, k))[0]
        parts.append(_predicted(curve, form(curve.at, n, k) * np.exp(ratios)))
    return pd.concat(parts, ignore_index=True)


def _without_n(curves: dict[tuple[float, float], Curve], form: GemmForm) -> pd.DataFrame:
    parts = []
    for left_out in sorted({n for n, _ in curves}):
        others = GemmTable(
            {shape: curve for shape, curve in curves.items() if shape[0] != left_out}
        )
        for (n, k), curve in curves.items():
            if n == left_out:
                ratios = others.log_ratio(curve.at, n, k, form)
                parts.append(_predicted(curve, form(curve.at, n, k) * np.exp(ratios)))
    return pd.concat(parts, ignore_index=True)


def _predicted(curve: Curve, seconds: Floats) -> pd.DataFrame:
    return pd.DataFrame({"m": curve.at, "time_s": curve.seconds, "predicted_s": seconds})
