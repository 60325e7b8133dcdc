"""Columns of a trace, filled block by block, and the bad lines met on the way."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.strict_yaml import InputError
from sim.scenario.distributions import Floats, Ints
from sim.scenario.trace.formats import NS, LineError
from sim.scenario.trace.lines import Row

NUMBERS_SHOWN = 12

Small = NDArray[np.int32]


class Label(NamedTuple):
    """A column of names: of each request the place of its name in ``names``; '' is at 0."""

    codes: Small
    names: tuple[str, ...]


class Block(NamedTuple):
    """Requests of a part of a file; times in ticks of the format."""

    time: Floats | Ints
    prompt_tokens: Small
    output_tokens: Small
    prefix_tokens: Small
    labels: Mapping[str, Small]
    hash_counts: Small
    hash_ids: NDArray[np.uint64]

    def picked(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Block:
        """Some of the requests, in a new order if need be."""
        spans = np.concatenate([[0], np.cumsum(self.hash_counts)])
        begins, counts = spans[:-1][rows], self.hash_counts[rows]
        return Block(
            self.time[rows],
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            self.prefix_tokens[rows],
            {name: codes[rows] for name, codes in self.labels.items()},
            counts,
            self.hash_ids[spread(begins, counts)],
        )

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Blocks one after another; at least one, all with the same labels."""
        return cls(
            np.concatenate([block.time for block in blocks]),
            np.concatenate([block.prompt_tokens for block in blocks]),
            np.concatenate([block.output_tokens for block in blocks]),
            np.concatenate([block.prefix_tokens for block in blocks]),
            {
                name: np.concatenate([block.labels[name] for block in blocks])
                for name in blocks[0].labels
            },
            np.concatenate([block.hash_counts for block in blocks]),
            np.concatenate([block.hash_ids for block in blocks]),
        )


def spread(begins: NDArray[np.integer], counts: NDArray[np.integer]) -> Ints:
    """Positions ``begin, begin + 1, ...``, ``count`` of them for each pair, one after another."""
    ends = np.cumsum(counts)
    return np.repeat(begins - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


class Names:
    """Numbers for names, in the order they are first seen; the empty name is 0."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": 0}

    def code(self, name: str) -> int:
        """The number of a name."""
        return self._codes.setdefault(name, len(self._codes))

    def all(self) -> tuple[str, ...]:
        """Every name, by number."""
        return tuple(self._codes)


class Collected:
    """Blocks put together; requests without output are counted and left out.

    Attributes
    ----------
    rows, failures : int
        Requests seen, and those of them that failed.
    names : dict
        Names of each column of labels.
    """

    def __init__(self, labels: Sequence[str], ticks: int) -> None:
        self.names = {label: Names() for label in labels}
        self.rows = self.failures = 0
        self._dated = ticks == NS
        self._blocks: list[Block] = []

    def add(self, block: Block) -> None:
        """Append a block."""
        answered = block.output_tokens > 0
        self.rows += len(answered)
        failures = len(answered) - int(np.count_nonzero(answered))
        self.failures += failures
        self._blocks.append(block.picked(answered) if failures else block)

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Append requests read line by line."""
        ids = array("Q")
        for row in rows:
            ids.extend(row.hash_ids)
        labels = {
            label: np.array([names.code(row.labels[place]) for row in rows], dtype=np.int32)
            for place, (label, names) in enumerate(self.names.items())
        }
        self.add(
            Block(
                np.array([row.time for row in rows], dtype="int64" if self._dated else "float64"),
                np.array([row.prompt_tokens for row in rows], dtype=np.int32),
                np.array([row.output_tokens for row in rows], dtype=np.int32),
                np.array([row.prefix_tokens for row in rows], dtype=np.int32),
                labels,
                np.array([len(row.hash_ids) for row in rows], dtype=np.int32),
                np.frombuffer(ids, dtype=np.uint64) if ids else np.empty(0, dtype=np.uint64),
            )
        )

    def in_order(self) -> Block:
        """All requests by time; those of one instant stay as in the file."""
        whole = Block.joined(self._blocks)
        self._blocks.clear()
        if np.all(whole.time[1:] >= whole.time[:-1]):
            return whole
        return whole.picked(np.argsort(whole.time, kind="stable"))


class BadLines:
    """Lines that are no requests: how many, the numbers of some, and why the first is none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._first: InputError | None = None
        self._more: list[int] = []
        self.count = 0

    def add(self, line: int, bad: LineError) -> None:
        """Note one."""
        self.count += 1
        if self._first is None:
            self._first = InputError(self._path, line, bad.column, bad.message)
        elif len(self._more) < NUMBERS_SHOWN:
            self._more.append(line)

    def error(self) -> InputError:
        """All of them in one line."""
        first = self._first
        assert first is not None
        if not self._more:
            return first
        numbers = ", ".join(map(str, self._more)) + (", ..." if self.count > 13 else "")
        lines = "line" if self.count == 2 else "lines"
        more = f" (and {self.count - 1} more bad {lines}: {numbers})"
        return InputError(first.path, first.line, first.key, first.message + more)
