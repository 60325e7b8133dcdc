"""Time of steps in which some sequences are in one mode of a strategy and some in another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from models.step_cost import StepCost


class ModeTime(StepCost, Protocol):
    """Seconds of steps in one mode, and how wide it verifies."""

    width: int


class Group(NamedTuple):
    """Sequences of one mode in a step.

    Attributes
    ----------
    mode : int
    n : int
        Sequences.
    ctx : int
        Sum of their contexts [token].
    query_tokens, query_ctx : int
        Sum of their query tokens, and of query tokens x context.
    missed : int
        Tokens the draft's KV cache lacks and computes in this step.
    missed_pairs : float
        Causal pairs of these tokens.
    """

    mode: int
    n: int
    ctx: int
    query_tokens: int
    query_ctx: int
    missed: int = 0
    missed_pairs: float = 0.0


class Chunks(NamedTuple):
    """Prefill chunks of a step, as `models.step_time.StepTime.mixed` takes them."""

    tokens: int = 0
    ctx: int = 0
    pairs: float = 0.0
    finishing: int = 0


class MixedModes:
    """Step time of groups: one target pass for all, then the draft phases one after another.

    The target pass is priced as the widest of the modes present prices it; the host works as long
    as the mode that keeps it longest. Where all sequences are in one mode the step is that mode's.

    Parameters
    ----------
    times : sequence of ModeTime
        By mode.
    start : int
        Mode whose draft computes the prompts.
    most_tokens : int, optional
        Most tokens of one pass: a draft takes what it missed in as many as that needs.
    networks : sequence of int or None, optional
        Draft network with a KV cache of its own, by mode; by default each mode has another.
    """

    def __init__(
        self,
        times: Sequence[ModeTime],
        start: int,
        most_tokens: int | None = None,
        networks: Sequence[int | None] | None = None,
    ) -> None:
        self.times, self._start = tuple(times), start
        self._most = most_tokens or sys.maxsize
        own = range(len(times)) if networks is None else networks
        self._prompts = {start} | {
            mode for mode, network in enumerate(own) if network == own[start] is not None
        }

    def step_s(self, groups: Sequence[Group], chunks: Chunks) -> float:
        """A step [s]."""
        prompts = chunks.tokens > 0
        if len(groups) == 1 and (not prompts or groups[0].mode in self._prompts):
            return self._alone(groups[0], chunks)
        widest = max((group.mode for group in groups), key=self._width_of)
        time, n = self.times[widest], sum(group.n for group in groups)
        ctx = sum(group.ctx for group in groups)
        query_tokens = sum(group.query_tokens for group in groups)
        query_ctx = sum(group.query_ctx for group in groups)
        rows = n + chunks.finishing
        seconds = time.mixed(n, ctx, query_tokens, query_ctx, *chunks)
        seconds -= time.draft_s(
            rows,
            query_tokens + chunks.tokens,
            ctx + chunks.ctx,
            query_ctx,
            chunks.pairs,
            chunks.tokens,
        )
        seconds -= time.host_s(rows, query_tokens - n)
        return seconds + self.draft_s(groups, chunks) + self.host_s(groups, chunks)

    def draft_s(self, groups: Sequence[Group], chunks: Chunks) -> float:
        """Draft phases of a step [s]; the network of the first mode also computes the prompts.

        Where no mode present runs it, prompts that end draft with the others.
        """
        seconds, prompts = 0.0, chunks
        for group in groups:
            own = prompts if group.mode in self._prompts else Chunks()
            if group.mode in self._prompts:
                prompts = Chunks()
            seconds += self._drafting(group, own)
        if prompts.tokens:
            alone = Group(self._start, 0, 0, 0, 0)
            seconds += self._drafting(alone, prompts._replace(finishing=0))
        return seconds

    def host_s(self, groups: Sequence[Group], chunks: Chunks) -> float:
        """Host part of a step [s]."""
        rows = sum(group.n for group in groups) + chunks.finishing
        return max(
            self.times[group.mode].host_s(rows, group.query_tokens - group.n) for group in groups
        )

    def _width_of(self, mode: int) -> int:
        return self.times[mode].width

    def _alone(self, group: Group, chunks: Chunks) -> float:
        mode, n, ctx, query_tokens, query_ctx = group[:5]
        time = self.times[mode]
        if query_tokens == n * time.width and not chunks.tokens:
            seconds = time.decode(n, ctx)
        else:
            seconds = time.mixed(n, ctx, query_tokens, query_ctx, *chunks)
        if group.missed:
            kept = group._replace(missed=0, missed_pairs=0.0)
            seconds += self._drafting(group, chunks) - self._drafting(kept, chunks)
        return seconds

    def _drafting(self, group: Group, chunks: Chunks) -> float:
        """Draft phase of a group [s]; tokens missed beyond one pass are computed before it."""
        time, tokens = self.times[group.mode], group.query_tokens + chunks.tokens
        last = min(group.missed, max(self._most - tokens, 0))
        pairs = group.missed_pairs / max(group.missed, 1)
        seconds = time.draft_s(
            group.n + chunks.finishing,
            tokens + last,
            group.ctx + chunks.ctx,
            group.query_ctx,
            chunks.pairs + pairs * last,
            chunks.tokens + last,
        )
        before = group.missed - last
        while before:
            part = min(before, self._most)
            seconds += time.draft_s(0, part, 0, 0, pairs * part, part)
            before -= part
        return seconds
