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
    some = lengths > 0
    starts, lengths, prompt = starts[some], lengths[some], prompt[some]
    context = np.cumsum(paths.emitted)
    context -= paths.emitted
    context += np.repeat(prompt + 1 - context[starts], lengths)
    growth = block_growth(context, starts, prompt, rules)
    constant = np.broadcast_to(np.int64(drafted), paths.emitted.shape)
    return Path(
        _sums(paths.emitted, growth, paths.width, context),
        paths.accepted,
        constant if paths.drafted is None else paths.drafted,
    )


def _sums(emitted: Counts, growth: Counts, width: Counts | None, context: Counts) -> Counts:
    varying = () if width is None else (width, width * context)
    return np.stack((emitted, growth, *varying))


def block_growth(context: Counts, starts: Counts, prefilled: Counts, rules: Rules) -> Counts:
    """KV blocks each step adds, given the context before it.

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
    block = rules.block_tokens
    held = (context + (rules.slots - 1 + block - 1)) // block
    growth = np.empty_like(held)
    np.subtract(held[1:], held[:-1], out=growth[1:])
    growth[starts] = held[starts] - -(-prefilled // block)
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
    rest = path.cut(0, n_steps)
    emitted = rest.emitted.copy()
    emitted[-1] -= int(ends[n_steps - 1]) - missing
    context = produced_ctx + np.cumsum(emitted) - emitted
    growth = block_growth(context, np.zeros(1, dtype=np.int64), np.array([prefilled]), rules)
    width = rest.sums[2] if len(rest.sums) > 2 else None
    return rest._replace(sums=_sums(emitted, growth, width, context))
