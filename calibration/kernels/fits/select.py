"""Which rows a fit uses, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits.devices import CACHE_BYTES
from models.hardware import Accelerator

FEWEST_SHAPES = 4
"""Shapes it takes to hold out half of them."""

FEW_TOKENS = 64
"""Tokens of a step up to which reading weights takes longest."""

UNSEEN_S = 1e-6
"""Traffic that takes less time than this does not show beside the launch of a kernel [s]."""


def good(rows: pd.DataFrame, operation: str) -> pd.DataFrame:
    """Rows of one operation that nothing speaks against."""
    return rows[(rows["operation"] == operation) & (rows["flag"] == "")]


def of_one_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the kernel with most of them: tables mix back-ends, an engine runs one."""
    if rows.empty:
        return rows
    return rows[rows["kernel"] == rows["kernel"].value_counts().sort_index().idxmax()]


def of_usual_heads(rows: pd.DataFrame) -> pd.DataFrame:
    """Attention rows of head dimension 128, or where there are none of the most common one."""
    if rows.empty:
        return rows
    widths = rows["head_dim"].value_counts().sort_index()
    return rows[rows["head_dim"] == (128 if 128 in widths.index else widths.idxmax())]


def beyond_cache(rows: pd.DataFrame, accelerator: Accelerator) -> pd.DataFrame:
    """Rows that read memory: a benchmark that repeats a call finds little data in the cache.

    In serving, the other layers have driven it out. Rows of next to no traffic stay: they tell
    what a launch costs.
    """
    cache = CACHE_BYTES.get(accelerator.name, 0.0)
    little = UNSEEN_S * accelerator.memory_bandwidth_bytes_per_s
    return rows[(rows["bytes"] > cache) | (rows["bytes"] < little)]


def weights_from_memory(rows: pd.DataFrame, accelerator: Accelerator) -> pd.DataFrame:
    """GEMMs whose weights came from memory.

    Where most steps of few tokens took less time than memory needs, weights of that size, and
    smaller ones, were found in the cache.
    """
    octave = np.floor(np.log2(rows["n"] * rows["k"]))
    few = rows["m"] <= FEW_TOKENS
    rate = (rows["bytes"] / rows["time_s"])[few].groupby(octave[few]).median()
    cached = rate.index[rate > accelerator.memory_bandwidth_bytes_per_s]
    return rows[octave > cached.max()] if len(cached) else rows


def shape_columns(rows: pd.DataFrame, *choices: Sequence[str]) -> list[str]:
    """First choice of columns that tells enough shapes apart to hold some out, else the last."""
    for columns in choices:
        if len(rows[list(columns)].drop_duplicates()) >= FEWEST_SHAPES:
            return list(columns)
    return list(choices[-1])


def source_of(rows: pd.DataFrame) -> str:
    """Where rows come from, in one line."""
    return "; ".join(sorted(set(rows["source"]) - {""})) or "timed kernels"


def column(rows: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """Values of a column as floats."""
    return rows[name].to_numpy(dtype=np.float64)
