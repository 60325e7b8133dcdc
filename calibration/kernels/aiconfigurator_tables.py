"""NVIDIA's kinds of kernel table: the columns each has, and how its rows read in our schema."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.kernels import rows, work
from calibration.kernels.input_columns import counts, numbers, read_parquet, refuse

MS = 1e-3

DTYPES = {
    "bfloat16": "bf16",
    "half": "bf16",
    "int8_wo": "int8",
    "int4_wo": "int4",
    "sq": "w8a8",
    "w4a8_mxfp4_mxfp8_trtllm": "w4a8_mxfp4_mxfp8",
    "w4a16_mxfp4_cutlass": "w4a16_mxfp4",
}
"""Their names of operand types in ours, all 16-bit floats as bf16; the others are the same."""


class Table(NamedTuple):
    """One kind of Parquet file: its folder and name, what it holds, and who turns it into rows."""

    family: str
    file: str
    operation: str
    columns: tuple[str, ...]
    read: Callable[[pd.DataFrame, Path], pd.DataFrame]


def _dtypes(
    raw: pd.DataFrame, name: str, path: Path, known: Collection[str] = tuple(work.OPERANDS)
) -> pd.Series[str]:
    """Types in our names."""
    ours = raw[name].astype(str).replace(DTYPES)
    wrong = ~ours.isin(list(known)).to_numpy()
    if wrong.any():
        refuse(raw, name, wrong, f"must be a type such as {', '.join(known)}", path)
    return ours


def _gemm(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    return rows.frame(
        "gemm",
        kernel=raw["kernel_source"],
        dtype=_dtypes(raw, "gemm_dtype", path),
        **{name: counts(raw, name, path) for name in ("m", "n", "k")},
        time_s=numbers(raw, "latency", path) * MS,
    )


def _attention(raw: pd.DataFrame, path: Path, *, decode: bool) -> pd.DataFrame:
    """Full attention of one layer; older tables have no column of windows."""
    if "window_size" in raw:
        raw = raw[counts(raw, "window_size", path) == 0]
    return rows.frame(
        "attention",
        kernel=raw["kernel_source"],
        dtype=_dtypes(raw, "attn_dtype", path),
        kv_dtype=_dtypes(raw, "kv_cache_dtype", path, work.KV_BYTES),
        batch=counts(raw, "batch_size", path),
        query_tokens=1 if decode else counts(raw, "isl", path),
        context_tokens=counts(raw, "step", path),
        heads=counts(raw, "num_heads", path),
        kv_heads=counts(raw, "num_key_value_heads", path),
        head_dim=counts(raw, "head_dim", path),
        time_s=numbers(raw, "latency", path) * MS,
    )


def _prefill(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    return _attention(raw, path, decode=False)


def _decode(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    return _attention(raw, path, decode=True)


def _all_reduce(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Messages are counted in elements of two bytes, whoever timed them."""
    raw = raw[raw["op_name"] == "all_reduce"]
    if "nccl_dtype" in raw:
        raw = raw[raw["nccl_dtype"] == "half"]
    return rows.frame(
        "all_reduce",
        kernel=raw["backend" if "backend" in raw else "kernel_source"].str.lower(),
        dtype=_dtypes(raw, "nccl_dtype" if "nccl_dtype" in raw else "allreduce_dtype", path),
        gpus=counts(raw, "num_gpus", path),
        message_bytes=2 * counts(raw, "message_size", path),
        time_s=numbers(raw, "latency", path) * MS,
    )


def _moe(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Experts held whole or cut by tensor parallelism, the routing kept in the kernel's name."""
    raw = raw[counts(raw, "moe_ep_size", path) == 1]
    shape: dict[str, Any] = {
        "m": counts(raw, "num_tokens", path),
        "n": counts(raw, "inter_size", path) // np.maximum(counts(raw, "moe_tp_size", path), 1),
        "k": counts(raw, "hidden_size", path),
        "experts": counts(raw, "num_experts", path),
        "experts_per_token": counts(raw, "topk", path),
        "dtype": _dtypes(raw, "moe_dtype", path),
    }
    matrices = np.where(raw["kernel_source"].str.endswith("nongated"), 2, 3)
    uniform = work.moe(**shape, matrices=matrices)
    balanced = work.moe(**shape, matrices=matrices, balanced=True)
    return rows.frame(
        "moe",
        kernel=raw["kernel_source"] + " " + raw["distribution"],
        **shape,
        bytes=np.where(raw["distribution"] == "balanced", balanced.bytes, uniform.bytes),
        flops=uniform.flops,
        time_s=numbers(raw, "latency", path) * MS,
    )


def _quantise(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Activations of m rows of width k from bf16 to fp8, with a scale known beforehand."""
    return rows.frame(
        "elementwise",
        kernel="static_fp8_quant",
        dtype=_dtypes(raw, "quant_dtype", path),
        m=counts(raw, "m", path),
        n=counts(raw, "k", path),
        time_s=numbers(raw, "latency", path) * MS,
    )


def _quantise_with_scale(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The same with a scale found on the way: their table has what that adds to a known scale.

    Engines whose kernel always finds the scale (sglang) show no difference, hence no rows.
    """
    both = raw.merge(read_parquet(path.with_name(QUANTISE)), on=["m", "k", "quant_dtype"])
    added = numbers(both, "latency_x", path, least=-np.inf)
    if 2 * np.count_nonzero(added > 0) < len(added):
        both, added = both[:0], added[:0]
    return rows.frame(
        "elementwise",
        kernel="dynamic_fp8_quant",
        dtype=_dtypes(both, "quant_dtype", path),
        m=counts(both, "m", path),
        n=counts(both, "k", path),
        time_s=(added + numbers(both, "latency_y", path)) * MS,
    )


NCCL = "nccl_perf.parquet"
QUANTISE = "scale_matrix_perf.parquet"

_HEADS = ("num_heads", "num_key_value_heads", "head_dim", "attn_dtype", "kv_cache_dtype")
_SEQUENCES = ("kernel_source", "batch_size", "isl", "step", *_HEADS)
_EXPERTS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
_GROUP = ("op_name", "kernel_source", "num_gpus", "message_size")

TABLES = (
    Table("gemm", "gemm_perf.parquet", "gemm", ("kernel_source", "gemm_dtype", *"mnk"), _gemm),
    Table("attention", "context_attention_perf.parquet", "attention", _SEQUENCES, _prefill),
    Table("attention", "generation_attention_perf.parquet", "attention", _SEQUENCES, _decode),
    Table(
        *("comm", "custom_allreduce_perf.parquet", "all_reduce"),
        (*_GROUP, "allreduce_dtype"),
        _all_reduce,
    ),
    Table("comm", NCCL, "all_reduce", (*_GROUP, "nccl_dtype"), _all_reduce),
    Table(
        *("moe", "moe_perf.parquet", "moe"),
        ("kernel_source", "moe_dtype", "distribution", "num_tokens", *_EXPERTS),
        _moe,
    ),
    Table("quantize", QUANTISE, "elementwise", (*"mk", "quant_dtype"), _quantise),
    Table(
        *("quantize", "computescale_perf.parquet", "elementwise"),
        (*"mk", "quant_dtype"),
        _quantise_with_scale,
    ),
)
