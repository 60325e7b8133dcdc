"""How far a whole decoder layer is off: measured kernels put together, against the closed forms."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.attention import decode_rows
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.select import as_run, column, good, of_usual_heads
from models import catalog
from models.forward_pass import layer_parts
from models.gemm import US
from models.hardware import Accelerator
from models.kernel_table import COLUMNS, KernelTable
from models.kernels import Kernels
from models.kv_reads import kv_read_s
from models.profile import Profile
from models.schema import Dtype, KvDtype
from models.transformer import Transformer

Floats = NDArray[np.float64]

LAYERS = (("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("llama-3.1-70b", 8))
CONTEXT = (512, 8192)
M = (1, 512)
FEWEST = 10
"""Timed layers it takes to say anything."""


def layer_scores(rows: pd.DataFrame, profile: Profile, accelerator: Accelerator) -> list[Score]:
    """Error of decode steps of Llama-3.1 layers by type; none where too little was timed.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged are left out. A layer is its GEMMs, decode attention and
        all-reduce; small kernels, which no table has, are left out on both sides.
    profile : Profile
        Constants found with these rows: few numbers for thousands of rows.
    accelerator : Accelerator
    """
    scores = []
    for dtype in _types(profile):
        kv: KvDtype = "fp8" if dtype == "fp8" and "fp8" in profile.attention else "bf16"
        table = _table(rows, dtype)
        parts = [
            _layer(rows, table, profile, accelerator, catalog.transformer(name), tp, dtype, kv)
            for name, tp in LAYERS
            if tp == 1 or tp in profile.all_reduce
        ]
        measured, fitted = (np.concatenate(times) for times in zip(*parts, strict=True))
        if len(measured) >= FEWEST:
            what = "decode layers of Llama-3.1"
            scores.append(held_out.of_times("layer", dtype, what, measured, fitted, M))
    return scores


def _types(profile: Profile) -> list[Dtype]:
    types: tuple[Dtype, ...] = ("bf16", "fp8")
    return [dtype for dtype in types if dtype in profile.gemm and "bf16" in profile.attention]


def _table(rows: pd.DataFrame, dtype: Dtype) -> KernelTable:
    """Measured GEMMs of one type, and all-reduces."""
    wanted = (rows["operation"] == "gemm") & (rows["dtype"] == dtype)
    used = as_run(rows[wanted | (rows["operation"] == "all_reduce")])
    return KernelTable.of({name: used[name].to_numpy() for name in COLUMNS})


def _layer(
    rows: pd.DataFrame,
    table: KernelTable,
    profile: Profile,
    accelerator: Accelerator,
    net: Transformer,
    tp: int,
    dtype: Dtype,
    kv: KvDtype,
) -> tuple[Floats, Floats]:
    """Measured and fitted time of a layer at every batch and context timed [s]."""
    attention = good(rows, "attention")
    decode = decode_rows(of_usual_heads(attention[attention["kv_dtype"] == kv]), accelerator)
    same = (decode["heads"] == net.heads // tp) & (decode["head_dim"] == net.head_dim)
    same &= decode["kv_heads"] == -(-net.kv_heads // tp)
    same &= decode["context_tokens"].between(*CONTEXT) & decode["batch"].between(*M)
    decode = decode[same]
    timed = Kernels(accelerator, profile, table, "table").traced()
    matmuls = _rest(timed, net, tp, dtype, kv, decode)
    if not all(use.measured for use in timed.log or ()):
        return np.zeros(0), np.zeros(0)
    closed = Kernels(accelerator, profile, backend="roofline")
    constants = profile.attention[kv]
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    read = kv_read_s(constants, column(decode, "bytes"), bandwidth) + constants.launch_us.value * US
    return (
        matmuls + column(decode, "time_s"),
        _rest(closed, net, tp, dtype, kv, decode) + read,
    )


def _rest(
    kernels: Kernels, net: Transformer, tp: int, dtype: Dtype, kv: KvDtype, decode: pd.DataFrame
) -> Floats:
    """GEMMs and all-reduces of one layer [s]."""
    parts = layer_parts(kernels, net, dtype, kv, tp, decode["batch"].to_numpy())
    return np.asarray((parts["weights"] + parts["collectives"]) / net.layers)
