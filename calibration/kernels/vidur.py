"""Profiling runs in the CSV files of Vidur: ``mlp.csv``, ``attention.csv``, ``all_reduce.csv``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibration.kernels import rows
from calibration.kernels.input_columns import counts, numbers, read_table, refuse, require
from models.strict_yaml import InputError

MS = 1e-3
DTYPE = "bf16"
"""Vidur times in 16-bit floats; kernels of either kind take the same time."""

_MODEL = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp", "num_tokens")
_HEADS = ("n_q_head", "n_kv_head", "n_embd")
_SEQUENCES = ("batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill")
_GROUP = ("num_workers", "size", "collective")
_TP = "num_tensor_parallel_workers"

_GEMMS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
_SMALL = {
    "input_layernorm": "rms_norm",
    "post_attention_layernorm": "rms_norm",
    "attn_rope": "rotary",
    "mlp_act": "silu_mul",
    "add": "residual_add",
}


def read(path: str | Path, device: str = "") -> pd.DataFrame:
    """Rows of one of Vidur's files, which one told by its columns.

    Parameters
    ----------
    path : path
        The CSV file; medians of ``time_stats.<kernel>.median`` in ms.
    device : str
        What it was measured on: the files do not say.

    Returns
    -------
    DataFrame
        Columns of ``sim.kernel_rows.KERNELS``. Kernels not timed for a row give none, nor do
        collectives over several nodes.

    Raises
    ------
    InputError
        If the file cannot be read or is none of the three, lacks a column, or holds text or a
        negative number for a count or time.
    """
    path = Path(path)
    raw = read_table(path)
    timed = [name for name in _GEMMS if _median(name) in raw]
    if timed:
        parts = _mlp(raw, path)
    elif {_median("attn_prefill"), _median("attn_decode")} & set(raw.columns):
        parts = _attention(raw, path)
    elif _median("all_reduce") in raw:
        parts = [_all_reduce(raw, path)]
    else:
        wanted = ", ".join(_median(name) for name in ("mlp_up_proj", "attn_decode", "all_reduce"))
        raise InputError(str(path), None, "", f"is none of Vidur's tables: no column {wanted}")
    found = rows.join(parts)
    found["device"], found["engine"], found["source"] = device, "vidur", str(path)
    return found


def _median(kernel: str) -> str:
    return f"time_stats.{kernel}.median"


def _timed(raw: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """Rows in which a kernel was timed: models without it leave the cell empty."""
    return raw[raw[_median(kernel)].notna()] if _median(kernel) in raw else raw[:0]


def _mlp(raw: pd.DataFrame, path: Path) -> list[pd.DataFrame]:
    require(raw, (*_MODEL, _TP), path)
    parts = []
    for name in (*_GEMMS, *_SMALL):
        timed = _timed(raw, name)
        m, time_s = counts(timed, "num_tokens", path), numbers(timed, _median(name), path) * MS
        hidden, tp = counts(timed, "n_embd", path), counts(timed, _TP, path, least=1)
        heads, kv_heads = counts(timed, "n_head", path, least=1), counts(timed, "n_kv_head", path)
        gated = timed["use_gated_mlp"].astype(str).str.lower() == "true"
        width, head_dim = counts(timed, "n_expanded_embd", path) // tp, hidden // heads
        queries, cached = heads * head_dim // tp, -(-kv_heads // tp) * head_dim
        shapes = {
            "attn_pre_proj": (queries + 2 * cached, hidden),
            "attn_post_proj": (hidden, queries),
            "mlp_up_proj": (np.where(gated, 2, 1) * width, hidden),
            "mlp_down_proj": (hidden, width),
            "attn_rope": (queries + cached, 0),
            "mlp_act": (width, 0),
        }
        n, k = shapes.get(name, (hidden, 0))
        common = {"dtype": DTYPE, "m": m, "n": n, "time_s": time_s}
        if name in _GEMMS:
            parts.append(rows.frame("gemm", kernel="linear", k=k, **common))
        else:
            parts.append(rows.frame("elementwise", kernel=_SMALL[name], **common))
    return parts


def _attention(raw: pd.DataFrame, path: Path) -> list[pd.DataFrame]:
    require(raw, (*_HEADS, *_SEQUENCES, _TP), path)
    parts = []
    for name in ("attn_prefill", "attn_decode"):
        prefill = raw["is_prefill"].astype(str).str.lower() == "true"
        timed = _timed(raw[prefill if name == "attn_prefill" else ~prefill], name)
        tp = counts(timed, _TP, path, least=1)
        heads = counts(timed, "n_q_head", path, least=1)
        chunk = counts(timed, "prefill_chunk_size", path)
        part = rows.frame(
            "attention",
            kernel=timed.get("attention_backend", pd.Series("", timed.index)),
            dtype=DTYPE,
            kv_dtype=DTYPE,
            batch=counts(timed, "batch_size", path),
            query_tokens=chunk if name == "attn_prefill" else np.ones_like(chunk),
            context_tokens=counts(timed, "kv_cache_size", path),
            heads=heads // tp,
            kv_heads=-(-counts(timed, "n_kv_head", path) // tp),
            head_dim=counts(timed, "n_embd", path) // heads,
            time_s=numbers(timed, _median(name), path) * MS,
        )
        parts.append(part)
    return parts


def _all_reduce(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Every rank writes its own row; the first speaks for all."""
    require(raw, _GROUP, path)
    unnamed = raw["collective"].isna().to_numpy()
    if unnamed.any():
        refuse(raw, "collective", unnamed, "must be the name of a collective", path)
    raw = _timed(raw[raw["collective"] == "all_reduce"], "all_reduce")
    if "rank" in raw:
        raw = raw[raw["rank"] == 0]
    if "devices_per_node" in raw:
        one_node = counts(raw, "devices_per_node", path) >= counts(raw, "num_workers", path)
        raw = raw[one_node]
    return rows.frame(
        "all_reduce",
        kernel="nccl",
        dtype=DTYPE,
        gpus=counts(raw, "num_workers", path),
        message_bytes=counts(raw, "size", path),
        time_s=numbers(raw, _median("all_reduce"), path) * MS,
    )
