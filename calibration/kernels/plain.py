"""Timed kernels in a CSV or Parquet file with the columns of our own schema."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.kernels import rows
from calibration.kernels.input_columns import counts, numbers, read_table, refuse, require
from calibration.kernels.work import ELEMENT_BYTES, KV_BYTES, OPERANDS
from models.strict_yaml import InputError
from sim.kernel_rows import KERNELS, OPERATIONS

UNITS = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}

SHAPES = {
    "gemm": ("m", "n", "k"),
    "attention": ("batch", "query_tokens", "heads", "kv_heads", "head_dim"),
    "all_reduce": ("gpus", "message_bytes"),
    "moe": ("m", "n", "k", "experts", "experts_per_token"),
    "elementwise": ("m", "n"),
    "sampling": ("m", "n"),
    "launch": (),
    "stream": ("bytes",),
}
"""Columns each operation needs to be above 0."""

_TYPED = {"gemm": ("dtype",), "moe": ("dtype",), "attention": ("dtype", "kv_dtype")}
_MASKS = ("causal", "tree")


def read(path: str | Path) -> pd.DataFrame:
    """Rows of a file with a header of our column names.

    Parameters
    ----------
    path : path
        ``.parquet``, or anything else for CSV. ``operation`` and one of ``time_s``, ``time_ms``
        and ``time_us`` must be there, and what the shape of each operation takes (``SHAPES``).
        An empty cell is 0 or no text; ``bytes`` and ``flops`` are worked out where empty.

    Returns
    -------
    DataFrame
        Columns of ``sim.kernel_rows.KERNELS``, rows in the order of the file.

    Raises
    ------
    InputError
        With file and line, if the file cannot be read, a column is not known, missing or given in
        two units, or a value is not what its column holds.
    """
    path = Path(path)
    raw = read_table(path, rows.TEXTS)
    unit = _check_header(raw, path)
    columns: dict[str, Any] = {"time_s": numbers(raw, unit, path) * UNITS[unit]}
    for name in (column for column in KERNELS.names if column in raw and column != "time_s"):
        if name in rows.TEXTS:
            columns[name] = raw[name].astype(object).where(raw[name].notna(), "").astype(str)
        else:
            read_numbers = counts if name in rows.COUNTS else numbers
            columns[name] = read_numbers(raw[[name]].fillna(0), name, path)
    columns.setdefault("source", str(path))
    values = pd.DataFrame(columns, index=raw.index)
    _check_names(values, raw, "operation", OPERATIONS, path)
    parts, places = [], []
    for name, part in values.groupby("operation"):
        parts.append(_operation(str(name), part, raw, path))
        places.append(np.flatnonzero(values["operation"] == name))
    if not parts:
        raise InputError(str(path), None, "", "has no rows")
    return rows.join(parts).iloc[np.argsort(np.concatenate(places))].reset_index(drop=True)


def _check_header(raw: pd.DataFrame, path: Path) -> str:
    """Name of the column of times."""
    known = [*KERNELS.names, *UNITS]
    line = 1 if raw.index.name == "line" else None
    for name in raw.columns:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(known)}"
            raise InputError(str(path), line, str(name), f"unknown column{hint}")
    require(raw, ("operation",), path)
    units = [name for name in UNITS if name in raw]
    if len(units) != 1:
        got = " and ".join(units) or "none"
        raise InputError(str(path), line, "", f"needs one of {', '.join(UNITS)}, got {got}")
    return units[0]


def _check_names(
    values: pd.DataFrame, raw: pd.DataFrame, name: str, options: tuple[str, ...], path: Path
) -> None:
    wrong = ~values[name].isin(options).to_numpy()
    if wrong.any():
        shown = raw.loc[values.index]
        refuse(shown, name, wrong, f"must be one of {', '.join(options)}", path)


def _operation(name: str, part: pd.DataFrame, raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Rows of one operation, its shape checked, its work filled in where the file has none."""
    require(part, (*SHAPES[name], *_TYPED.get(name, ())), path)
    shown = raw.loc[part.index]
    for column in SHAPES[name]:
        wrong = part[column].to_numpy() <= 0
        if wrong.any():
            refuse(shown, column, wrong, f"must be above 0 for {name}", path)
    for column in _TYPED.get(name, ()):
        options = tuple(OPERANDS if column == "dtype" else KV_BYTES)
        _check_names(part, raw, column, options, path)
    if name == "attention" and "mask" in part:
        part = part.assign(mask=part["mask"].replace("", "causal"))
        _check_names(part, raw, "mask", _MASKS, path)
    bare = part[part["bytes"] == 0] if "bytes" in part else part
    if name == "elementwise" and len(bare):
        require(part, ("kernel",), path)
        _check_names(bare, raw, "kernel", tuple(ELEMENT_BYTES), path)
    columns = {str(key): part[key].to_numpy() for key in part if key != "operation"}
    return rows.frame(name, **columns)
