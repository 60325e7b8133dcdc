"""What JSON files of an observation must hold; what is wrong is named by file and key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from models.strict_yaml import InputError, dotted, one_line, read_bytes, show

POINTS = ("concurrency", "rate_per_s", "rate_scale")
"""What sets a stage."""
TOLD: dict[str, type] = {"target": str, "date": str, "mode": str, "server": dict}
"""What every observation says of itself."""

T = TypeVar("T")


def mapping(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds.

    Raises
    ------
    InputError
        If it cannot be read, or holds something else.
    """
    try:
        data = json.loads(read_bytes(path))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from None
    if not isinstance(data, dict):
        raise InputError(str(path), None, "", f"must be a mapping, got {show(data)}")
    return data


def unreadable(path: Path, error: Exception) -> InputError:
    """The error that says why a file cannot be read."""
    reason = getattr(error, "strerror", None) or one_line(str(error))
    return InputError(str(path), None, "", f"cannot read: {reason}")


def about(path: Path, version: int) -> dict[str, Any]:
    """What an observation says of itself.

    Raises
    ------
    InputError
        If it is of another kind or version, or does not say what all do.
    """
    said = mapping(path)
    if said.get("kind") != "live" or said.get("version") != version:
        got = f"version {said.get('version')} of kind {said.get('kind')}"
        message = f"is no observation that this speccast reads (version {version}), got {got}"
        raise InputError(str(path), None, "version", message)
    for key, kind in TOLD.items():
        if not isinstance(said.get(key), kind):
            wanted = "a mapping" if kind is dict else "a text"
            message = f"must be {wanted}, got {show(said[key])}" if key in said else "is missing"
            raise InputError(str(path), None, key, message)
    blocks = said.get("strategies")
    if not isinstance(blocks, dict) or len(blocks) != 1:
        raise InputError(str(path), None, "strategies", "must name one strategy")
    ((label, block),) = blocks.items()
    if not isinstance(block, dict) or not isinstance(block.get("kind"), str):
        key = f"strategies.{label}"
        raise InputError(str(path), None, key, "must be a mapping with the kind of the strategy")
    notes = said.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise InputError(str(path), None, "notes", "must be a list of texts")
    return said


def listed(path: Path, key: str, kind: type[T], found: Any) -> tuple[T, ...]:
    """The entries of a list, each of one kind, all its fields of the types it declares.

    Raises
    ------
    InputError
        That names the first entry, and the field in it, that is not.
    """
    if not isinstance(found, list):
        raise InputError(str(path), None, key, f"must be a list, got {show(found)}")
    one = TypeAdapter(kind)
    entries = []
    for index, entry in enumerate(found):
        if not isinstance(entry, dict):
            message = f"must be a mapping, got {show(entry)}"
            raise InputError(str(path), None, f"{key}[{index}]", message)
        try:
            entries.append(one.validate_python(entry, strict=True))
        except ValidationError as error:
            first = error.errors()[0]
            where = dotted((key, index, *first["loc"]))
            raise InputError(str(path), None, where, one_line(first["msg"])) from None
    return tuple(entries)


def points(path: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Check what sets each stage: one key of ``POINTS``, and a positive number.

    Raises
    ------
    InputError
    """
    for index, point in enumerate(found):
        value = next((point[key] for key in POINTS if key in point), None)
        if len(point) != 1 or not _positive(value):
            message = f"must hold one of {', '.join(POINTS)}, a positive number"
            raise InputError(str(path), None, f"stages[{index}].point", message)


def _positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf
