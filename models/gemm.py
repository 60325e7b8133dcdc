"""Closed form of a dense GEMM: two roofs and a launch, with tiles where they matter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.hardware import Accelerator
from models.kernel_constants import FewTiles, GemmConstants, Tiles
from models.schema import BYTES_PER_WEIGHT, Dtype

Seconds = NDArray[np.float64]
US = 1e-6
ACTIVATION_BYTES = 2.0
ALIGNED_ROWS = 16
"""fp8 GEMMs compute multiples of it at full speed: assumed, since between multiples of 16 published
tables have only rows one past them, and those are slower."""


def gemm_roofs(
    fitted: GemmConstants,
    accelerator: Accelerator,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    weights: Dtype,
) -> tuple[Seconds, Seconds]:
    """Time a GEMM of (m, k) by (k, n) computes, and time it moves bytes [s].

    Notes
    -----
    ``2mnk / (e_c P)`` and ``(w nk + a mk + 2 mn) / (e_m BW)`` with weights of ``w`` byte and
    activations of ``a`` byte (1 in fp8, else 2). With tiles, ``m`` is padded for the first, which
    grows by ``(ceil(w) / w)^e`` for ``w`` waves of tiles; with few tiles by ``max(1, 1 / w)^e``,
    nothing being padded since the library chooses among many tiles.
    """
    compute = accelerator.compute_dtype(weights)
    rows, columns, inner = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
    operand = BYTES_PER_WEIGHT[compute]
    flops = 2.0 * rows * columns * inner
    if fitted.tile is not None:
        flops = flops * _tiled(fitted.tile, rows, columns)
    if fitted.few_tiles is not None:
        flops = flops * _idle(fitted.few_tiles, rows, columns)
    moved = BYTES_PER_WEIGHT[weights] * columns * inner
    moved = moved + operand * rows * inner + ACTIVATION_BYTES * rows * columns
    return (
        flops / (fitted.compute.value * accelerator.peak_flops[compute]),
        moved / (fitted.memory.value * accelerator.memory_bandwidth_bytes_per_s),
    )


def gemm_s(
    fitted: GemmConstants,
    accelerator: Accelerator,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    weights: Dtype,
) -> Seconds:
    """Time of a GEMM of (m, k) by (k, n), as it was timed [s].

    Notes
    -----
    The larger of both roofs, or their p-norm where a norm was fitted, and ``launch_us``. Quantising
    activations, where it was part of what was timed, reads and writes ``3 m k`` byte besides.
    """
    computing, moving = gemm_roofs(fitted, accelerator, m, n, k, weights)
    larger = np.maximum(computing, moving)
    norm = fitted.norm if fitted.tile is None else fitted.tile.norm
    if norm is not None:
        smaller = np.minimum(computing, moving)
        larger = larger * (1.0 + (smaller / larger) ** norm.value) ** (1.0 / norm.value)
    seconds = larger + fitted.launch_us.value * US
    if fitted.quantise_memory is not None:
        share = fitted.quantise_memory.value * accelerator.memory_bandwidth_bytes_per_s
        seconds = seconds + quantised_bytes(m, k) / share
    return np.asarray(seconds)


def fused(timed: GemmConstants, bf16: GemmConstants) -> GemmConstants:
    """The GEMM alone, where another kernel hands it quantised activations.

    Where the layer was timed with its quantising kernel, one launch is left, as of a GEMM in bf16.
    """
    launch = timed.launch_us
    if timed.quantise_memory is not None and bf16.launch_us.value < launch.value:
        launch = bf16.launch_us
    alone = {"quantise_us": None, "quantise_memory": None, "launch_us": launch}
    return timed.model_copy(update=alone)


def quantising_s(
    fitted: GemmConstants, m: Seconds, k: float, bandwidth_bytes_per_s: float
) -> Seconds | float:
    """Time of the kernel that quantises activations before the GEMM, where there is one [s]."""
    if fitted.quantise_us is None:
        return 0.0
    return fitted.quantise_us.value * US + quantised_bytes(m, k) / bandwidth_bytes_per_s


def quantised_bytes(m: ArrayLike, k: ArrayLike) -> Seconds:
    """Bytes moved to quantise (m, k) activations of 2 bytes to 1."""
    rows, inner = np.asarray(m, dtype=np.float64), np.asarray(k, dtype=np.float64)
    return np.asarray((ACTIVATION_BYTES + 1.0) * rows * inner)


def _idle(few: FewTiles, m: Seconds, n: Seconds) -> Seconds:
    """How much longer an output computes that has no tile for each multiprocessor."""
    waves = np.maximum(m, 1.0) * n / (few.tile_rows * few.tile_columns * few.sms)
    return np.asarray(np.maximum(1.0, 1.0 / waves) ** few.exponent.value)


def _tiled(tiles: Tiles, m: Seconds, n: Seconds) -> Seconds:
    """How much longer tiles compute than ``m`` rows alone would."""
    rows = np.maximum(m, 1.0)
    steps = tiles.steps
    step = np.searchsorted([one.up_to_m or 0 for one in steps[:-1]], rows)
    pad, height, width = (
        np.array([getattr(one, name) for one in steps], dtype=np.float64)[step]
        for name in ("pad_rows", "tile_rows", "tile_columns")
    )
    padded = np.ceil(rows / pad) * pad
    waves = padded / height * np.ceil(n / width) / tiles.sms
    longer = padded / rows * (np.ceil(waves) / waves) ** tiles.wave_exponent.value
    if tiles.unaligned is not None:
        longer = longer * np.where(rows % ALIGNED_ROWS, 1.0 + tiles.unaligned.value, 1.0)
    return np.asarray(longer)
