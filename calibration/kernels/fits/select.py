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

LINKS = ("vllm_graph", "trtllm", "nccl")
"""Preferred first: what an engine runs inside CUDA graphs, then NVIDIA's own; else the usual."""

ROUTINGS = ("balanced", "power_law_1.01")
"""Preferred first; the second is the nearest to uniform in tables that have no balanced rows."""

ANOTHER_KERNEL = "another kernel"

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


def of_preferred_link(rows: pd.DataFrame) -> pd.DataFrame:
    """All-reduces of the kernel that engines use, or of the one timed most."""
    for kernel in LINKS:
        if (rows["kernel"] == kernel).any():
            return rows[rows["kernel"] == kernel]
    return of_one_kernel(rows)


def of_preferred_routing(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Experts of one kernel under the routing nearest to uniform, and the name of that."""
    for routing in ROUTINGS:
        routed = of_one_kernel(rows[rows["kernel"].str.endswith(routing)])
        if len(routed):
            return routed, routing
    return of_one_kernel(rows), "as timed"


def as_run(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that may stand in for closed forms: of each size the kernel that an engine runs."""
    dense, links, experts = (good(rows, name) for name in ("gemm", "all_reduce", "moe"))
    parts = [of_one_kernel(group) for _, group in dense.groupby("dtype")]
    parts += [of_preferred_link(group) for _, group in links.groupby("gpus")]
    parts += [of_preferred_routing(group)[0] for _, group in experts.groupby("dtype")]
    return pd.concat(parts) if parts else rows[:0]


def others_flagged(rows: pd.DataFrame) -> pd.DataFrame:
    """The same rows, those flagged that are of another kernel than the one an engine runs."""
    others = rows["operation"].isin(("gemm", "all_reduce", "moe")) & (rows["flag"] == "")
    others &= ~rows.index.isin(as_run(rows).index)
    return rows.assign(flag=rows["flag"].mask(others, ANOTHER_KERNEL))


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
