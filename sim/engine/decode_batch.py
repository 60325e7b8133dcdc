"""All decoding sequences of one replica, kept as sums that a step updates in constant time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from models.step_cost import StepCost
from sim.engine.path import Counts
from sim.engine.request import Request

if TYPE_CHECKING:
    from sim.engine.scheduler import Prefill


class DecodeBatch:
    """Decoding sequences: number, contexts, and what each future step adds.

    What the steps to come emit, and the blocks they add, is kept as totals by step number modulo
    a fixed span; a sequence is added once when it joins.

    Attributes
    ----------
    step : int
        Decode steps run so far; the next one is ``step + 1``.
    n, ctx : int
        Sequences decoding and the sum of their contexts.
    decoded : int
        Tokens its steps have emitted so far.
    """

    def __init__(
        self, longest_path: int, width: int, varies_width: bool = False, decoded: int = 0
    ) -> None:
        span = 1 << (longest_path + 1).bit_length()
        self.step, self.n, self.ctx, self.decoded = 0, 0, 0, decoded
        self.width, self.varies_width = width, varies_width
        self._mask = span - 1
        self._totals = np.zeros((4 if varies_width else 2, span), dtype=np.int64)
        # Views whose items are Python integers: numpy scalars would slow every sum.
        views = [row.data for row in self._totals]
        self._emitted, self._growth = views[:2]
        self._query, self._query_ctx = views[-2:]
        self._finishes: list[tuple[int, int, Request]] = []

    @property
    def growth(self) -> int:
        """KV blocks the next step adds."""
        return self._growth[(self.step + 1) & self._mask]

    @property
    def emitted(self) -> int:
        """Tokens the next step emits."""
        return self._emitted[(self.step + 1) & self._mask]

    @property
    def query_tokens(self) -> int:
        """Query tokens of the next step."""
        if self.varies_width:
            return self._query[(self.step + 1) & self._mask]
        return self.n * self.width

    @property
    def query_ctx(self) -> int:
        """Sum of query tokens x context of the next step."""
        if self.varies_width:
            return self._query_ctx[(self.step + 1) & self._mask]
        return self.ctx * self.width

    def join(self, request: Request) -> None:
        """Start decoding a request with the next step.

        Raises
        ------
        ValueError
            If its path is longer than the span.
        """
        sums = request.path.sums_from(request.next_step)
        n_steps = sums.shape[1]
        if n_steps > self._mask:
            raise ValueError(f"a path of {n_steps} steps is longer than the span {self._mask}")
        request.start_step = self.step
        request.finish_step = self.step + n_steps
        self._add(sums)
        heappush(self._finishes, (request.finish_step, request.id, request))
        self.n += 1
        self.ctx += request.context

    def leave(self, request: Request) -> None:
        """Take a request out before its end and book the steps it has run."""
        self.n -= 1
        request.run_steps(self.step - request.start_step)
        self.ctx -= request.context
        self._add(-request.path.sums_from(request.next_step))
        request.finish_step = 0

    def _add(self, sums: Counts) -> None:
        """Add to the steps to come, wrapping around the end of the span."""
        first = (self.step + 1) & self._mask
        room = self._mask + 1 - first
        target = self._totals[:, first : first + sums.shape[1]]
        if target.shape == sums.shape:
            target += sums
        else:
            target += sums[:, :room]
            self._totals[:, : sums.shape[1] - room] += sums[:, room:]

    def mixed_s(self, cost: StepCost, n: int, prefill: Prefill | None) -> float:
        """Seconds of a step in which ``n`` sequences decode beside prefill chunks [s]."""
        ctx, tokens, query_ctx = 0, 0, 0
        if n:
            ctx, tokens, query_ctx = self.ctx, self.query_tokens, self.query_ctx
        if prefill is None:
            return cost.mixed(n, ctx, tokens, query_ctx)
        chunks = prefill.tokens, prefill.ctx, prefill.pairs, len(prefill.finishing)
        return cost.mixed(n, ctx, tokens, query_ctx, *chunks)

    def parts_s(self, cost: StepCost, n: int, prefill: Prefill | None) -> tuple[float, float]:
        """Draft and host part of such a step [s]."""
        ctx, tokens, query_ctx = 0, 0, 0
        if n:
            ctx, tokens, query_ctx = self.ctx, self.query_tokens, self.query_ctx
        sequences, prompt_tokens, prompt_ctx, pairs = n, 0, 0, 0.0
        if prefill is not None:
            sequences += len(prefill.finishing)
            prompt_tokens, prompt_ctx, pairs = prefill.tokens, prefill.ctx, prefill.pairs
        draft_s = cost.draft_s(
            sequences, tokens + prompt_tokens, ctx + prompt_ctx, query_ctx, pairs, prompt_tokens
        )
        return draft_s, cost.host_s(sequences, tokens - n)

    def advance(self, start_s: float, end_s: float) -> list[Request]:
        """Run the next step, from ``start_s`` to ``end_s``; the requests it finishes."""
        self.step = step = self.step + 1
        slot = step & self._mask
        emitted = self._emitted[slot]
        self.ctx += emitted
        self.decoded += emitted
        self._emitted[slot] = self._growth[slot] = 0
        if self.varies_width:
            self._query[slot] = self._query_ctx[slot] = 0
        finishes = self._finishes
        return self._pop_finished(step) if finishes and finishes[0][0] <= step else []

    def _pop_finished(self, step: int) -> list[Request]:
        finished: list[Request] = []
        while self._finishes and self._finishes[0][0] <= step:
            due, _, request = heappop(self._finishes)
            if request.finish_step == due:
                request.finish_step = 0
                request.run_rest()
                self.n -= 1
                self.ctx -= request.context
                finished.append(request)
        return finished

    def check(self) -> None:
        """Assert that an idle batch holds nothing."""
        if not self.n:
            assert self.ctx == 0, self.ctx
            assert not self._totals.any()
