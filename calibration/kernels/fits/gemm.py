"""Fit of dense GEMMs: the roofline, with what brings it nearer to shapes held out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.devices import STREAMING_MULTIPROCESSORS
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.interpolation import table_scores
from calibration.kernels.fits.robust import Fitted, Form, fit_form
from calibration.kernels.fits.select import (
    column,
    good,
    of_one_kernel,
    source_of,
    weights_from_memory,
)
from models.gemm import gemm_s
from models.hardware import Accelerator
from models.kernel_constants import FewTiles, GemmConstants, Tiles, TileStep
from models.schema import Constant, Dtype, ModelError

Floats = NDArray[np.float64]

DTYPES: tuple[Dtype, ...] = ("bf16", "fp8")
SHAPE = ("n", "k")
SERVING_WIDTHS = (1024, 16384)
SERVING_WEIGHTS = 2e6
LARGEST_M = 8192
"""Shapes that count: those of the layers of served transformers, up to a full prefill step."""

FEWEST_LARGE = 8

PLAIN, TILED = "roofline", "roofline with tiles"
ROUNDED, FEW_TILES = "rounded roofline", "rounded roofline, few tiles"
QUANTISING = "{}, quantising"

PUBLISHED = "aiconfigurator-core"
"""Source of fp8 rows that time a whole linear layer of an engine, which quantises activations."""

TILE_STEPS = (
    TileStep(up_to_m=64, pad_rows=64, tile_rows=64, tile_columns=64),
    TileStep(up_to_m=128, pad_rows=64, tile_rows=64, tile_columns=128),
    TileStep(up_to_m=None, pad_rows=256, tile_rows=128, tile_columns=128),
)
"""CUTLASS tiles of vLLM's fp8 GEMM on Hopper; above 128 rows two of them make a cluster."""


SMALLEST_TILE = {"tile_rows": 64, "tile_columns": 128}
"""Tile that bf16 GEMMs come down to where the output is small: with 128 x 128 the forms of H100,
H200 and B200 are further off on shapes held out."""


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
        By type; ``norm``, ``few_tiles`` and ``tile`` only where they bring the held-out error down.
    scores : list of Score
        The first of a type are those of the form that was taken; interpolation comes last.

    Raises
    ------
    ModelError
        If there are no rows of bf16, or too few of a type.
    """
    constants: dict[str, GemmConstants] = {}
    scores: list[Score] = []
    for dtype in DTYPES:
        used = served_shapes(rows, accelerator, dtype)
        if used.empty:
            continue
        forms = [_form(name, accelerator, dtype) for name in _names(used, accelerator, dtype)]
        tried = sorted(((form, _scores(form, used, dtype)) for form in forms), key=_total)
        form = tried[0][0]
        fitted = _fitted(form.name, fit_form(form, used, SHAPE), used, accelerator)
        constants[dtype] = fitted
        scores += [score for _, found in tried for score in found]
        scores += table_scores(used, dtype, fitted, accelerator)
    if "bf16" not in constants:
        raise ModelError("no usable rows of bf16")
    return constants, scores


def served_shapes(rows: pd.DataFrame, accelerator: Accelerator, dtype: Dtype) -> pd.DataFrame:
    """Rows of large layers; all of them where there are too few (small transformers)."""
    if dtype not in accelerator.peak_flops:
        return rows[:0]
    timed = rows[(rows["operation"] == "gemm") & (rows["dtype"] == dtype) & (rows["time_s"] > 0)]
    timed = of_one_kernel(timed)
    low, high = SERVING_WIDTHS
    large = timed["n"].between(low, high) & timed["k"].between(low, high)
    large &= (timed["n"] * timed["k"] >= SERVING_WEIGHTS) & (timed["m"] <= LARGEST_M)
    chosen = good(weights_from_memory(timed[large], accelerator), "gemm")
    return chosen if _shapes(chosen) >= FEWEST_LARGE else good(timed, "gemm")


def _shapes(rows: pd.DataFrame) -> int:
    return len(rows[list(SHAPE)].drop_duplicates())


def form_name(constants: GemmConstants) -> str:
    """Name under which the form with these constants is scored."""
    name = PLAIN if constants.norm is None else ROUNDED
    name = name if constants.few_tiles is None else FEW_TILES
    name = name if constants.tile is None else TILED
    return name if constants.quantise_memory is None else QUANTISING.format(name)


def times_whole_layers(rows: pd.DataFrame) -> bool:
    """Whether fp8 rows hold the quantising of activations, if there is any."""
    return bool(rows["source"].str.contains(PUBLISHED).all())


def _names(rows: pd.DataFrame, accelerator: Accelerator, dtype: Dtype) -> list[str]:
    """Forms to try."""
    names, known = [PLAIN], accelerator.name in STREAMING_MULTIPROCESSORS
    if dtype == "bf16" and _shapes(rows) >= FEWEST_LARGE:
        names += [ROUNDED, FEW_TILES] if known else [ROUNDED]
    if dtype == "fp8" and known:
        names.append(TILED)
    if dtype == "fp8" and times_whole_layers(rows):
        names += [QUANTISING.format(name) for name in names]
    return names


def _form(name: str, accelerator: Accelerator, dtype: Dtype) -> Form:
    """The form of ``models.gemm`` with constants yet to be found."""

    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        each = [Constant(value=float(v), source="") for v in values]
        constants = _constants(name, each, accelerator)
        m, n, k = (column(rows, size) for size in "mnk")
        return gemm_s(constants, accelerator, m, n, k, dtype)

    start = [0.6, 0.8, 5.0]
    if name.startswith(ROUNDED):
        start.append(3.0)
    if name == FEW_TILES:
        start.append(0.5)
    if name.startswith(TILED):
        start += [0.8, 3.0, 0.1]
    if name.endswith(QUANTISING.format("")):
        start.append(0.5)
    return Form(name, tuple(start), seconds, held_out.by_octave_of_m)


def _scores(form: Form, rows: pd.DataFrame, dtype: str) -> list[Score]:
    predicted = held_out.predicted_unseen(form, rows, SHAPE)
    return held_out.by_range("gemm", dtype, form.name, rows, predicted)


def _total(tried: tuple[Form, list[Score]]) -> float:
    return sum(score.median + score.p90 for score in tried[1])


def _fitted(
    name: str, found: Fitted, rows: pd.DataFrame, accelerator: Accelerator
) -> GemmConstants:
    shapes, m = _shapes(rows), rows["m"]
    about = source_of(rows), f"{len(rows)} rows of {shapes} (n, k) shapes, m {m.min()}-{m.max()}"
    each = [found.constant(index, *about) for index in range(len(found.values))]
    return _constants(name, each, accelerator)


def _constants(name: str, each: list[Constant], accelerator: Accelerator) -> GemmConstants:
    compute, memory, launch_us, *more = each
    quantising = more.pop() if name.endswith(QUANTISING.format("")) else None
    norm = tile = few_tiles = None
    if name == FEW_TILES:
        sms, exponent = STREAMING_MULTIPROCESSORS[accelerator.name], more.pop()
        few_tiles = FewTiles(sms=sms, exponent=exponent, **SMALLEST_TILE)
    if name.startswith(ROUNDED):
        norm = more.pop()
    if name.startswith(TILED):
        exponent, joint, unaligned = more
        tile = Tiles(
            sms=STREAMING_MULTIPROCESSORS[accelerator.name],
            steps=TILE_STEPS,
            wave_exponent=exponent,
            norm=joint,
            unaligned=unaligned,
        )
    return GemmConstants(
        compute=compute,
        memory=memory,
        launch_us=launch_us,
        quantise_memory=quantising,
        norm=norm,
        few_tiles=few_tiles,
        tile=tile,
    )
