"""Fit of small kernels: what one takes at least, and how fast they stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels import assumed
from calibration.kernels.fits import held_out
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.robust import Form, fit_form, rounded
from calibration.kernels.fits.select import (
    FEWEST_SHAPES,
    beyond_cache,
    column,
    good,
    of_one_kernel,
    shape_columns,
    source_of,
)
from models.gemm import US
from models.hardware import Accelerator
from models.kernel_constants import ElementwiseConstants
from models.schema import Constant

Floats = NDArray[np.float64]

WHOLE_LAYER = "layer"
"""Rows in which all small kernels of a decoder layer were timed together."""

ONE_PASS = "static_fp8_quant"
"""A kernel that reads and writes every element once, like most small kernels of a layer."""

SHAPES = (("n",), ("m", "n"))


class SmallKernels(NamedTuple):
    """Constants of the small kernels of a layer, what a single one takes at least, and errors."""

    layer: ElementwiseConstants
    one_us: Constant
    scores: list[Score]


def fit_elementwise(rows: pd.DataFrame, accelerator: Accelerator) -> SmallKernels:
    """Constants of all small kernels of a layer together where they were timed so.

    Else those of one kind, counted ``SMALL_KERNELS`` times; assumed where none was timed.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged are left out.
    accelerator : Accelerator

    Raises
    ------
    ModelError
        If there are too few rows.
    """
    timed = good(rows, "elementwise")
    layers = timed[timed["kernel"] == WHOLE_LAYER]
    one_pass = timed[timed["kernel"] == ONE_PASS]
    single = one_pass if len(one_pass) else of_one_kernel(timed)
    used = beyond_cache(layers if len(layers) else single, accelerator)
    if used.empty:
        return _assumed()
    form, shape = _form(accelerator), shape_columns(used, *SHAPES)
    predicted = held_out.predicted_unseen(form, used, shape)
    kernel, measured = used["kernel"].iloc[0], column(used, "time_s")
    score = held_out.of_times("elementwise", used["dtype"].iloc[0], kernel, measured, predicted)
    found, m = fit_form(form, used, shape), used["m"]
    about = source_of(used), f"{len(used)} rows of {kernel}, m {m.min()}-{m.max()}"
    count = 1 if len(layers) else assumed.SMALL_KERNELS
    of_layer = about if len(layers) else (about[0], f"{count} kernels like those of {about[1]}")
    layer = ElementwiseConstants(
        fixed_us=found.constant(1, *of_layer, times=count),
        qk_norm_factor=assumed.QK_NORM_FACTOR,
        memory=found.constant(0, *about),
    )
    one_us = found.constant(1, *about)
    if len(layers):
        one_us = _single(one_pass, form) or found.constant(
            1, *about, times=1 / assumed.SMALL_KERNELS
        )
    return SmallKernels(layer, one_us, [score])


def _single(one_pass: pd.DataFrame, form: Form) -> Constant | None:
    """What a single kernel takes at least, if one was timed beside whole layers."""
    if len(one_pass) < FEWEST_SHAPES:
        return None
    m = one_pass["m"]
    about = f"{len(one_pass)} rows of {ONE_PASS}, m {m.min()}-{m.max()}"
    return fit_form(form, one_pass, ("m", "n")).constant(1, source_of(one_pass), about)


def _assumed() -> SmallKernels:
    one = assumed.SMALL_KERNEL_US
    layer = ElementwiseConstants(
        fixed_us=Constant(
            value=rounded(assumed.SMALL_KERNELS * one.value, 4),
            source=one.source,
            fitted_on=f"{assumed.SMALL_KERNELS} kernels like {one.fitted_on}",
        ),
        qk_norm_factor=assumed.QK_NORM_FACTOR,
        memory=assumed.STREAM,
    )
    return SmallKernels(layer, one, [])


def _form(accelerator: Accelerator) -> Form:
    bandwidth = accelerator.memory_bandwidth_bytes_per_s

    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        return np.asarray(column(rows, "bytes") / (values[0] * bandwidth) + values[1] * US)

    return Form("stream and floor", (0.8, 2.0), seconds)
