"""A trace file read once, in blocks: the columns of its requests, or the lines that are none.

A block whose every line is in order is converted at once; any other goes line by line, which words
what is wrong. Memory holds one block and the columns.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

from models.schema import ModelError
from models.strict_yaml import InputError
from sim.scenario.distributions import Floats
from sim.scenario.trace.blocks import converted
from sim.scenario.trace.columns import BadLines, Collected, Label, Small
from sim.scenario.trace.formats import MOONCAKE, Layout, LineError, read_header
from sim.scenario.trace.lines import MOONCAKE_TICKS, Row, csv_row, json_row
from sim.scenario.trace.prefixes import Chains, hashed_chains

BLOCK_BYTES = 4_000_000
LONGEST_LINE = 16_000_000
PARTS, SPLITS = 8, 2
"""A block that cannot be converted at once is cut into so many parts, so many times over."""

KEPT = 8
"""Traces kept in memory, so that each is read once however many points replay it."""

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, eq=False)
class TraceFile:
    """The answered requests of a trace file, in order of time; arrays of shape (n,).

    Attributes
    ----------
    format : str
        The one recognised.
    sha256 : str
        Of the file as it lies there.
    rows, failures, skipped : int
        Lines below the header; of them those without output tokens, and bad ones: both left out.
    arrival_s : float64
        Since the first request [s].
    labels : dict
        Columns of names the file has: session, prefix, model, log_type, stream.
    prefix_tokens : int32
        Leading tokens shared with all of the same prefix [tokens].
    chains : Chains or None
        What hash ids say the prompts share.
    """

    format: str
    sha256: str
    rows: int
    failures: int
    skipped: int
    arrival_s: Floats
    prompt_tokens: Small
    output_tokens: Small
    prefix_tokens: Small
    labels: Mapping[str, Label]
    chains: Chains | None

    def __len__(self) -> int:
        """Return the number of answered requests."""
        return len(self.arrival_s)


def read_trace(path: str, wanted: str, bad_lines: Literal["refuse", "skip"]) -> TraceFile:
    """Read a trace, or return the one read before if the file did not change.

    Parameters
    ----------
    path : str
        Plain or gzip.
    wanted : str
        Name of a format, or ``auto``.
    bad_lines : str
        Whether a line that is no request ends the reading or is left out.

    Raises
    ------
    InputError
        For bad lines, with the file and the number of the first.
    ModelError
        If the file cannot be read, or has no requests.
    """
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise ModelError(f"is {kind}, got '{path}'")
    return _read(path, wanted, bad_lines == "skip", status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=KEPT)
def _read(path: str, wanted: str, skip: bool, size: int, mtime_ns: int) -> TraceFile:
    """The trace as it is while the file has this size and time of change."""
    reader = _Reader(path, wanted)
    try:
        with Path(path).open("rb") as raw:
            sha256 = hashlib.file_digest(raw, "sha256").hexdigest()
            raw.seek(0)
            zipped = raw.peek(2)[:2] == _GZIP
            file = gzip.GzipFile(fileobj=raw) if zipped else raw
            for first, block in _blocks(cast(IO[bytes], file), path):
                reader.read(first, block)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    return reader.trace(sha256, skip)


def _unreadable(path: str, error: Exception) -> ModelError:
    reason = getattr(error, "strerror", None) or error
    return ModelError(f"cannot read it: {reason}, got '{path}'")


def _blocks(file: IO[bytes], path: str) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line."""
    line, rest = 1, b""
    while more := file.read(BLOCK_BYTES):
        block = rest + more
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        lines = block.count(b"\n")
        if end:
            yield line, block[:end]
        line += lines
        if len(rest) > LONGEST_LINE:
            raise InputError(path, line, "", f"is longer than {LONGEST_LINE} bytes")
    if rest:
        yield line, rest


def _parts(line: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """A block cut between lines, each part with the number of its first."""
    begin, size = 0, len(block) // PARTS
    while begin < len(block):
        end = block.find(b"\n", begin + size) + 1 or len(block)
        yield line, block[begin:end]
        line += block.count(b"\n", begin, end)
        begin = end


class _Reader:
    """Takes the blocks of one file in turn."""

    def __init__(self, path: str, wanted: str) -> None:
        self._path, self._wanted = path, wanted
        self._layout: Layout | None = None
        self._collected: Collected | None = None
        self._bad = BadLines(path)
        self._prefix_tokens: dict[str, int] = {}

    def read(self, first: int, block: bytes) -> None:
        """Read a block whose first line has number ``first``."""
        if first == 1:
            block = block.removeprefix(_BOM)
        if self._collected is None:
            first, block = self._begin(first, block)
        if self._collected is not None and block:
            self._take(first, block, self._collected, SPLITS)

    def _take(self, first: int, block: bytes, collected: Collected, splits: int) -> None:
        """Convert a block at once, or its parts, or at last its lines."""
        layout = self._layout
        at_once = layout is not None and layout.prefix_tokens is None
        fast = converted(block, layout, collected.names) if layout and at_once else None
        if fast is not None:
            collected.add(fast)
        elif at_once and splits:
            for line, part in _parts(first, block):
                self._take(line, part, collected, splits - 1)
        else:
            self._line_by_line(first, block, collected)

    def _begin(self, first: int, block: bytes) -> tuple[int, bytes]:
        """Recognise the format by the first line with anything on it; what is left of the block."""
        number, line, rest = first, b"", block
        while rest and not line.strip():
            line, _, rest = rest.partition(b"\n")
            number += 1
        if not line.strip():
            return number, b""
        try:
            self._layout = layout = read_header(_text(line), self._wanted)
        except LineError as bad:
            raise InputError(self._path, number - 1, bad.column, bad.message) from None
        if layout is None:
            self._collected = Collected((), MOONCAKE_TICKS)
            return number - 1, line + b"\n" + rest
        self._collected = Collected(tuple(layout.labels), layout.format.ticks)
        return number, rest

    def _line_by_line(self, first: int, block: bytes, collected: Collected) -> None:
        rows = []
        for number, line in enumerate(block.split(b"\n"), first):
            if not line.strip():
                continue
            try:
                rows.append(self._row(line))
            except LineError as bad:
                self._bad.add(number, bad)
        collected.add_rows(rows)

    def _row(self, line: bytes) -> Row:
        text, layout = _text(line), self._layout
        if layout is None:
            return json_row(text)
        row = csv_row(text, layout)
        if row.prefix_tokens:
            prefix = dict(zip(layout.labels, row.labels, strict=True))["prefix"]
            before = self._prefix_tokens.setdefault(prefix, row.prefix_tokens)
            if before != row.prefix_tokens:
                what = f"must be {before} as before for this prefix"
                raise LineError("prefix_tokens", f"{what}, got {row.prefix_tokens}")
        return row

    def trace(self, sha256: str, skip: bool) -> TraceFile:
        """All that was read."""
        collected, bad = self._collected, self._bad
        if bad.count and not (skip and collected is not None and collected.rows):
            raise bad.error()
        if collected is None:
            raise ModelError("is an empty file")
        if not collected.rows:
            raise ModelError("has a header and nothing else")
        if collected.failures == collected.rows:
            raise ModelError(f"has no answered request: all {collected.rows} have 0 output tokens")
        ticks = self._layout.format.ticks if self._layout else MOONCAKE_TICKS
        block = collected.in_order()
        return TraceFile(
            format=self._layout.format.name if self._layout else MOONCAKE,
            sha256=sha256,
            rows=collected.rows + bad.count,
            failures=collected.failures,
            skipped=bad.count,
            arrival_s=(block.time - block.time[0]) / ticks,
            prompt_tokens=block.prompt_tokens,
            output_tokens=block.output_tokens,
            prefix_tokens=block.prefix_tokens,
            labels={
                name: Label(codes, collected.names[name].all())
                for name, codes in block.labels.items()
            },
            chains=hashed_chains(block) if len(block.hash_ids) else None,
        )


def _text(line: bytes) -> str:
    """Decode one line without its end.

    Raises
    ------
    LineError
        If it is not text.
    """
    if b"\0" in line:
        raise LineError("", "holds a NUL byte")
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise LineError("", f"is not UTF-8: byte {line[error.start]:#04x}") from None
