"""A file that lists which domain a stream's requests are of, from when on."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from models.schema import ModelError
from models.strict_yaml import InputError, Label, read_bytes, show
from sim.scenario.distributions import Floats, Ints

HEADER = ["at", "domain"]
KEPT = 8
_NAME = TypeAdapter(Label)


class Listed(NamedTuple):
    """Domains by place, ascending from 0; arrays of shape (rows,).

    Attributes
    ----------
    at : float64
        Where each begins.
    codes : int64
        Index into ``names``.
    names : tuple of str
        Each once, in order of first mention.
    """

    at: Floats
    codes: Ints
    names: tuple[str, ...]


def read_domains(path: str, in_shares: bool) -> Listed:
    """Read a list of domains, or return the one read before if the file did not change.

    Parameters
    ----------
    path : str
        CSV with the columns ``at,domain``.
    in_shares : bool
        Places are shares of the requests: none is above 1.

    Raises
    ------
    InputError
        For a bad line, with the file and its number.
    ModelError
        If the file cannot be read.
    """
    try:
        status = Path(path).stat()
        return _read(path, in_shares, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}, got {show(path)}", "file") from None
    except InputError:
        raise
    except ValueError as error:
        raise ModelError(f"cannot be read: {error}, got {show(path)}", "file") from None


@functools.lru_cache(maxsize=KEPT)
def _read(path: str, in_shares: bool, size: int, mtime_ns: int) -> Listed:
    """The list as it is while the file has this size and time of change."""
    lines = csv.reader(read_bytes(path).decode("utf-8-sig").splitlines(), strict=True)
    places: list[float] = []
    words: list[str] = []
    try:
        for cells in lines:
            cells = [cell.strip() for cell in cells]
            if lines.line_num == 1 and cells != HEADER:
                raise InputError(
                    path, 1, "", f"must read {','.join(HEADER)}, got {show(','.join(cells))}"
                )
            if lines.line_num > 1 and any(cells):
                place, word = _row(path, lines.line_num, cells)
                _check_place(path, lines.line_num, place, places, in_shares)
                places.append(place)
                words.append(word)
    except csv.Error as error:
        raise InputError(path, lines.line_num, "", f"is no CSV: {error}") from None
    if not places:
        raise InputError(path, None, "", "lists no domain")
    names = tuple(dict.fromkeys(words))
    return Listed(np.array(places), np.array([names.index(word) for word in words]), names)


def _row(path: str, line: int, cells: list[str]) -> tuple[float, str]:
    if len(cells) != len(HEADER):
        raise InputError(path, line, "", f"must have 2 columns, at and domain, got {len(cells)}")
    try:
        place = float(cells[0])
    except ValueError:
        raise InputError(path, line, "at", f"must be a number, got {show(cells[0])}") from None
    try:
        return place, _NAME.validate_python(cells[1])
    except ValidationError:
        message = f"must be a name of 1 to 64 characters, got {show(cells[1])}"
        raise InputError(path, line, "domain", message) from None


def _check_place(path: str, line: int, place: float, before: list[float], in_shares: bool) -> None:
    most = 1 if in_shares else 1e9
    if not 0 <= place <= most:
        raise InputError(path, line, "at", f"must be from 0 to {most:g}, got {place:g}")
    if not before and place:
        raise InputError(path, line, "at", f"the first must be 0, got {place:g}")
    if before and place <= before[-1]:
        raise InputError(path, line, "at", f"must be after {before[-1]:g}, got {place:g}")
