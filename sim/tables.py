"""The schema of every table: what the simulator, a live endpoint and the reports agree on.

In memory a table is ``Columns``: a dict of equally long numpy arrays. Text columns may be held as
integer codes; ``to_arrow`` spells them out. ``status`` is always held as ``Status`` codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Array = npt.NDArray[Any]
Columns = dict[str, Array]

_TEXT = pa.dictionary(pa.int32(), pa.string())
_COUNT = pa.int64()
_SECONDS = _NUMBER = pa.float64()


class Status(IntEnum):
    """How a request ended; the lower-case name stands in the table."""

    FINISHED = 0
    REJECTED = 1
    UNFINISHED = 2
    TIMED_OUT = 3
    FAILED = 4


class RunTable(NamedTuple):
    """The request or step table of one run, and which run it was.

    Attributes
    ----------
    point : mapping
        The varied keys and their values; empty without a grid.
    strategy : str
        Label of the strategy.
    replication : int
        0, 1, ...
    columns : Columns
        The table itself.
    stream_names : tuple of str
        What the codes of its ``stream`` column stand for.
    """

    point: Mapping[str, Any]
    strategy: str
    replication: int
    columns: Columns
    stream_names: tuple[str, ...] = ()


STATUS_NAMES = tuple(status.name.lower() for status in Status)


def _field(name: str, kind: pa.DataType, unit: str, about: str) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"unit": unit, "about": about})


_RUN = (
    _field("strategy", _TEXT, "", "label of the strategy"),
    _field("point", _TEXT, "", "values of the varied keys, empty without a grid"),
    _field("replication", _COUNT, "", "0, 1, ...: the random streams used"),
)

REQUESTS = pa.schema(
    [
        _field("id", _COUNT, "", "sessions in order of arrival, all turns of one together"),
        _field("session", _COUNT, "", "id of the first request of its session; often its own"),
        _field("stream", _TEXT, "", "name of the traffic stream"),
        *_RUN,
        _field("replica", _COUNT, "", "engine replica that served it"),
        _field("status", _TEXT, "", " | ".join(STATUS_NAMES)),
        _field("arrival_s", _SECONDS, "s", "request sent by the client"),
        _field("schedule_s", _SECONDS, "s", "start of the step with its first prefill tokens"),
        _field("first_token_s", _SECONDS, "s", "end of the step that emitted the first token"),
        _field("finish_s", _SECONDS, "s", "end of the step that emitted the last token"),
        _field("prompt_tokens", _COUNT, "token", "prompt length"),
        _field("cached_tokens", _COUNT, "token", "prompt tokens found in the prefix cache"),
        _field("output_tokens", _COUNT, "token", "tokens to emit, the first one included"),
        _field("n_steps", _COUNT, "step", "decode steps it took part in"),
        _field("drafted", _COUNT, "token", "draft tokens verified for it"),
        _field("accepted", _COUNT, "token", "draft tokens accepted, before the cut at the end"),
        _field("preemptions", _COUNT, "", "times it was moved back from running to waiting"),
        _field("attempts", _COUNT, "", "times it was sent, 1 without retries"),
        _field("discarded_tokens", _COUNT, "token", "emitted to attempts that came to nothing"),
    ]
)

STEPS = pa.schema(
    [
        *_RUN,
        _field("replica", _COUNT, "", "engine replica"),
        _field("start_s", _SECONDS, "s", "start of the step"),
        _field("duration_s", _SECONDS, "s", "whole step"),
        _field("draft_s", _SECONDS, "s", "draft phase of it"),
        _field("verify_s", _SECONDS, "s", "target pass of it, prefill included"),
        _field("host_s", _SECONDS, "s", "host work the GPU waited for"),
        _field("n_decode", _COUNT, "sequence", "sequences decoding"),
        _field("prefill_tokens", _COUNT, "token", "prompt tokens computed"),
        _field("verify_tokens", _COUNT, "token", "query tokens of the decoding sequences"),
        _field("emitted", _COUNT, "token", "tokens sent to clients"),
        _field("blocks_used", _COUNT, "block", "KV blocks in use during the step"),
        _field("waiting", _COUNT, "request", "requests waiting at its start"),
    ]
)

TIMELINE = pa.schema(
    [
        *_RUN,
        _field("replica", _COUNT, "", "engine replica"),
        _field("start_s", _SECONDS, "s", "start of the bin"),
        _field("width_s", _SECONDS, "s", "length of the bin"),
        _field("steps", _COUNT, "step", "steps that ended in it"),
        _field("busy_s", _SECONDS, "s", "time of it spent in steps"),
        _field("running", _NUMBER, "sequence", "mean sequences in the engine"),
        _field("waiting", _NUMBER, "request", "mean requests waiting"),
        _field("kv_use", _NUMBER, "", "mean share of the KV blocks in use"),
        _field("emitted", _COUNT, "token", "tokens sent to clients"),
        _field("tau", _NUMBER, "token", "mean tokens a decode step emits; NaN without one"),
        _field("preemptions", _COUNT, "", "requests moved back from running to waiting"),
    ]
)

ACCEPTANCE = pa.schema(
    [
        _field("request", _COUNT, "", "id of the request"),
        _field("step", _COUNT, "", "decode step of that request, from 0"),
        _field("domain", _TEXT, "", "kind of text"),
        _field("context", _COUNT, "token", "tokens before the step"),
        _field("drafted", _COUNT, "token", "draft tokens verified"),
        _field("accepted", _COUNT, "token", "draft tokens accepted"),
    ]
)


def to_arrow(
    schema: pa.Schema,
    columns: Mapping[str, Array | str | int],
    names: Mapping[str, Sequence[str]] | None = None,
) -> pa.Table:
    """Build a table of ``schema``.

    Parameters
    ----------
    schema : pyarrow.Schema
        One of this module's schemas.
    columns : mapping
        Column name to array, each of shape (rows,); a plain value is repeated. Columns the schema
        does not have are left out.
    names : mapping, optional
        For a text column held as integer codes: the text of each code.

    Raises
    ------
    KeyError
        If a column of the schema is missing.
    """
    spelled = {"status": STATUS_NAMES, **(names or {})}
    rows = next((len(c) for c in columns.values() if isinstance(c, np.ndarray)), 1)
    arrays = [_arrow_array(field, columns[field.name], spelled, rows) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def run_names(run: RunTable) -> dict[str, str | int]:
    """What every row of its tables says of a run."""
    point = " ".join(f"{key}={value}" for key, value in run.point.items())
    return {"strategy": run.strategy, "point": point, "replication": run.replication}


def run_to_arrow(schema: pa.Schema, run: RunTable) -> pa.Table:
    """Build the table of one run, its run named in every row."""
    return to_arrow(schema, {**run.columns, **run_names(run)}, {"stream": run.stream_names})


def _arrow_array(
    field: pa.Field, values: Array | str | int, names: Mapping[str, Sequence[str]], rows: int
) -> pa.Array:
    if isinstance(values, str):
        names = {field.name: [values]}
        values = np.zeros(rows, dtype=np.int32)
    elif isinstance(values, int):
        values = np.full(rows, values, dtype=np.int64)
    if field.type != _TEXT:
        return pa.array(values, type=field.type)
    if values.dtype.kind in "iu":
        codes = pa.array(values, type=pa.int32())
        return pa.DictionaryArray.from_arrays(codes, pa.array(names[field.name], type=pa.string()))
    return pa.array(values.tolist(), type=pa.string()).dictionary_encode().cast(_TEXT)


def to_columns(table: pa.Table) -> Columns:
    """Turn a table into numpy columns; text becomes object arrays, ``status`` its codes."""
    columns: Columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        columns[name] = column.to_numpy()
    if "status" in columns:
        codes = {name: code for code, name in enumerate(STATUS_NAMES)}
        columns["status"] = np.array([codes[word] for word in columns["status"]], dtype=np.int8)
    return columns


class ParquetFile:
    """Write tables one after another to a Parquet file that appears only when complete.

    A context manager. The same tables in the same order give the same bytes; an exception inside
    the block leaves no file behind.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._temporary = path.with_name(f".{path.name}.part")
        self._schema = schema

    def __enter__(self) -> ParquetFile:
        # Times hardly repeat: split by byte they take half the space a dictionary does.
        times = [field.name for field in self._schema if field.type == _SECONDS]
        self._writer = pq.ParquetWriter(
            self._temporary,
            self._schema,
            compression="zstd",
            use_dictionary=[name for name in self._schema.names if name not in times],
            use_byte_stream_split=times,
        )
        return self

    def write(self, table: pa.Table) -> None:
        """Append ``table``, which has this file's schema, as one row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
        if kind is None:
            self._temporary.replace(self.path)
        else:
            with suppress(FileNotFoundError):
                self._temporary.unlink()


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write one table to ``path`` atomically."""
    with ParquetFile(path, table.schema) as file:
        file.write(table)


def read_parquet(path: Path) -> Columns:
    """Read a table written by ``write_parquet`` back as columns."""
    return to_columns(pq.read_table(path))


def read_runs(path: Path, runs: Iterable[RunTable]) -> Iterator[RunTable]:
    """Read tables back one at a time.

    Parameters
    ----------
    path : Path
        Holds one row group a run.
    runs : iterable of RunTable
        Which runs these are, in the order they were written; their columns are not used.
    """
    with pq.ParquetFile(path) as file:
        for group, run in enumerate(runs):
            columns = to_columns(file.read_row_group(group))
            if "stream" in columns:
                codes = {name: code for code, name in enumerate(run.stream_names)}
                columns["stream"] = np.array([codes[name] for name in columns["stream"]])
            yield run._replace(columns=columns)
