"""Fit of dense GEMMs: the roofline of three constants, with tiles where they explain more."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.devices import STREAMING_MULTIPROCESSORS
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.robust import Fitted, Form, fit_form
from calibration.kernels.fits.select import (
    column,
    good,
    no_faster_than_memory,
    of_one_kernel,
    source_of,
)
from models.hardware import Accelerator
from models.profile import GemmConstants, Tiles, TileStep
from models.schema import ModelError

Floats = NDArray[np.float64]
US = 1e-6

SHAPE = ("n", "k")
SERVING_WIDTHS = (1024, 16384)
SERVING_WEIGHTS = 2e6
LARGEST_M = 4352
"""Shapes that count: those of the layers of served transformers, up to a full prefill step."""

FEWEST_LARGE = 8

TILE_STEPS = (
    TileStep(up_to_m=64, pad_rows=64, tile_rows=64, tile_columns=64),
    TileStep(up_to_m=128, pad_rows=64, tile_rows=64, tile_columns=128),
    TileStep(up_to_m=None, pad_rows=256, tile_rows=128, tile_columns=128),
)
"""CUTLASS tiles of vLLM's fp8 GEMM on Hopper; above 128 rows two of them make a cluster."""


def fit_gemm(
    rows: pd.DataFrame, accelerator: Accelerator
) -> tuple[dict[str, GemmConstants], list[Score]]:
    """Constants of each type the device computes in, and how far each form is off.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged are left out.
    accelerator : Accelerator
        Its peak rates and bandwidth are what the efficiencies are shares of.

    Returns
    -------
    constants : dict
        By type; ``tile`` only where it brings the held-out error down.
    scores : list of Score
        The first of a type are those of the form that was taken.

    Raises
    ------
    ModelError
        If there are no rows, or too few.
    """
    dense = good(rows, "gemm")
    constants: dict[str, GemmConstants] = {}
    scores: list[Score] = []
    for dtype in ("bf16", "fp8"):
        used = serving_shapes(of_one_kernel(dense[dense["dtype"] == dtype]), accelerator)
        if used.empty or dtype not in accelerator.peak_flops:
            continue
        forms = [three_constants(accelerator, dtype)]
        if dtype == "fp8" and accelerator.name in STREAMING_MULTIPROCESSORS:
            forms.append(with_tiles(accelerator))
        tried = sorted(((form, _scores(form, used, dtype)) for form in forms), key=_total)
        best = tried[0][0]
        constants[dtype] = _constants(fit_form(best, used, SHAPE), used, accelerator)
        scores += [score for _, found in tried for score in found]
    if not constants:
        raise ModelError("no usable rows of bf16 or fp8")
    return constants, scores


def serving_shapes(rows: pd.DataFrame, accelerator: Accelerator) -> pd.DataFrame:
    """Rows of large layers; all of them where there are too few (small transformers)."""
    low, high = SERVING_WIDTHS
    large = rows["n"].between(low, high) & rows["k"].between(low, high)
    large &= (rows["n"] * rows["k"] >= SERVING_WEIGHTS) & (rows["m"] <= LARGEST_M)
    chosen = no_faster_than_memory(rows[large], accelerator)
    return chosen if len(chosen[list(SHAPE)].drop_duplicates()) >= FEWEST_LARGE else rows


def three_constants(accelerator: Accelerator, dtype: str) -> Form:
    """``max(flops / (compute P), bytes / (memory BW)) + launch``."""
    peak, bandwidth = _rates(accelerator, dtype)

    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        compute = column(rows, "flops") / (values[0] * peak)
        return np.maximum(compute, column(rows, "bytes") / (values[1] * bandwidth)) + values[2] * US

    return Form("roofline", (0.6, 0.8, 5.0), seconds, held_out.by_octave_of_m)


def with_tiles(accelerator: Accelerator) -> Form:
    """Roofline over whole tiles and waves of them, the corner between the roofs rounded."""
    peak, bandwidth = _rates(accelerator, "fp8")
    sms = STREAMING_MULTIPROCESSORS[accelerator.name]

    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        efficiency, memory, launch_us, exponent, norm = values
        n = column(rows, "n")
        padded, waves = tile_work(column(rows, "m"), n, sms)
        flops = 2.0 * padded * n * column(rows, "k")
        compute = flops / (efficiency * peak) * (np.ceil(waves) / waves) ** exponent
        moved = column(rows, "bytes") / (memory * bandwidth)
        return np.asarray((compute**norm + moved**norm) ** (1.0 / norm) + launch_us * US)

    start = (0.5, 0.8, 5.0, 0.8, 3.0)
    return Form("roofline with tiles", start, seconds, held_out.by_octave_of_m)


def tile_work(m: Floats, n: Floats, sms: int) -> tuple[Floats, Floats]:
    """Rows computed for ``m`` rows, and waves of tiles over the multiprocessors."""
    ends = [step.up_to_m for step in TILE_STEPS if step.up_to_m is not None]
    which = np.searchsorted(ends, m)
    pad = np.array([step.pad_rows for step in TILE_STEPS], dtype=np.float64)[which]
    height = np.array([step.tile_rows for step in TILE_STEPS], dtype=np.float64)[which]
    width = np.array([step.tile_columns for step in TILE_STEPS], dtype=np.float64)[which]
    padded = np.ceil(m / pad) * pad
    return padded, padded / height * np.ceil(n / width) / sms


def _rates(accelerator: Accelerator, dtype: str) -> tuple[float, float]:
    peaks: dict[str, float] = {**accelerator.peak_flops}
    return peaks[dtype], accelerator.memory_bandwidth_bytes_per_s


def _scores(form: Form, rows: pd.DataFrame, dtype: str) -> list[Score]:
    predicted = held_out.predicted_unseen(form, rows, SHAPE)
    return held_out.by_range("gemm", dtype, form.name, rows, predicted)


def _total(tried: tuple[Form, list[Score]]) -> float:
    return sum(score.median + score.p90 for score in tried[1])


def _constants(found: Fitted, rows: pd.DataFrame, accelerator: Accelerator) -> GemmConstants:
    source = source_of(rows)
    shapes = len(rows[list(SHAPE)].drop_duplicates())
    seen = f"{len(rows)} rows of {shapes} (n, k) shapes, m {rows['m'].min()}-{rows['m'].max()}"
    tile = None
    if len(found.values) > 3:
        tile = Tiles(
            sms=STREAMING_MULTIPROCESSORS[accelerator.name],
            steps=TILE_STEPS,
            wave_exponent=found.constant(3, source, seen),
            norm=found.constant(4, source, seen),
        )
    return GemmConstants(
        compute=found.constant(0, source, seen),
        memory=found.constant(1, source, seen),
        launch_us=found.constant(2, source, seen),
        tile=tile,
    )
