"""Columns of other people's files: read them, and say in one line what is wrong with one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from models.strict_yaml import InputError, show


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file whole.

    Raises
    ------
    InputError
        If there is no such file, or it cannot be read.
    """
    try:
        frame: pd.DataFrame = pq.ParquetFile(path).read().to_pandas()
        return frame
    except FileNotFoundError:
        raise InputError(str(path), None, "", "no such file") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(str(path), None, "", f"cannot be read as Parquet: {reason}") from error


def require(frame: pd.DataFrame, names: Iterable[str], path: Path) -> None:
    """Refuse a file without one of these columns.

    Raises
    ------
    InputError
        That names the columns missing and those that are there.
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        there = ", ".join(str(name) for name in frame.columns)
        message = f"columns missing: {', '.join(missing)}; there are {there}"
        raise InputError(str(path), None, "", message)


def numbers(
    frame: pd.DataFrame, name: str, path: Path, *, first_line: int | None = None
) -> NDArray[np.float64]:
    """Column ``name`` as finite numbers not below 0.

    Parameters
    ----------
    first_line : int, optional
        Line of the first row, for messages about text files; without it they name the row.

    Raises
    ------
    InputError
        For the first value that is text, missing, not finite or negative.
    """
    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~np.isfinite(values) | (values < 0)
    if frame[name].dtype == bool:
        wrong[:] = True
    if wrong.any():
        refuse(frame, name, int(np.argmax(wrong)), "must be a number >= 0", path, first_line)
    return values


def counts(
    frame: pd.DataFrame, name: str, path: Path, *, first_line: int | None = None
) -> NDArray[np.int64]:
    """Column ``name`` as whole numbers not below 0; see ``numbers``."""
    values = numbers(frame, name, path, first_line=first_line)
    wrong = values != np.floor(values)
    if wrong.any():
        refuse(frame, name, int(np.argmax(wrong)), "must be a whole number", path, first_line)
    return values.astype(np.int64)


def refuse(
    frame: pd.DataFrame, name: str, row: int, wanted: str, path: Path, first_line: int | None
) -> None:
    """Raise an ``InputError`` about one value."""
    value = frame[name].iloc[row]
    got = "nothing" if pd.isna(value) else show(value.item() if hasattr(value, "item") else value)
    line = None if first_line is None else first_line + row
    where = "" if first_line is not None else f"row {row}: "
    raise InputError(str(path), line, name, f"{where}{wanted}, got {got}")


def nearest(word: str, options: Iterable[str]) -> str:
    """Clause that suggests the closest of the options, or nothing."""
    close = difflib.get_close_matches(word, list(options), n=1, cutoff=0.4)
    return f"; did you mean '{close[0]}'?" if close else ""
