"""Recorded runs: the acceptance table, and what the strategies in it are."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from calibration.acceptance.trace import Trace
from models.strategies import Strategy, fixed_types
from models.strict_yaml import InputError, load_yaml, one_line, read_bytes
from sim.tables import Columns, to_columns

TABLE, ABOUT = "acceptance.parquet", "run.json"
TEXTS = ("strategy", "domain")
COUNTS = ("request", "step", "context", "drafted", "accepted")


class Runs(NamedTuple):
    """Traces by strategy label and domain, and where they come from.

    Attributes
    ----------
    path : Path
        The table.
    traces : dict
        Label, then domain -> trace; in order of appearance.
    blocks : dict
        Label -> the strategy's YAML block without its acceptance.
    strategies : dict
        Label -> strategy, of those the simulator knows and that draft.
    unknown : tuple of str
        Labels it does not know.
    target, date, machine : str
    """

    path: Path
    traces: dict[str, dict[str, Trace]]
    blocks: dict[str, dict[str, Any]]
    strategies: dict[str, Strategy]
    unknown: tuple[str, ...]
    target: str
    date: str
    machine: str


def read(
    runs: Path, given: Sequence[str] = (), stated: Mapping[str, Mapping[str, Any]] | None = None
) -> Runs:
    """Read the runs of a folder, or a table by itself.

    Parameters
    ----------
    runs : Path
        Folder with ``acceptance.parquet`` and ``run.json``, or a Parquet file of that schema.
    given : sequence of str
        ``LABEL={kind: ..., ...}`` for what ``run.json`` beside the table does not say.
    stated : mapping of mapping, optional
        The same, label by label.

    Raises
    ------
    InputError
        If a file is missing or not of its schema, or no strategy of it can be fitted.
    """
    path = runs / TABLE if runs.is_dir() else runs
    traces = read_traces(path)
    about = _about(path.with_name(ABOUT))
    said = {label: dict(block) for label, block in (stated or {}).items()}
    blocks = {**about.get("strategies", {}), **dict(map(_given, given)), **said}
    silent = [label for label in traces if label not in blocks]
    if silent:
        where = f"{path.with_name(ABOUT)} does not say what strategy '{silent[0]}' is"
        example = f"--strategy '{silent[0]}={{kind: ..., k: ...}}'"
        raise InputError(str(path), None, "strategy", f"{where}: give {example}")
    known = {label: blocks[label] for label in traces if _kind(blocks[label]) in fixed_types()}
    built = {label: _strategy(block, label, path) for label, block in known.items()}
    strategies = {label: strategy for label, strategy in built.items() if strategy.drafted}
    if not strategies:
        raise InputError(str(path), None, "strategy", "has no strategy that drafts and is known")
    unknown = tuple(label for label in traces if label not in known)
    date = _date(about, path)
    words = (str(about.get(key) or "unknown") for key in ("target", "machine"))
    target, machine = words
    return Runs(path, traces, known, strategies, unknown, target, date, machine)


def read_traces(path: Path) -> dict[str, dict[str, Trace]]:
    """Traces of an acceptance table by strategy label and domain.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column, is empty, or counts what cannot be.
    """
    columns = _columns(path)
    _check_counts(path, columns)
    traces: dict[str, dict[str, Trace]] = {}
    keys = list(zip(columns["strategy"], columns["domain"], strict=True))
    of = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    codes = np.array([of[key] for key in keys])
    for (label, domain), code in of.items():
        rows = np.flatnonzero(codes == code)
        traces.setdefault(label, {})[domain] = _trace(path, columns, rows)
    return traces


def _columns(path: Path) -> Columns:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        raise InputError(str(path), None, "", f"cannot read: {reason}") from None
    for name in (*TEXTS, *COUNTS):
        if name not in table.column_names:
            raise InputError(str(path), None, name, "is missing: not a table of acceptance")
        kind = table.schema.field(name).type
        right = pa.types.is_integer(kind) if name in COUNTS else _is_text(kind)
        if not right or table.column(name).null_count:
            wanted = "whole numbers" if name in COUNTS else "text"
            raise InputError(str(path), None, name, f"must be {wanted}, got {kind} or nulls")
    if table.num_rows == 0:
        raise InputError(str(path), None, "", "is empty: no step was recorded")
    names = [*TEXTS, *COUNTS, *(["ranks"] if "ranks" in table.column_names else [])]
    return to_columns(table.select(names))


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _check_counts(path: Path, columns: Columns) -> None:
    accepted, drafted = columns["accepted"], columns["drafted"]
    bad = {
        "accepted": (accepted < 0, "must not be negative"),
        "drafted": (accepted > drafted, "must be at least what was accepted"),
        "context": (columns["context"] < 1, "must be at least 1"),
    }
    for name, (wrong, message) in bad.items():
        if wrong.any():
            row = int(np.argmax(wrong))
            got = f"got {columns[name][row]} in row {row + 1}"
            raise InputError(str(path), None, name, f"{message}, {got}")


def _trace(path: Path, columns: Columns, rows: np.ndarray) -> Trace:
    request, step = columns["request"][rows], columns["step"][rows]
    order = np.lexsort((step, request))
    request, step, rows = request[order], step[order], rows[order]
    new = np.concatenate(([True], request[1:] != request[:-1]))
    twice = ~new & (step == np.concatenate(([-1], step[:-1])))
    if twice.any():
        which = int(np.argmax(twice))
        message = f"step {step[which]} of request {request[which]} stands there twice"
        raise InputError(str(path), None, "step", message)
    offsets = np.append(np.flatnonzero(new), rows.size)
    accepted, drafted, context = (columns[n][rows] for n in ("accepted", "drafted", "context"))
    ranks = tuple(columns["ranks"][rows]) if "ranks" in columns else ()
    return Trace(offsets, accepted, drafted, context, ranks)


def _about(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        about = json.loads(read_bytes(path))
    except (OSError, ValueError) as error:
        raise InputError(str(path), None, "", f"cannot read: {one_line(str(error))}") from None
    strategies = about.get("strategies", {}) if isinstance(about, dict) else None
    if not isinstance(strategies, dict) or not all(map(_kind, strategies.values())):
        raise InputError(str(path), None, "strategies", "must name the kind of every strategy")
    return dict(about)


def _date(about: Mapping[str, Any], table: Path) -> str:
    """Day of the runs; that of the table where nothing says it."""
    said = about.get("date")
    if said is None:
        return datetime.date.fromtimestamp(table.stat().st_mtime).isoformat()
    try:
        return datetime.date.fromisoformat(str(said)[:10]).isoformat()
    except ValueError:
        where, got = str(table.with_name(ABOUT)), one_line(str(said))
        raise InputError(where, None, "date", f"must be as in 2026-01-31, got '{got}'") from None


def _given(text: str) -> tuple[str, dict[str, Any]]:
    label, equals, block = text.partition("=")
    if not equals or not label:
        message = f"must be as in 'ngram={{kind: ngram, k: 4}}', got '{one_line(text)}'"
        raise InputError("", None, "--strategy", message)
    data = load_yaml(block, "--strategy").data
    if _kind(data) is None:
        raise InputError("", None, "--strategy", f"needs the kind of '{label}'")
    return label, dict(data)


def _kind(block: Any) -> str | None:
    kind = block.get("kind") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else None


def _strategy(block: Mapping[str, Any], label: str, path: Path) -> Strategy:
    kind = fixed_types()[str(_kind(block))]
    try:
        return kind.model_validate(block)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (label, *first["loc"])))
        raise InputError(str(path), None, where, one_line(first["msg"])) from None
