"""One line of a trace turned into a request, or into the sentence that says why it is none."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, NamedTuple

from models.strict_yaml import show
from sim.scenario.distributions import MAX_TOKENS
from sim.scenario.trace.formats import NS, Layout, LineError, split

HASHED_TOKENS = 512
"""Prompt tokens a hash id of a Mooncake trace stands for."""

MOONCAKE_TICKS = 1000
MAX_TIME_S = 9_000_000_000
"""Latest moment in a trace, seconds from 1970 or from its own zero."""

MAX_HASH = 2**64 - 1

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1)


class Row(NamedTuple):
    """One request as the trace has it.

    Attributes
    ----------
    time : float or int
        In ticks of the format.
    labels : tuple of str
        In the order of ``Layout.labels``; empty where the line has none.
    prefix_tokens : int
        Leading tokens shared with all of its prefix; 0 without one.
    hash_ids : tuple of int
        One for each block of its prompt, or none at all.
    """

    time: float
    prompt_tokens: int
    output_tokens: int
    labels: tuple[str, ...] = ()
    prefix_tokens: int = 0
    hash_ids: tuple[int, ...] = ()


def csv_row(line: str, layout: Layout) -> Row:
    """Read one line of a CSV trace.

    Raises
    ------
    LineError
        If it can be no request.
    """
    fields = split(line)
    if len(fields) != len(layout.header):
        raise LineError("", f"must have {len(layout.header)} fields, got {len(fields)}")
    form = layout.format
    read_time = _date_ns if form.ticks == NS else _seconds
    time = read_time(fields[layout.time].strip(), form.time)
    prompt = _tokens(fields[layout.prompt].strip(), form.prompt)
    output = _tokens(fields[layout.output].strip(), form.output)
    _check_prompt(prompt, output, form.prompt)
    labels = tuple([fields[place].strip() for place in layout.labels.values()])
    if layout.prefix_tokens is None:
        return Row(time, prompt, output, labels)
    prefix, text = fields[layout.labels["prefix"]].strip(), fields[layout.prefix_tokens].strip()
    return Row(time, prompt, output, labels, _prefix_tokens(text, prefix, prompt))


def _prefix_tokens(text: str, prefix: str, prompt: int) -> int:
    tokens = _tokens(text, "prefix_tokens") if text else 0
    if bool(tokens) != bool(prefix):
        what = "must be above 0 with a prefix" if prefix else "needs a prefix to belong to"
        raise LineError("prefix_tokens", f"{what}, got {show(text)}")
    if tokens > prompt:
        raise LineError("prefix_tokens", f"must be within the prompt of {prompt}, got {tokens}")
    return tokens


def json_row(line: str) -> Row:
    """Read one line of a Mooncake trace; keys it does not know are left alone.

    Raises
    ------
    LineError
        If it can be no request.
    """
    try:
        record = json.loads(line, object_pairs_hook=_object, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "it is nested too deeply, or a number is too long")
        raise LineError("", f"is not JSON: {reason}") from None
    if not isinstance(record, dict):
        raise LineError("", f"must be a JSON object, got {show(record)}")
    time = _moment(_number(record, "timestamp"), MOONCAKE_TICKS, "timestamp")
    prompt = _whole(_number(record, "input_length"), "input_length")
    output = _whole(_number(record, "output_length"), "output_length")
    _check_prompt(prompt, output, "input_length")
    return Row(time, prompt, output, hash_ids=_hash_ids(record.get("hash_ids"), prompt))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise json.JSONDecodeError("a key comes twice", "", 0)
    return record


def _no_number(name: str) -> float:
    raise json.JSONDecodeError(f"{name} is no number", "", 0)


def _number(record: dict[str, Any], key: str) -> float:
    if key not in record:
        raise LineError(key, "is missing")
    value = record[key]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise LineError(key, f"must be a number, got {show(value)}")


def _hash_ids(ids: Any, prompt: int) -> tuple[int, ...]:
    if ids is None:
        return ()
    if not (isinstance(ids, list) and all(type(i) is int and 0 <= i <= MAX_HASH for i in ids)):
        raise LineError("hash_ids", f"must be a list of whole numbers from 0, got {show(ids)}")
    blocks = -(-prompt // HASHED_TOKENS)
    if len(ids) != blocks:
        raise LineError(
            "hash_ids",
            f"must be {blocks} for {prompt} tokens, one for every {HASHED_TOKENS}, got {len(ids)}",
        )
    return tuple(ids)


def _tokens(text: str, column: str) -> int:
    if text.isdecimal() and len(text) < 8 and text.isascii():
        return int(text)
    return _whole(_parsed(text, column), column)


def _seconds(text: str, column: str) -> float:
    return _moment(_parsed(text, column), 1, column)


def _parsed(text: str, column: str) -> float:
    if not text:
        raise LineError(column, "is missing")
    if not _NUMBER.fullmatch(text):
        raise LineError(column, f"must be a number, got {show(text)}")
    value = float(text)
    return int(value) if value.is_integer() else value


def _whole(value: float, column: str) -> int:
    if value < 0:
        raise LineError(column, f"must not be negative, got {show(value)}")
    if value > MAX_TOKENS:
        raise LineError(column, f"must be at most {MAX_TOKENS} tokens, got {show(value)}")
    if value != int(value):
        raise LineError(column, f"must be whole tokens, got {show(value)}")
    return int(value)


def _check_prompt(prompt: int, output: int, column: str) -> None:
    """A prompt may be empty only where nothing came back: that is a failure, not an error."""
    if output and not prompt:
        raise LineError(column, "must be at least 1 token, got 0")


def _moment(value: float, ticks: int, column: str) -> float:
    if value < 0:
        raise LineError(column, f"must not be negative, got {show(value)}")
    if value > MAX_TIME_S * ticks:
        raise LineError(column, f"is too late to be a time, got {show(value)}")
    return float(value)


def _date_ns(text: str, column: str) -> int:
    """Nanoseconds since 1970; a date without a zone is taken as UTC."""
    if not text:
        raise LineError(column, "is missing")
    match = _DATE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        day, hour, minute, second, fraction, zone = match.groups("")
        clock = f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}"
        since = datetime.fromisoformat(clock) - _EPOCH
        seconds = since.days * 86_400 + since.seconds - _zone_s(zone)
    except ValueError:
        wanted = "must be a date and time like 2024-05-10 12:00:00.5"
        raise LineError(column, f"{wanted}, got {show(text)}") from None
    if not 0 <= seconds <= MAX_TIME_S:
        raise LineError(column, f"must be from 1970 to 2255, got {show(text)}")
    return seconds * NS + int(fraction.ljust(9, "0"))


def _zone_s(zone: str) -> int:
    """Seconds a time zone is ahead of UTC; ValueError if there is no such zone."""
    digits = zone.strip("+-Z").replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError
    return (hours * 3600 + minutes * 60) * (-1 if zone.startswith("-") else 1)
