"""What a request does in each of its decode steps, known at admission."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.paths import Paths
from sim.engine.rules import Rules

Counts = NDArray[np.int64]

VARYING_ROWS = 6
"""Rows of ``Path.counts`` where the width varies."""


class Path(NamedTuple):
    """Decode steps of one request, or of several laid end to end.

    Attributes
    ----------
    counts : int64, shape (4 or 6, steps)
        Tokens emitted; KV blocks added at the start of the step; where the width varies, query
        tokens and query tokens x context; draft tokens accepted; draft tokens.
    """

    counts: Counts

    @property
    def emitted(self) -> Counts:
        """Tokens each step emits."""
        row: Counts = self.counts[0]
        return row

    @property
    def accepted(self) -> Counts:
        """Draft tokens each step accepts."""
        row: Counts = self.counts[-2]
        return row

    @property
    def growth(self) -> Counts:
        """KV blocks each step adds."""
        row: Counts = self.counts[1]
        return row

    def sums_from(self, first: int) -> Counts:
        """What a batch adds up over its sequences, from step ``first`` on."""
        rows: Counts = self.counts[:-2, first:]
        return rows

    def cut(self, first: int, last: int | None = None) -> Path:
        """Steps ``first`` to ``last``."""
        return Path(self.counts[:, first:last])


class Totals(NamedTuple):
    """Sums over all steps of a path: accepted and drafted tokens, KV blocks added."""

    accepted: int
    drafted: int
    growth: int

    @classmethod
    def of(cls, path: Path) -> Totals:
        """Sums of one path."""
        sums = path.counts.sum(axis=1).tolist()
        return cls(sums[-2], sums[-1], sums[1])

    @classmethod
    def of_each(cls, path: Path, offsets: Counts) -> list[Totals]:
        """Sums over the steps ``[offsets[r]:offsets[r + 1]]`` of each request."""
        starts, some = offsets[:-1], np.diff(offsets) > 0
        sums = np.zeros((3, len(starts)), dtype=np.int64)
        if some.any():
            sums[:, some] = np.add.reduceat(path.counts[[-2, -1, 1]], starts[some], axis=1)
        return list(map(cls._make, sums.T.tolist()))


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
    some = lengths > 0
    starts, lengths, prompt = starts[some], lengths[some], prompt[some]
    context = np.cumsum(paths.emitted)
    context -= paths.emitted
    context += np.repeat(prompt + 1 - context[starts], lengths)
    growth = block_growth(context, starts, prompt, rules)
    constant = np.broadcast_to(np.int64(drafted), paths.emitted.shape)
    drafts = constant if paths.drafted is None else paths.drafted
    varying = () if paths.width is None else (paths.width, paths.width * context)
    return Path(np.stack((paths.emitted, growth, *varying, paths.accepted, drafts)))


def block_growth(context: Counts, starts: Counts, prefilled: Counts, rules: Rules) -> Counts:
    """KV blocks each step adds, or gives back, given the context before it.

    Parameters
    ----------
    context : int64, shape (steps,)
        Context before each step, sequences end to end.
    starts, prefilled : int64, shape (sequences,)
        Where each sequence begins, and the tokens whose blocks it holds before that.
    rules : Rules
    """
    if rules.preemption == "never":
        return np.zeros(len(context), dtype=np.int64)
    kv = rules.kv
    prompt = prefilled
    if not kv.plain:
        prompt = np.repeat(prefilled, np.diff(starts, append=len(context)))
    held = kv.blocks(prompt, context)
    growth = np.empty_like(held)
    np.subtract(held[1:], held[:-1], out=growth[1:])
    growth[starts] = held[starts] - kv.prefilled(prefilled)
    return growth


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
    rest = Path(path.counts[:, :n_steps].copy())
    emitted = rest.emitted
    emitted[-1] -= int(ends[n_steps - 1]) - missing
    context = produced_ctx + np.cumsum(emitted) - emitted
    starts = np.zeros(1, dtype=np.int64)
    rest.counts[1] = block_growth(context, starts, np.array([prefilled]), rules)
    if len(rest.counts) == VARYING_ROWS:
        rest.counts[3] = rest.counts[2] * context
    return rest
