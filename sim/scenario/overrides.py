"""Dotted keys: ``a.b[0].c`` addresses a value in a scenario, for ``--set`` and ``vary``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from models.strict_yaml import InputError, dotted, load_yaml, show

Path = tuple[str | int, ...]

_KEY = re.compile(r"[^.\[\]=\s]+(\.[^.\[\]=\s]+|\[\d{1,6}\])*")
_PART = re.compile(r"[^.\[\]]+")


@dataclass(frozen=True)
class Override:
    """One ``--set key=value``."""

    text: str
    key: str
    value: Any

    def error(self, key: str, message: str) -> InputError:
        """Build the error that names this override instead of a file and line."""
        return InputError(f"--set {self.text}", None, key, message)


def parse_override(text: str) -> Override:
    """Read ``a.b=c``; the value is strict YAML, so ``3e12``, ``true`` and ``{p95: 0.5}`` work.

    Raises
    ------
    InputError
        If there is no ``=``, the key is no dotted key, or the value is not valid YAML.
    """
    text = text if text.isprintable() else repr(text)[1:-1]
    where = f"--set {text}"
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals:
        raise InputError(where, None, "", "must read key=value")
    if not _KEY.fullmatch(key):
        raise InputError(where, None, "", f"is not a dotted key like a.b[0].c, got {show(key)}")
    if _PART.findall(key)[0] == "vary":
        raise InputError(where, None, key, "set the varied key itself: one value replaces its grid")
    try:
        data = load_yaml(f"value: {value}", where).data
    except InputError as error:
        raise InputError(where, None, key, error.message) from None
    return Override(text, key, data["value"])


def locate(data: Any, key: str) -> Path:
    """Split a dotted key into a path, list positions as integers: ``a.0`` and ``a[0]`` are one.

    Raises
    ------
    ValueError
        If the key is malformed or passes through a value that has nothing below it.
    """
    if not _KEY.fullmatch(key):
        raise ValueError("is not a dotted key like a.b[0].c")
    path: Path = ()
    for part in _PART.findall(key):
        if isinstance(data, list):
            if not part.isdecimal() or int(part) >= len(data):
                raise ValueError(f"{dotted(path)} has {len(data)} items, no '{part}'")
            path, data = (*path, int(part)), data[int(part)]
        elif isinstance(data, dict) or data is None:
            path, data = (*path, part), (data or {}).get(part)
        else:
            raise ValueError(f"{dotted(path)} is {show(data)}, with nothing below it")
    return path


def canonical(key: str) -> str:
    """Dotted key with list positions in brackets, whichever way they were written."""
    key = re.sub(r"\.(\d+)(?=[.\[]|$)", r"[\1]", key)
    return re.sub(r"\[0+(?=\d)", "[", key)


def replaced(data: Any, path: Path, value: Any) -> Any:
    """Copy of the data with one value replaced; blocks missing on the way are made."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(data, list) and isinstance(head, int):
        return [*data[:head], replaced(data[head], rest, value), *data[head + 1 :]]
    block = data or {}
    return {**block, head: replaced(block.get(head), rest, value)}


def within(key: str, parent: str) -> bool:
    """Whether a dotted key is the parent itself or lies below it."""
    return key == parent or key.startswith((f"{parent}.", f"{parent}["))
