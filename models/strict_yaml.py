"""YAML without surprises: strict parsing, and one-line errors from pydantic models."""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from models.yaml_document import Document, InputError, Reader, dotted, one_line, show

__all__ = [
    "Document",
    "InputError",
    "Label",
    "dotted",
    "load_yaml",
    "one_line",
    "read_bytes",
    "read_yaml",
    "show",
    "validate",
]

MAX_BYTES = 1_000_000

M = TypeVar("M", bound=BaseModel)

_SCALARS = ("int_type", "float_type", "bool_type")
_LOOSE = (str, bool)
_WORDING = (
    ("a object", "a mapping"),
    ("a dictionary", "a mapping"),
    ("a array", "a list"),
    ("a integer", "an integer"),
)


def _printable(text: str) -> str:
    if not text.isprintable() or text.isspace():
        raise ValueError("must be 1 to 64 printable characters")
    return text


Label = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_printable)]
"""A name shown in tables."""


def read_bytes(path: str | Path) -> bytes:
    """Read a small file; a pipe that nobody writes to is empty.

    Raises
    ------
    OSError, ValueError
        If it cannot be read, or is over 1 MB.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes, got {len(raw)} or more")
    return raw


def _without_waiting(path: str, flags: int) -> int:
    """Open a pipe at once, with a writer or not; reading then waits for the writer."""
    at_once = getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | at_once)
    if at_once:
        os.set_blocking(descriptor, True)
    return descriptor


def read_yaml(path: str | Path) -> Document:
    """Read one YAML file.

    Raises
    ------
    InputError
        If the file cannot be read, is over 1 MB, is not UTF-8, or is not strict YAML.
    """
    name = str(path)
    try:
        raw = read_bytes(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(name, None, "", f"cannot read: {reason}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(name, line, "", f"is not UTF-8: byte {raw[error.start]:#04x}") from None
    return load_yaml(text, name)


def load_yaml(text: str, path: str) -> Document:
    """Parse YAML 1.2 core: ``3e12`` is a number, ``no``, ``12:30`` and dates are strings.

    Parameters
    ----------
    text : str
        One document.
    path : str
        Name for error messages.

    Raises
    ------
    InputError
        For invalid YAML, duplicate or non-string keys (integers are allowed), tags, anchors,
        aliases, merges, not-finite numbers, several documents, or none.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise InputError(path, None, "", f"is larger than {MAX_BYTES} bytes")
    try:
        return Reader(text, path).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = _line(text, getattr(error, "character", None)) if mark is None else mark.line + 1
        raise InputError(path, line, "", f"is not valid YAML: {what}") from None
    except UnicodeEncodeError as error:
        line = _line(text, ord(error.object[error.start]))
        raise InputError(path, line, "", f"is not UTF-8: {error}") from None


def _line(text: str, character: int | None) -> int | None:
    """Line in which a character comes first; None for no character."""
    return None if character is None else text.partition(chr(character))[0].count("\n") + 1


def validate(model: type[M], document: Document, prefix: tuple[str | int, ...] = ()) -> M:
    """Build a model from a document, or from the block of it at ``prefix``.

    Strict: a number in quotes, or ``true`` for a number, is refused; ``3.0`` and ``1e6`` serve as
    integers.

    Raises
    ------
    InputError
        The first thing wrong, with its line and dotted key.
    """
    data = document.data
    for part in prefix:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            raise document.error(prefix, "is missing") from None
    text = json.dumps(_whole(data))
    try:
        valid = model.model_validate_json(text)
        error = _coerced(model, text)
    except ValidationError as failure:
        error = _most_telling(failure.errors(), data)
    if error is not None:
        raise document.error(*_describe(model, error, data, prefix))
    return valid


def _coerced(model: type[BaseModel], text: str) -> Any:
    """First number or boolean that only passed by converting a string or boolean, if any.

    Strict validation alone would also refuse lists where a validator hands on Python objects.
    """
    try:
        model.model_validate_json(text, strict=True)
    except ValidationError as failure:
        return next(
            (e for e in failure.errors() if e["type"] in _SCALARS and type(e["input"]) in _LOOSE),
            None,
        )
    return None


def _most_telling(errors: list[Any], data: Any) -> Any:
    """First error, but inside a union the branch that went deepest, and a typo before its gap."""
    first = errors[0]
    place = first["loc"][:-1]
    if isinstance(first["input"], (dict, list)) and _dropped(first["loc"], data):
        inside = [e for e in errors if e["loc"][: len(place)] == place]
        first = max(inside, key=lambda e: len(e["loc"]))
    if first["type"] != "missing":
        return first
    beside = [e for e in errors if e["type"] == "extra_forbidden"]
    return next((e for e in beside if e["loc"][:-1] == first["loc"][:-1]), first)


def _dropped(location: tuple[str | int, ...], data: Any) -> bool:
    """Whether the last part of a location is no key of the data but a branch of a union."""
    path, _ = _resolve(location, data, missing=False)
    return bool(location) and (not path or str(path[-1]) != str(location[-1]))


def _whole(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _whole(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_whole(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _describe(
    model: type[BaseModel], error: Any, data: Any, prefix: tuple[str | int, ...]
) -> tuple[tuple[str | int, ...], str]:
    """Dotted path and message of one pydantic error."""
    kind, context = error["type"], error.get("ctx", {})
    path, value = _resolve(error["loc"], data, missing=kind == "missing")
    where = prefix + path
    if kind == "missing":
        return where, "is missing"
    if kind == "extra_forbidden":
        return where, f"unknown key{_hint(str(path[-1]), _fields(model, error['loc'][:-1]))}"
    if kind == "union_tag_not_found":
        return (*where, context["discriminator"].strip("'")), "is missing"
    if kind in ("union_tag_invalid", "literal_error", "enum"):
        options = re.findall(r"'([^']*)'", context.get("expected_tags") or context["expected"])
        name = context.get("discriminator", "").strip("'")
        got = value.get(name) if name and isinstance(value, dict) else value
        wanted = f"must be one of {', '.join(options)}, got {show(got)}"
        return (*where, name) if name else where, wanted + _hint(str(got), options)
    cause = context.get("error")
    where += tuple(str(getattr(cause, "key", "") or "").split(".")) if cause is not None else ()
    message = str(cause) if cause is not None else _plain(error["msg"])
    shown = "got " in message or (isinstance(value, (dict, list)) and kind == "value_error")
    return tuple(p for p in where if p != ""), message if shown else f"{message}, got {show(value)}"


def _plain(message: str) -> str:
    message = re.sub(r"^\w+ should (?:be a valid|be an?) ", "must be a ", message)
    message = re.sub(r"^\w+ should ", "must ", message)
    message = re.sub(
        r" items? after validation, not \d+$", lambda m: m[0].split(" after")[0], message
    )
    message = re.sub(r", (unable to|got a number with) .*", "", message)
    for theirs, ours in _WORDING:
        message = message.replace(theirs, ours)
    return message


def _resolve(
    location: tuple[str | int, ...], data: Any, *, missing: bool
) -> tuple[tuple[str | int, ...], Any]:
    """Follow a pydantic location through the data; parts that are no key (union tags) drop out."""
    path: tuple[str | int, ...] = ()
    tagged = False
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if part == "[key]" and path:
            data = path[-1]
        elif isinstance(data, dict):
            known = next((key for key in data if str(key) == str(part)), None)
            is_tag = not tagged and not last and part == data.get("kind")
            if known is not None and not is_tag:
                path, data, tagged = (*path, str(part)), data[known], False
            elif last and missing:
                path = (*path, part)
            else:
                tagged = True
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            path, data, tagged = (*path, part), data[part], False
    return path, data


def _fields(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Keys allowed at a location, by walking the model's annotations."""
    models = [model]
    for part in location:
        inner = [m.model_fields[str(part)].annotation for m in models if part in m.model_fields]
        tagged = [m for m in models if len(models) > 1 and _kind(m) == part]
        models = tagged or (_models_in(inner) if inner else models)
    return [info.alias or name for m in models for name, info in m.model_fields.items()]


def _kind(model: type[BaseModel]) -> Any:
    info = model.model_fields.get("kind")
    return next(iter(get_args(info.annotation)), None) if info else None


def _models_in(annotations: Any) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
        else:
            found += _models_in(get_args(annotation))
    return found


def _hint(word: str, options: list[str]) -> str:
    close = difflib.get_close_matches(word, options, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
