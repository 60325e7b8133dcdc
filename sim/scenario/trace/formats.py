"""The known formats of traces, recognised by their first line.

All CSV formats have a header; columns may come in any order, and unknown ones are left alone.

========  ==========================================================================================
azure     TIMESTAMP (date and time), ContextTokens, GeneratedTokens
burstgpt  Timestamp (seconds), Request tokens, Response tokens; optional Session ID, Model, Log Type
csv       arrival_s (seconds) or timestamp (date and time), prompt_tokens, output_tokens; optional
          stream, model, log_type, session, and prefix with prefix_tokens: prompts of one prefix
          start with the same so many tokens
mooncake  a JSON object a line: timestamp (milliseconds), input_length, output_length; optional
          hash_ids, one for every 512 tokens of the prompt: equal ids are equal tokens
========  ==========================================================================================

Sources: github.com/Azure/AzurePublicDataset (2023, 2024), github.com/HPMLL/BurstGPT (v1.1, v2.0),
github.com/kvcache-ai/Mooncake (FAST25-release/traces).
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping
from typing import NamedTuple

from models.strict_yaml import show

NS = 10**9
MOONCAKE = "mooncake"


class LineError(ValueError):
    """What is wrong with one line, and in which column; empty where it is the whole line."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column, self.message = column, message


class Format(NamedTuple):
    """The columns of one kind of CSV trace.

    ``ticks`` is how many units of the time column make a second: 1, or 1e9 for dates. ``optional``
    maps further columns to what they mean.
    """

    name: str
    time: str
    ticks: int
    prompt: str
    output: str
    optional: Mapping[str, str]

    @property
    def required(self) -> tuple[str, str, str]:
        """Columns without which it is another format."""
        return self.time, self.prompt, self.output


_OPTIONAL = ("stream", "model", "log_type", "session", "prefix", "prefix_tokens")
_OWN = {name: name for name in _OPTIONAL}

FORMATS = (
    Format("azure", "TIMESTAMP", NS, "ContextTokens", "GeneratedTokens", {}),
    Format(
        "burstgpt",
        "Timestamp",
        1,
        "Request tokens",
        "Response tokens",
        {"Session ID": "session", "Model": "model", "Log Type": "log_type"},
    ),
    Format("csv", "arrival_s", 1, "prompt_tokens", "output_tokens", _OWN),
    Format("csv", "timestamp", NS, "prompt_tokens", "output_tokens", _OWN),
)

_KNOWN = (
    "azure (TIMESTAMP, ContextTokens, GeneratedTokens), burstgpt (Timestamp, Request tokens, "
    "Response tokens), csv (arrival_s or timestamp, prompt_tokens, output_tokens), or mooncake "
    "(JSON lines with timestamp, input_length, output_length)"
)


class Layout(NamedTuple):
    """Where the columns of one file are.

    Attributes
    ----------
    header : tuple of str
        All columns, known or not.
    time, prompt, output : int
        Places of the columns every trace has.
    labels : dict
        Place of each column that holds names, by what it means: session, model, ...
    prefix_tokens : int or None
        Its place, where prompts have prefixes.
    """

    format: Format
    header: tuple[str, ...]
    time: int
    prompt: int
    output: int
    labels: dict[str, int]
    prefix_tokens: int | None


def read_header(line: str, wanted: str) -> Layout | None:
    """Recognise a trace by its first line; None where it is JSON lines.

    Parameters
    ----------
    line : str
        First line that is not blank.
    wanted : str
        Name of a format, or ``auto``.

    Raises
    ------
    LineError
        If it is the header of no known format, or not of the one wanted.
    """
    if wanted == MOONCAKE or (wanted == "auto" and line.lstrip().startswith("{")):
        return None
    names = [name.strip() for name in split(line)]
    places = {name.casefold(): place for place, name in enumerate(names)}
    some = [form for form in FORMATS if wanted in ("auto", form.name)]
    fits = (form for form in some if all(name.casefold() in places for name in form.required))
    found = next(fits, None)
    if found is None and wanted == "auto":
        raise LineError("", f"is the header of no known trace, {_KNOWN}; got {show(line)}")
    if found is None:
        needs = " or ".join(", ".join(form.required) for form in some)
        raise LineError("", f"a trace in format {wanted} has columns {needs}; got {show(line)}")
    return _layout(found, names, places)


def _layout(form: Format, names: list[str], places: dict[str, int]) -> Layout:
    _check_names(form, names)
    found = {
        meaning: places[name.casefold()]
        for name, meaning in form.optional.items()
        if name.casefold() in places
    }
    if ("prefix" in found) != ("prefix_tokens" in found):
        raise LineError("", "has one of the columns prefix and prefix_tokens; they go together")
    time, prompt, output = (places[name.casefold()] for name in form.required)
    prefix_tokens = found.pop("prefix_tokens", None)
    return Layout(form, tuple(names), time, prompt, output, found, prefix_tokens)


def _check_names(form: Format, names: list[str]) -> None:
    """Refuse a known column given twice, and what must be the misspelling of one."""
    folded = [name.casefold() for name in names]
    known = {name.casefold(): name for name in (*form.required, *form.optional)}
    for name, same in zip(names, folded, strict=True):
        if same in known and folded.count(same) > 1:
            raise LineError(name, "is there twice")
        near = difflib.get_close_matches(same, known, 1, 0.85)
        if same not in known and near and near[0] not in folded:
            raise LineError(name, f"is no known column; did you mean '{known[near[0]]}'?")


def split(line: str) -> list[str]:
    """Fields of one CSV line.

    Raises
    ------
    LineError
        For quotes that do not close, and line breaks within a line.
    """
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as error:
        raise LineError("", f"is not CSV: {error}") from None
