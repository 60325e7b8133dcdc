"""All decoding sequences of one replica, kept as sums that a step updates in constant time."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from sim.engine.request import Counts, Request


class Ring:
    """Per-step totals of the steps to come, by step number modulo the ring's length."""

    __slots__ = ("_mask", "_totals", "_view")

    def __init__(self, span: int) -> None:
        self._totals = np.zeros(span, dtype=np.int64)
        self._view = memoryview(self._totals)  # type: ignore[arg-type]
        self._mask = span - 1

    def __getitem__(self, step: int) -> int:
        value: int = self._view[step & self._mask]
        return value

    def pop(self, step: int) -> int:
        """Total of a step that runs now; forgets it."""
        slot = step & self._mask
        value: int = self._view[slot]
        self._view[slot] = 0
        return value

    def add(self, values: Counts, step: int, sign: int = 1) -> None:
        """Add ``sign * values`` to the steps from ``step`` on."""
        first = step & self._mask
        room = len(self._totals) - first
        if len(values) <= room:
            self._totals[first : first + len(values)] += sign * values
        else:
            self._totals[first:] += sign * values[:room]
            self._totals[: len(values) - room] += sign * values[room:]

    def empty(self) -> bool:
        """Whether nothing is to come."""
        return not self._totals.any()


class DecodeBatch:
    """Decoding sequences: number, contexts, and what each future step adds.

    Attributes
    ----------
    step : int
        Decode steps run so far; the next one is ``step + 1``.
    n, ctx : int
        Sequences decoding and the sum of their contexts.
    """

    def __init__(
        self, longest_path: int, width: int, drafted: int, varies_width: bool = False
    ) -> None:
        span = 1 << (longest_path + 1).bit_length()
        self.step, self.n, self.ctx = 0, 0, 0
        self.width, self.drafted = width, drafted
        self._longest = span - 1
        self._emitted, self._growth = Ring(span), Ring(span)
        self.varies_width = varies_width
        self._query, self._query_ctx = Ring(span), Ring(span)
        self._finishes: list[tuple[int, int, Request]] = []

    @property
    def growth(self) -> int:
        """KV blocks the next step adds."""
        return self._growth[self.step + 1]

    @property
    def emitted(self) -> int:
        """Tokens the next step emits."""
        return self._emitted[self.step + 1]

    @property
    def query_tokens(self) -> int:
        """Query tokens of the next step."""
        return self._query[self.step + 1] if self.varies_width else self.n * self.width

    @property
    def query_ctx(self) -> int:
        """Sum of query tokens x context of the next step."""
        return self._query_ctx[self.step + 1] if self.varies_width else self.ctx * self.width

    def join(self, request: Request) -> None:
        """Start decoding a request with the next step.

        Raises
        ------
        ValueError
            If its path is longer than the ring.
        """
        n_steps = len(request.path.emitted) - request.next_step
        if n_steps > self._longest:
            raise ValueError(f"a path of {n_steps} steps is longer than the ring {self._longest}")
        request.start_step = self.step
        request.finish_step = self.step + n_steps
        self._add(request, 1)
        heappush(self._finishes, (request.finish_step, request.id, request))
        self.n += 1
        self.ctx += request.context

    def leave(self, request: Request) -> None:
        """Take a request out before its end and book the steps it has run."""
        self.n -= 1
        request.book(self.step - request.start_step, self.drafted)
        self.ctx -= request.context
        self._add(request, -1)
        request.finish_step = 0

    def _add(self, request: Request, sign: int) -> None:
        rest, step = request.path.cut(request.next_step), self.step + 1
        self._emitted.add(rest.emitted, step, sign)
        self._growth.add(rest.growth, step, sign)
        if rest.width is not None and rest.query_ctx is not None:
            self._query.add(rest.width, step, sign)
            self._query_ctx.add(rest.query_ctx, step, sign)

    def grow(self) -> int:
        """KV blocks the next step adds, counted once."""
        return self._growth.pop(self.step + 1)

    def advance(self) -> list[Request]:
        """Run the next step; the requests it finishes."""
        self.step = step = self.step + 1
        self.ctx += self._emitted.pop(step)
        if self.varies_width:
            self._query.pop(step)
            self._query_ctx.pop(step)
        finishes = self._finishes
        return self._pop_finished(step) if finishes and finishes[0][0] <= step else []

    def _pop_finished(self, step: int) -> list[Request]:
        finished: list[Request] = []
        while self._finishes and self._finishes[0][0] <= step:
            due, _, request = heappop(self._finishes)
            if request.finish_step == due:
                request.finish_step = 0
                request.book(len(request.path.emitted) - request.next_step, self.drafted)
                self.n -= 1
                self.ctx -= request.context
                finished.append(request)
        return finished

    def check(self) -> None:
        """Assert that an idle batch holds nothing."""
        if not self.n:
            assert self.ctx == 0, self.ctx
            rings = (self._emitted, self._growth, self._query, self._query_ctx)
            assert all(ring.empty() for ring in rings)
