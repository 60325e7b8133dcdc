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

TEXT = pa.dictionary(pa.int32(), pa.string())
COUNT = pa.int64()
SECONDS = NUMBER = pa.float64()


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
    stream_names, domain_names : tuple of str
        What the codes of its ``stream`` and ``domain`` columns stand for.
    """

    point: Mapping[str, Any]
    strategy: str
    replication: int
    columns: Columns
    stream_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """What codes stand for, by column."""
        return {"stream": self.stream_names, "domain": self.domain_names}


STATUS_NAMES = tuple(status.name.lower() for status in Status)


def field(name: str, kind: pa.DataType, unit: str, about: str) -> pa.Field:
    """Describe one column of a schema: no nulls, its unit and meaning as metadata."""
    return pa.field(name, kind, nullable=False, metadata={"unit": unit, "about": about})


_RUN = (
    field("strategy", TEXT, "", "label of the strategy"),
    field("point", TEXT, "", "values of the varied keys, empty without a grid"),
    field("replication", COUNT, "", "0, 1, ...: the random streams used"),
)

REQUESTS = pa.schema(
    [
        field("id", COUNT, "", "sessions in order of arrival, all turns of one together"),
        field("session", COUNT, "", "id of the first request of its session; often its own"),
        field("stream", TEXT, "", "name of the traffic stream"),
        field("domain", TEXT, "", "kind of text, as of its arrival"),
        *_RUN,
        field("replica", COUNT, "", "engine replica that served it"),
        field("status", TEXT, "", " | ".join(STATUS_NAMES)),
        field("arrival_s", SECONDS, "s", "request sent by the client"),
        field("schedule_s", SECONDS, "s", "start of the step with its first prefill tokens"),
        field("first_token_s", SECONDS, "s", "end of the step that emitted the first token"),
        field("finish_s", SECONDS, "s", "end of the step that emitted the last token"),
        field("prompt_tokens", COUNT, "token", "prompt length"),
        field("cached_tokens", COUNT, "token", "prompt tokens found in the prefix cache"),
        field("output_tokens", COUNT, "token", "tokens to emit, the first one included"),
        field("n_steps", COUNT, "step", "decode steps it took part in"),
        field("drafted", COUNT, "token", "draft tokens verified for it"),
        field("accepted", COUNT, "token", "draft tokens accepted, before the cut at the end"),
        field("preemptions", COUNT, "", "times it was moved back from running to waiting"),
        field("attempts", COUNT, "", "times it was sent, 1 without retries"),
        field("discarded_tokens", COUNT, "token", "emitted to attempts that came to nothing"),
    ]
)

STEPS = pa.schema(
    [
        *_RUN,
        field("replica", COUNT, "", "engine replica"),
        field("start_s", SECONDS, "s", "start of the step"),
        field("duration_s", SECONDS, "s", "whole step"),
        field("draft_s", SECONDS, "s", "draft phase of it"),
        field("verify_s", SECONDS, "s", "target pass of it, prefill included"),
        field("host_s", SECONDS, "s", "host work the GPU waited for"),
        field("n_decode", COUNT, "sequence", "sequences decoding"),
        field("prefill_tokens", COUNT, "token", "prompt tokens computed"),
        field("verify_tokens", COUNT, "token", "query tokens of the decoding sequences"),
        field("emitted", COUNT, "token", "tokens sent to clients"),
        field("blocks_used", COUNT, "block", "KV blocks in use during the step"),
        field("waiting", COUNT, "request", "requests waiting at its start"),
    ]
)

TIMELINE = pa.schema(
    [
        *_RUN,
        field("replica", COUNT, "", "engine replica"),
        field("start_s", SECONDS, "s", "start of the bin"),
        field("width_s", SECONDS, "s", "length of the bin"),
        field("steps", COUNT, "step", "steps that ended in it"),
        field("busy_s", SECONDS, "s", "time of it spent in steps"),
        field("running", NUMBER, "sequence", "mean sequences in the engine"),
        field("waiting", NUMBER, "request", "mean requests waiting"),
        field("kv_use", NUMBER, "", "mean share of the KV blocks in use"),
        field("emitted", COUNT, "token", "tokens sent to clients"),
        field("tau", NUMBER, "token", "mean tokens a decode step emits; NaN without one"),
        field("preemptions", COUNT, "", "requests moved back from running to waiting"),
    ]
)

ACCEPTANCE = pa.schema(
    [
        field("strategy", TEXT, "", "label of the strategy"),
        field("request", COUNT, "", "id of the request"),
        field("step", COUNT, "", "decode step of that request, from 0"),
        field("domain", TEXT, "", "kind of text"),
        field("context", COUNT, "token", "tokens before the step"),
        field("drafted", COUNT, "token", "draft tokens verified"),
        field("accepted", COUNT, "token", "draft tokens accepted, before the cut at the end"),
        field("ranks", TEXT, "", "rank of the target's token by level, - for none; may be empty"),
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
    arrays = [_arrow_array(column, columns[column.name], spelled, rows) for column in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def run_names(run: RunTable) -> dict[str, str | int]:
    """What every row of its tables says of a run."""
    point = " ".join(f"{key}={value}" for key, value in run.point.items())
    return {"strategy": run.strategy, "point": point, "replication": run.replication}


def run_to_arrow(schema: pa.Schema, run: RunTable) -> pa.Table:
    """Build the table of one run, its run named in every row."""
    return to_arrow(schema, {**run.columns, **run_names(run)}, run.names)


def _arrow_array(
    column: pa.Field, values: Array | str | int, names: Mapping[str, Sequence[str]], rows: int
) -> pa.Array:
    if isinstance(values, str):
        names = {column.name: [values]}
        values = np.zeros(rows, dtype=np.int32)
    elif isinstance(values, int):
        values = np.full(rows, values, dtype=np.int64)
    if column.type != TEXT:
        return pa.array(values, type=column.type)
    if values.dtype.kind in "iu":
        codes = pa.array(values, type=pa.int32())
        return pa.DictionaryArray.from_arrays(codes, pa.array(names[column.name], type=pa.string()))
    return pa.array(values.tolist(), type=pa.string()).dictionary_encode().cast(TEXT)


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
        times = [column.name for column in self._schema if column.type == SECONDS]
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
            for key, texts in run.names.items():
                if key in columns:
                    codes = {name: code for code, name in enumerate(texts)}
                    columns[key] = np.array([codes[name] for name in columns[key]])
            yield run._replace(columns=columns)
