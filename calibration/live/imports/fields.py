"""Values of a JSON result, checked as they are taken; a bad one is named by file, line and key."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from models.strict_yaml import InputError, one_line, show

MISSING = math.nan
"""What a time that is not there is held as."""


MOST = 9 * 10**18
"""Numbers read are below it, as nanoseconds since 1970 are; a column of whole numbers holds it."""


class Fields:
    """A mapping of a JSON document and where it stands there.

    Parameters
    ----------
    data : object
        Must be a mapping.
    path : str
        File it is from.
    line : int, optional
        Its line, in a file of one document a line.
    where : str
        Dotted key of the mapping itself.

    Raises
    ------
    InputError
        If it is no mapping.
    """

    def __init__(self, data: Any, path: str, line: int | None = None, where: str = "") -> None:
        self.path, self.line, self.where = path, line, where
        if not isinstance(data, Mapping):
            raise self.error("", f"must be a mapping, got {show(data)}")
        self.data = data

    def error(self, key: str, message: str) -> InputError:
        """The error that names ``key`` of this mapping."""
        return InputError(self.path, self.line, ".".join(filter(None, (self.where, key))), message)

    def inside(self, *keys: str) -> Fields:
        """The mapping under the first of ``keys`` that is there; an empty one without any."""
        found = next((key for key in keys if self.data.get(key) is not None), keys[0])
        where = ".".join(filter(None, (self.where, found)))
        return Fields(self.data.get(found) or {}, self.path, self.line, where)

    def each(self, key: str) -> Iterator[Fields]:
        """The mappings of a list; none where there is no list."""
        for index, one in enumerate(self.listed(key)):
            where = ".".join(filter(None, (self.where, f"{key}[{index}]")))
            yield Fields(one, self.path, self.line, where)

    def items(self, key: str) -> Sequence[Any]:
        """The list under ``key``."""
        found = self.data.get(key)
        if not isinstance(found, list):
            raise self.error(key, f"must be a list, got {show(found)}")
        return found

    def listed(self, key: str) -> Sequence[Any]:
        """The list under ``key``; an empty one where there is nothing."""
        return () if self.data.get(key) is None else self.items(key)

    def number(self, *keys: str) -> float:
        """The number under the first of ``keys`` that is there."""
        found = self.maybe(*keys)
        if found is None:
            raise self.error(keys[0], "is missing")
        return found

    def maybe(self, *keys: str) -> float | None:
        """The number under the first of ``keys`` that is there; None without any."""
        for key in keys:
            if (value := self.data.get(key)) is not None:
                return checked(value, self, key)
        return None

    def count(self, *keys: str) -> int:
        """The whole number under the first of ``keys`` that is there; 0 without any."""
        for key in keys:
            if (value := self.data.get(key)) is not None:
                return whole(value, self, key)
        return 0

    def needed(self, key: str) -> int:
        """The whole number under ``key``."""
        if self.data.get(key) is None:
            raise self.error(key, "is missing")
        return self.count(key)

    def text(self, *keys: str) -> str:
        """The text under the first of ``keys`` that holds some, on one line; empty without any."""
        values = (self.data.get(key) for key in keys)
        return next((one_line(value) for value in values if isinstance(value, str) and value), "")


def checked(value: Any, of: Fields, key: str) -> float:
    """``value`` as a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise of.error(key, f"must be a number, got {show(value)}")
    # Whole numbers of any length are compared before they are made floats, which end.
    if not 0 <= value < math.inf:
        raise of.error(key, f"must be finite and not negative, got {show(value)}")
    if value >= MOST:
        raise of.error(key, f"must be below {MOST:.0e}, got {show(value)}")
    return float(value)


def whole(value: Any, of: Fields, key: str) -> int:
    """``value`` as a whole number that is not negative."""
    number = checked(value, of, key)
    if number != int(number):
        raise of.error(key, f"must be a whole number, got {show(value)}")
    # By way of a float, nanoseconds since 1970 would lose their last digits.
    return int(value)


def documents(path: Path) -> list[tuple[int | None, Any]]:
    """The JSON documents of a file, each with its line; one without a line fills the file.

    Raises
    ------
    InputError
        If it cannot be read, or is not JSON.
    """
    text = read_text(path)
    try:
        return [(None, json.loads(text))]
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:
        whole_file = error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    found: list[tuple[int | None, Any]] = []
    for number, line in lines:
        try:
            found.append((number, json.loads(line)))
        except RecursionError:
            raise _too_deep(path, number) from None
        except ValueError as error:
            # A document over several lines fails at its first; its own message is the telling one.
            telling = error if found else whole_file
            at = number if found else getattr(whole_file, "lineno", number)
            raise InputError(str(path), at, "", f"is not JSON: {one_line(str(telling))}") from None
    return found


def _too_deep(path: Path, line: int | None = None) -> InputError:
    return InputError(str(path), line, "", "is nested too deeply to be read")


def read_text(path: Path) -> str:
    """The text of a file.

    Raises
    ------
    InputError
        If it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        reason = error.strerror or one_line(str(error))
        raise InputError(str(path), None, "", f"cannot read: {reason}") from None
    except ValueError:
        raise InputError(str(path), None, "", "is not UTF-8 text") from None
