"""What a request does in each of its decode steps, known at admission."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.paths import Paths
from sim.engine.rules import Rules

Counts = NDArray[np.int64]


class Path(NamedTuple):
    """Decode steps of one request, or of several laid end to end.

    Attributes
    ----------
    sums : int64, shape (2 or 4, steps)
        What a batch adds up over its sequences: tokens emitted, KV blocks added at the start of
        the step and, where the width varies, query tokens and query tokens x context.
    accepted, drafted : int64, shape (steps,)
        Draft tokens.
    """

    sums: Counts
    accepted: Counts
    drafted: Counts

    @property
    def emitted(self) -> Counts:
        """Tokens each step emits."""
        row: Counts = self.sums[0]
        return row

    @property
    def growth(self) -> Counts:
        """KV blocks each step adds."""
        row: Counts = self.sums[1]
        return row

    def cut(self, first: int, last: int | None = None) -> Path:
        """Steps ``first`` to ``last``."""
        return Path(self.sums[:, first:last], self.accepted[first:last], self.drafted[first:last])


class Totals(NamedTuple):
    """Sums over all steps of a path: accepted and drafted tokens, KV blocks added."""

    accepted: int
    drafted: int
    growth: int

    @classmethod
    def of(cls, path: Path) -> Totals:
        """Sums of one path."""
        return cls(int(path.accepted.sum()), int(path.drafted.sum()), int(path.growth.sum()))


def flat_path(paths: Paths, prompt: Counts, rules: Rules, drafted: int) -> Path:
    """Decode steps of several requests end to end, with contexts and block growth laid out.

    Parameters
    ----------
    paths : Paths
        Drawn acceptance; request ``r`` owns ``[offsets[r]:offsets[r + 1]]``.
    prompt : int64, shape (n,)
        Prompt tokens.
    rules : Rules
    drafted : int
        Draft tokens a step, where ``paths`` leaves them constant.
    """
    starts, lengths = paths.offsets[:-1], np.diff(paths.offsets)
    before = np.cumsum(paths.emitted) - paths.emitted
    some = lengths > 0
    first = np.zeros(len(prompt), dtype=np.int64)
    first[some] = before[starts[some]]
    prefilled = np.repeat(prompt, lengths)
    context = prefilled + 1 + before - np.repeat(first, lengths)
    growth = block_growth(context, prefilled, rules, starts[some])
    constant = np.broadcast_to(np.int64(drafted), paths.emitted.shape)
    return Path(
        _sums(paths.emitted, growth, paths.width, context),
        paths.accepted,
        constant if paths.drafted is None else paths.drafted,
    )


def _sums(emitted: Counts, growth: Counts, width: Counts | None, context: Counts) -> Counts:
    varying = [] if width is None else [width, width * context]
    return np.stack([emitted, growth, *varying])


def block_growth(context: Counts, prefilled: Counts, rules: Rules, starts: Counts) -> Counts:
    """KV blocks each step adds, given the context before it.

    ``starts`` are the indices at which a sequence begins; it holds the blocks of ``prefilled``
    tokens before its first step.
    """
    if rules.preemption == "never":
        return np.zeros(len(context), dtype=np.int64)
    block = rules.block_tokens
    held = -(-(context - 1 + rules.slots) // block)
    growth = np.diff(held, prepend=0)
    growth[starts] = held[starts] - -(-prefilled[starts] // block)
    return np.maximum(growth, 0)


def rest_of(path: Path, missing: int, produced_ctx: int, prefilled: int, rules: Rules) -> Path:
    """What is left of a path once re-prefilling has emitted one token.

    The rest is cut to the tokens still missing and its block growth is laid out again.

    Parameters
    ----------
    path : Path
        Steps not yet run.
    missing : int
        Tokens still to emit.
    produced_ctx : int
        Context before the first of these steps [token].
    prefilled : int
        Tokens the re-prefill computed.
    rules : Rules
    """
    if not missing:
        return path.cut(0, 0)
    ends = np.cumsum(path.emitted)
    n_steps = int(np.searchsorted(ends, missing)) + 1
    rest = path.cut(0, n_steps)
    emitted = rest.emitted.copy()
    emitted[-1] -= int(ends[n_steps - 1]) - missing
    context = produced_ctx + np.cumsum(emitted) - emitted
    growth = block_growth(context, np.full(n_steps, prefilled), rules, np.zeros(1, dtype=np.int64))
    width = rest.sums[2] if len(rest.sums) > 2 else None
    return rest._replace(sums=_sums(emitted, growth, width, context))
