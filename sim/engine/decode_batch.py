"""All decoding sequences of one replica, kept as sums that a step updates in constant time."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from sim.engine.path import Counts, Path
from sim.engine.request import Request


class Ring:
    """Per-step totals of the steps to come, by step number modulo the ring's length.

    ``slots`` is a view whose items are Python integers: numpy scalars would slow every sum.
    """

    __slots__ = ("_totals", "mask", "slots")

    def __init__(self, span: int) -> None:
        self._totals = np.zeros(span, dtype=np.int64)
        self.slots = memoryview(self._totals)  # type: ignore[arg-type]
        self.mask = span - 1

    def __getitem__(self, step: int) -> int:
        value: int = self.slots[step & self.mask]
        return value

    def add(self, values: Counts, step: int) -> None:
        """Add ``values`` to the steps from ``step`` on."""
        first = step & self.mask
        stop = first + len(values)
        room = len(self._totals) - first
        if len(values) <= room:
            self._totals[first:stop] += values
        else:
            self._totals[first:] += values[:room]
            self._totals[: len(values) - room] += values[room:]

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

    def __init__(self, longest_path: int, width: int, varies_width: bool = False) -> None:
        span = 1 << (longest_path + 1).bit_length()
        self.step, self.n, self.ctx = 0, 0, 0
        self.width = width
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
        self._add(request.path.cut(request.next_step) if request.next_step else request.path)
        heappush(self._finishes, (request.finish_step, request.id, request))
        self.n += 1
        self.ctx += request.context

    def leave(self, request: Request) -> None:
        """Take a request out before its end and book the steps it has run."""
        self.n -= 1
        request.run_steps(self.step - request.start_step)
        self.ctx -= request.context
        self._add(request.path.cut(request.next_step).negative())
        request.finish_step = 0

    def _add(self, rest: Path) -> None:
        step = self.step + 1
        self._emitted.add(rest.emitted, step)
        self._growth.add(rest.growth, step)
        if rest.width is not None and rest.query_ctx is not None:
            self._query.add(rest.width, step)
            self._query_ctx.add(rest.query_ctx, step)

    def advance(self) -> list[Request]:
        """Run the next step; the requests it finishes."""
        self.step = step = self.step + 1
        slot = step & self._emitted.mask
        self.ctx += self._emitted.slots[slot]
        self._emitted.slots[slot] = self._growth.slots[slot] = 0
        if self.varies_width:
            self._query.slots[slot] = self._query_ctx.slots[slot] = 0
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
            rings = (self._emitted, self._growth, self._query, self._query_ctx)
            assert all(ring.empty() for ring in rings)
