"""Many CSV lines of a trace converted at once, where every one of them is in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.scenario.distributions import MAX_TOKENS
from sim.scenario.trace.columns import Block, Names
from sim.scenario.trace.formats import NS, Layout
from sim.scenario.trace.lines import MAX_TIME_S

_QUOTED = re.compile(rb'(?:^|(?<=,))"[^"\r\n]*"(?=,|\r?$)', re.MULTILINE)


def converted(block: bytes, layout: Layout, names: Mapping[str, Names]) -> Block | None:
    """Convert whole lines; None where one of them needs to be looked at by itself.

    What this accepts, ``csv_row`` reads the same way.
    """
    table = _table(block, layout)
    if table is None:
        return None
    time = table[str(layout.time)].to_numpy()
    prompt, output = (table[str(place)].to_numpy() for place in (layout.prompt, layout.output))
    ticks = layout.format.ticks
    good = (time >= 0) & (time <= MAX_TIME_S * ticks)
    for tokens in (prompt, output):
        good &= (tokens >= 0) & (tokens <= MAX_TOKENS) & (tokens == np.floor(tokens))
    good &= (prompt > 0) | (output == 0)
    if not good.all():
        return None
    labels = {label: _codes(table[str(at)], names[label]) for label, at in layout.labels.items()}
    nothing = np.zeros(len(time), dtype=np.int32)
    return Block(
        time,
        prompt.astype(np.int32),
        output.astype(np.int32),
        nothing,
        labels,
        nothing,
        np.empty(0, dtype=np.uint64),
    )


def _table(block: bytes, layout: Layout) -> Any:
    """Arrow columns by their places; None unless every line that is not empty makes a row."""
    if not _in_order(block):
        return None
    import pyarrow as pa
    from pyarrow import csv

    dated = layout.format.ticks == NS
    numbers = {str(place): pa.float64() for place in (layout.time, layout.prompt, layout.output)}
    words = {str(at): pa.dictionary(pa.int32(), pa.string()) for at in layout.labels.values()}
    if dated:
        numbers[str(layout.time)] = pa.timestamp("ns", "UTC" if _zoned(block, layout) else None)
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(
                column_names=[str(place) for place in range(len(layout.header))],
                use_threads=False,
                block_size=len(block) + 1,
            ),
            convert_options=csv.ConvertOptions(
                column_types={**numbers, **words},
                include_columns=[*numbers, *words],
                null_values=[],
            ),
        )
    except pa.ArrowInvalid:
        return None
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    if dated:
        columns[str(layout.time)] = columns[str(layout.time)].cast(pa.int64())
    return columns


def _in_order(block: bytes) -> bool:
    """Whether it is text, with quotes only around whole fields and returns only at line ends."""
    if b"\0" in block or block.count(b"\r") != block.count(b"\r\n"):
        return False
    quotes = block.count(b'"')
    if quotes and 2 * len(_QUOTED.findall(block)) < quotes:
        return False
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _zoned(block: bytes, layout: Layout) -> bool:
    """Whether the first date names its time zone."""
    fields = block.partition(b"\n")[0].split(b",")
    date = fields[layout.time] if layout.time < len(fields) else b""
    return any(mark in date[11:] for mark in (b"Z", b"+", b"-"))


def _codes(column: Any, names: Names) -> Any:
    known = [names.code(name.strip()) for name in column.dictionary.to_pylist()]
    return np.array(known, dtype=np.int32)[column.indices.to_numpy()]
