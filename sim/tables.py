"""The schema of every table: what the simulator, a live endpoint and the reports agree on.

In memory a table is ``Columns``: a dict of equally long numpy arrays. Text columns may be held as
integer codes; ``to_arrow`` spells them out. ``status`` is always held as ``Status`` codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sim.table_schemas import (
    ACCEPTANCE,
    COUNT,
    MODES,
    NUMBER,
    REQUESTS,
    SECONDS,
    STATUS_NAMES,
    STEPS,
    SWITCHES,
    TEXT,
    TIMELINE,
    Status,
    field,
)

Array = npt.NDArray[Any]
Columns = dict[str, Array]


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
    point = " ".join(f"{key}={text_of(value)}" for key, value in run.point.items())
    return {"strategy": run.strategy, "point": point, "replication": run.replication}


def text_of(value: Any) -> str:
    """A varied value as a word in tables: mappings and lists in YAML's short form."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_part(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_part(part) for part in value) + "]"
    return str(value)


def _part(value: Any) -> str:
    plain = {None: "null", True: "true", False: "false"}
    return plain[value] if value is None or isinstance(value, bool) else text_of(value)


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


__all__ = [
    "ACCEPTANCE",
    "COUNT",
    "MODES",
    "NUMBER",
    "REQUESTS",
    "SECONDS",
    "STATUS_NAMES",
    "STEPS",
    "SWITCHES",
    "TEXT",
    "TIMELINE",
    "Array",
    "Columns",
    "ParquetFile",
    "RunTable",
    "Status",
    "field",
    "read_parquet",
    "read_runs",
    "run_names",
    "run_to_arrow",
    "text_of",
    "to_arrow",
    "to_columns",
    "write_parquet",
]
