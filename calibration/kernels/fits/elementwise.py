"""Fit of small kernels: what one takes at least, and how fast they stream."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.robust import Fitted, Form, fit_form
from calibration.kernels.fits.select import (
    beyond_cache,
    column,
    good,
    of_one_kernel,
    shape_columns,
    source_of,
)
from models.hardware import Accelerator

Floats = NDArray[np.float64]
US = 1e-6

WHOLE_LAYER = "layer"
"""Rows in which all small kernels of a decoder layer were timed together."""

SHAPES = (("n",), ("m", "n"))


def fit_elementwise(
    rows: pd.DataFrame, accelerator: Accelerator
) -> tuple[tuple[Fitted, str, str] | None, list[Score]]:
    """Share of the bandwidth and fixed time [us], their source, and the errors.

    Of all small kernels of a layer together where they were timed so, else of one of them; None
    where none was timed.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged are left out.
    accelerator : Accelerator
    """
    timed = good(rows, "elementwise")
    layers = timed[timed["kernel"] == WHOLE_LAYER]
    used = beyond_cache(layers if len(layers) else of_one_kernel(timed), accelerator)
    if used.empty:
        return None, []
    form = _form(accelerator)
    shape = shape_columns(used, *SHAPES)
    kernel = used["kernel"].iloc[0]
    predicted = held_out.predicted_unseen(form, used, shape)
    measured = column(used, "time_s")
    score = held_out.of_times("elementwise", used["dtype"].iloc[0], kernel, measured, predicted)
    seen = f"{len(used)} rows of {kernel}, m to {used['m'].max()}"
    return (fit_form(form, used, shape), source_of(used), seen), [score]


def _form(accelerator: Accelerator) -> Form:
    bandwidth = accelerator.memory_bandwidth_bytes_per_s

    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        return column(rows, "bytes") / (values[0] * bandwidth) + values[1] * US

    return Form("stream and floor", (0.8, 2.0), seconds)
