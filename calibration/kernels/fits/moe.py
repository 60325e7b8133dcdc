"""Fit of grouped expert GEMMs: reading the experts hit, or computing their tokens."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels import assumed
from calibration.kernels.fits import held_out
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.robust import Form, fit_form
from calibration.kernels.fits.select import (
    FEWEST_SHAPES,
    column,
    good,
    of_preferred_routing,
    source_of,
)
from models.gemm import US
from models.hardware import Accelerator
from models.kernel_constants import MoeConstants

Floats = NDArray[np.float64]

SHAPE = ("n", "k", "experts", "experts_per_token")
EXPERTS = 8
NARROWEST = 1024
LARGEST_M = 8192
"""Experts that count: those of Mixtral at the splits it is served with."""


def fit_moe(
    rows: pd.DataFrame, accelerator: Accelerator
) -> tuple[MoeConstants | None, list[Score]]:
    """Constants of routed experts in bf16, None where none were timed, and how far they are off.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged are left out. Their fixed time holds sorting and permuting
        the tokens; the router in front of them is assumed.
    accelerator : Accelerator

    Raises
    ------
    ModelError
        If there are too few rows.
    """
    used, routing = served_experts(good(rows, "moe"))
    if used.empty:
        return None, []
    form = _form(accelerator)
    predicted = held_out.predicted_unseen(form, used, SHAPE)
    scores = held_out.by_range("moe", "bf16", f"roofline, {routing}", used, predicted)
    shapes, m = len(used[list(SHAPE)].drop_duplicates()), used["m"]
    seen = f"{len(used)} rows of {shapes} shapes, {routing} routing, m {m.min()}-{m.max()}"
    found, about = fit_form(form, used, SHAPE), (source_of(used), seen)
    constants = MoeConstants(
        compute=found.constant(0, *about),
        memory=found.constant(1, *about),
        fixed_us=found.constant(2, *about),
        router_us=assumed.ROUTER_US,
    )
    return constants, scores


def served_experts(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Rows like Mixtral's and their routing; all rows of it where there are too few of those."""
    bf16 = rows[(rows["dtype"] == "bf16") & (rows["m"] <= LARGEST_M)]
    routed, routing = of_preferred_routing(bf16)
    like = routed[(routed["experts"] == EXPERTS) & (routed["n"] >= NARROWEST)]
    shapes = len(like[list(SHAPE)].drop_duplicates())
    return (like if shapes >= FEWEST_SHAPES else routed), routing


def _form(accelerator: Accelerator) -> Form:
    peak, bandwidth = accelerator.peak_flops["bf16"], accelerator.memory_bandwidth_bytes_per_s

    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        compute = column(rows, "flops") / (values[0] * peak)
        moved = column(rows, "bytes") / (values[1] * bandwidth)
        return np.asarray(np.maximum(compute, moved) + values[2] * US)

    return Form("roofline", (0.5, 0.8, 10.0), seconds, held_out.by_octave_of_m)
