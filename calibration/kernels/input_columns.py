"""Columns of other people's files: read them, and say in one line what is wrong with one."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from models.strict_yaml import InputError, show


def read_table(path: Path, texts: Iterable[str] = ()) -> pd.DataFrame:
    """Read a Parquet file or, by any other ending, a CSV file whole.

    The index of a row of CSV is its line in the file; rows without a value are left out. Columns
    named in ``texts`` stay text even where they look like numbers (a version ``0.20``).

    Raises
    ------
    InputError
        If there is no such file, or it cannot be read as what it is.
    """
    return read_parquet(path) if path.suffix == ".parquet" else _read_csv(path, texts)


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file whole; see ``read_table``."""
    try:
        frame: pd.DataFrame = pq.ParquetFile(path).read().to_pandas()
    except FileNotFoundError:
        raise InputError(str(path), None, "", "no such file") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(str(path), None, "", f"cannot be read as Parquet: {reason}") from error
    return frame


def _read_csv(path: Path, texts: Iterable[str]) -> pd.DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                dtype=dict.fromkeys(texts, "str"),
                index_col=False,
                skip_blank_lines=False,
                low_memory=False,
            )
    except FileNotFoundError:
        raise InputError(str(path), None, "", "no such file") from None
    except (OSError, ValueError, pd.errors.ParserWarning) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().splitlines()[-1]
        raise InputError(str(path), None, "", f"cannot be read as CSV: {reason}") from None
    frame.index = pd.RangeIndex(2, len(frame) + 2, name="line")
    return frame.dropna(how="all")


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
    frame: pd.DataFrame, name: str, path: Path, *, least: float = 0.0
) -> NDArray[np.float64]:
    """Column ``name`` as finite numbers not below ``least``.

    Raises
    ------
    InputError
        For the first value that is text, missing, not finite or too small.
    """
    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~np.isfinite(values) | (values < least) | (frame[name].dtype == bool)
    if wrong.any():
        wanted = "must be a number" + (f" >= {least:g}" if np.isfinite(least) else "")
        refuse(frame, name, wrong, wanted, path)
    return values


def counts(frame: pd.DataFrame, name: str, path: Path, *, least: int = 0) -> NDArray[np.int64]:
    """Column ``name`` as whole numbers not below ``least``; see ``numbers``."""
    values = numbers(frame, name, path, least=least)
    wrong = (values != np.floor(values)) | (values > np.iinfo(np.int64).max)
    if wrong.any():
        refuse(frame, name, wrong, "must be a whole number", path)
    return values.astype(np.int64)


def refuse(
    frame: pd.DataFrame, name: str, wrong: NDArray[np.bool_], wanted: str, path: Path
) -> None:
    """Raise an ``InputError`` about the first wrong value of a column."""
    row = int(np.argmax(wrong))
    value = frame[name].iloc[row]
    got = "nothing" if pd.isna(value) else show(getattr(value, "item", lambda: value)())
    label = int(frame.index[row])
    line, where = (label, "") if frame.index.name == "line" else (None, f"row {label}: ")
    raise InputError(str(path), line, name, f"{where}{wanted}, got {got}")


def nearest(word: str, options: Iterable[str]) -> str:
    """Clause that suggests the closest of the options, or nothing."""
    close = difflib.get_close_matches(word, list(options), n=1, cutoff=0.4)
    return f"; did you mean '{close[0]}'?" if close else ""
