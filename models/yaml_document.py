"""YAML events to plain data: the small dialect, and errors that name file, line and key."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 30
LONGEST_VALUE, LONGEST_MESSAGE = 200, 2000

Key = str | tuple[str | int, ...]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_VALUE + 1},}}")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class InputError(ValueError):
    """Bad input from a user; ``str()`` reads ``file:line: key: message``, unknown parts left out.

    Attributes
    ----------
    path : str
        File, or where else the text came from.
    line : int or None
        Line, counted from 1.
    key : str
        Dotted key at fault, list items as ``[0]``.
    message : str
        What is wrong.

    The text is one line of printable characters, with long values shortened; the attributes are as
    given.
    """

    def __init__(self, path: str, line: int | None, key: str, message: str) -> None:
        place = one_line(path, LONGEST_VALUE)
        if path and line is not None:
            place += f":{line}"
        where = one_line(key, LONGEST_VALUE)
        super().__init__(": ".join(part for part in (place, where, one_line(message)) if part))
        self.path, self.line, self.key, self.message = path, line, key, message


def one_line(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Escape what is not printable, and leave out the middle of long words and of a long text."""
    text = _LONG_WORD.sub(lambda word: _shortened(word[0], LONGEST_VALUE), text)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in _shortened(text, most))


def _shortened(text: str, most: int) -> str:
    half = most // 2 - 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def dotted(path: tuple[str | int, ...]) -> str:
    """Write a path the way errors show it: ``("a", 0, "b")`` is ``a[0].b``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True)
class Document:
    """Parsed YAML: plain data, and the line of every key.

    Attributes
    ----------
    data : object
        Dicts, lists, strings, numbers, booleans and None.
    path : str
        File the text came from.
    lines : dict
        Line of each dotted key, from 1.
    comment : str
        Text of a comment in the very first line, empty where there is none.
    """

    data: Any
    path: str
    lines: dict[str, int] = field(default_factory=dict, repr=False)
    comment: str = ""

    def line(self, key: Key) -> int | None:
        """Line of a key, or of its nearest parent in the file; None when nothing is known."""
        name = key if isinstance(key, str) else dotted(key)
        while name and name not in self.lines:
            name = name[: max(name.rfind("."), name.rfind("["), 0)]
        return self.lines.get(name)

    def error(self, key: Key, message: str) -> InputError:
        """Build the error for a key of this document."""
        name = key if isinstance(key, str) else dotted(key)
        return InputError(self.path, self.line(name), name, message)


class Reader:
    """Turns parser events into data; the parser resolves nothing, so no rule is implicit."""

    def __init__(self, text: str, path: str) -> None:
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self.path = path
        self.lines: dict[str, int] = {}
        first = text.partition("\n")[0]
        self.comment = one_line(first.lstrip("# ").rstrip()) if first.startswith("#") else ""

    def document(self) -> Document:
        """Read the one document there must be."""
        next(self.events)
        start = next(self.events)
        if isinstance(start, yaml.StreamEndEvent):
            raise InputError(self.path, None, "", "is empty")
        if start.version or start.tags:
            raise self._error(start, (), "YAML directives are not allowed")
        first = next(self.events)
        self.lines[""] = first.start_mark.line + 1
        data = self._node(first, ())
        next(self.events)
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._error(after, (), "several documents in one file are not allowed")
        return Document(data, self.path, self.lines, self.comment)

    def _error(self, event: Any, where: tuple[str | int, ...], message: str) -> InputError:
        return InputError(self.path, event.start_mark.line + 1, dotted(where), message)

    def _node(self, event: Any, where: tuple[str | int, ...]) -> Any:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._error(event, where, f"anchors and aliases are not allowed: {event.anchor}")
        if event.tag is not None:
            raise self._error(event, where, f"tags are not allowed, got {event.tag}")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, where)
        if len(where) >= MAX_DEPTH:
            raise self._error(event, (), f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(where)
        return self._mapping(where)

    def _sequence(self, where: tuple[str | int, ...]) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            here = (*where, len(items))
            self.lines[dotted(here)] = event.start_mark.line + 1
            items.append(self._node(event, here))
        return items

    def _mapping(self, where: tuple[str | int, ...]) -> dict[str | int, Any]:
        result: dict[str | int, Any] = {}
        seen: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key, line = self._key(event, where), event.start_mark.line + 1
            here = (*where, str(key))
            if str(key) in seen:
                raise self._error(event, here, f"duplicate key, first on line {seen[str(key)]}")
            seen[str(key)] = self.lines[dotted(here)] = line
            result[key] = self._node(next(self.events), here)
        return result

    def _key(self, event: Any, where: tuple[str | int, ...]) -> str | int:
        if not isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)):
            raise self._error(event, where, "keys must be strings, got a list or mapping")
        key = self._node(event, where)
        if key == "<<":
            raise self._error(event, where, "merge keys are not allowed")
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise self._error(event, where, f"keys must be strings, got {show(key)}; quote it")
        return key

    def _scalar(self, event: Any, where: tuple[str | int, ...]) -> Any:
        text: str = event.value
        if not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_FINITE.fullmatch(text):
            raise self._error(event, where, f"must be a finite number, got {text}")
        if _INT.fullmatch(text) and len(text) <= 40:
            return int(text, 0) if text[1:2] in ("x", "o") else int(text)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if math.isinf(number):
                raise self._error(event, where, f"is too large for a number, got {text[:40]}")
            return number
        return text


def show(value: Any) -> str:
    """Write a value the way the user wrote it, shortened."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
