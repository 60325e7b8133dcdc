"""Timed kernels as a data frame: the columns of ``sim.kernel_rows.KERNELS``, one row a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from calibration.kernels import work
from sim.kernel_rows import KERNELS, OPERATIONS, read_kernels, write_kernels
from sim.tables import COUNT, TEXT, to_columns
from sim.tables import to_arrow as to_arrow_table

TEXTS = tuple(field.name for field in KERNELS if field.type == TEXT)
COUNTS = tuple(field.name for field in KERNELS if field.type == COUNT)

SHAPE = (*COUNTS, "dtype", "kv_dtype", "mask")
"""Columns that say what was computed; with ``kernel`` and where it ran they name a row."""


def frame(operation: str, **columns: Any) -> pd.DataFrame:
    """Rows of one operation from the columns it has.

    Parameters
    ----------
    operation : str
        One of ``sim.kernel_rows.OPERATIONS``.
    **columns
        Arrays of one length, or plain values to repeat; ``time_s`` [s] at least. Counts left out
        are 0, texts "", ``spread`` 0, the mask of attention ``causal``; ``bytes`` and ``flops``
        come from ``calibration.kernels.work`` where they are left out or 0.

    Raises
    ------
    TypeError
        If a column is not in the schema, or ``time_s`` is missing.
    ValueError
        If the operation is not known, lengths differ, a count is not whole, or the work of a row
        cannot be told.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, got '{operation}'")
    strange = [name for name in columns if name not in KERNELS.names]
    if strange or "time_s" not in columns:
        raise TypeError(f"no such column: {strange[0]}" if strange else "time_s is missing")
    if operation == "attention":
        columns.setdefault("mask", "causal")
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    length = next((len(array) for array in arrays.values() if array.ndim), 1)
    filled: dict[str, Any] = {}
    for name in KERNELS.names:
        default: Any = "" if name in TEXTS else 0
        value = operation if name == "operation" else columns.get(name, default)
        filled[name] = _column(name, value, length)
    _fill_work(operation, filled)
    return pd.DataFrame(filled)


def _fill_work(operation: str, filled: dict[str, Any]) -> None:
    """Work out bytes, and the FLOPs of operations that have some, in the rows without them."""
    empty = filled["bytes"] <= 0
    if operation in ("gemm", "attention", "moe"):
        empty |= filled["flops"] <= 0
    if not empty.any():
        return
    shape = {name: np.asarray(values)[empty] for name, values in filled.items()}
    for name, least in work.of(operation, shape)._asdict().items():
        filled[name][empty] = np.where(shape[name] > 0, shape[name], least)


def _column(name: str, value: Any, length: int) -> Any:
    kind: Any = object if name in TEXTS else np.int64 if name in COUNTS else np.float64
    array = np.asarray(value, dtype=kind)
    if kind is np.int64 and (array != np.asarray(value)).any():
        raise ValueError(f"{name} must be whole numbers")
    if array.ndim and len(array) != length:
        raise ValueError(f"{name} has {len(array)} rows, others {length}")
    full = np.broadcast_to(array, (length,))
    return pd.Series(full, copy=True).astype(str) if name in TEXTS else full.copy()


def join(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several frames, one after another; no frames give no rows."""
    if not parts:
        return frame("launch", time_s=np.zeros(0))
    return pd.concat(parts, ignore_index=True)


def to_arrow(rows: pd.DataFrame) -> pa.Table:
    """Rows as an Arrow table of the schema; columns it does not have are left out."""
    return to_arrow_table(KERNELS, {name: rows[name].to_numpy() for name in KERNELS.names})


def from_arrow(table: pa.Table) -> pd.DataFrame:
    """Rows of an Arrow table of the schema."""
    columns = to_columns(table.select(KERNELS.names))
    return pd.DataFrame({name: _column(name, columns[name], len(table)) for name in KERNELS.names})


def read(path: str | Path) -> pd.DataFrame:
    """Read rows written by ``write``.

    Raises
    ------
    InputError
        If there is no such file, it is not whole, or columns are missing.
    """
    return from_arrow(read_kernels(path))


def write(rows: pd.DataFrame, path: str | Path) -> None:
    """Write rows as Parquet; the file appears only when complete."""
    write_kernels(to_arrow(rows), path)
