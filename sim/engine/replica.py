"""One model replica as a SimPy process: plan a step, sleep through it, book what it produced."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

import simpy

from sim.engine.decode_batch import DecodeBatch
from sim.engine.recorder import Recorder, StepRow, StepTotals
from sim.engine.request import Request
from sim.engine.rules import Rules
from sim.engine.scheduler import Prefill, Scheduler

if TYPE_CHECKING:
    from sim.engine.router import Router


class StepCost(Protocol):
    """What a replica asks about time; ``models.step_time.StepTime`` answers."""

    def decode(self, n: int, ctx: int) -> float:
        """Full-width decode step without prefill [s]."""
        ...

    def mixed(
        self,
        n: int,
        ctx: float,
        query_tokens: int,
        query_ctx: float,
        prefill_tokens: int = 0,
        prefill_ctx: float = 0.0,
        pairs: float = 0.0,
        finishing: int = 0,
    ) -> float:
        """Any step [s]."""
        ...

    def host_s(self, sequences: int) -> float:
        """Host part of a step [s]."""
        ...

    def draft_s(
        self, sequences: int, tokens: int, ctx: float, query_ctx: float, pairs: float
    ) -> float:
        """Draft part of a step [s]."""
        ...


class Replica:
    """A scheduler and its clock.

    The clock ``now_s`` is the replica's own, never SimPy's, so that times do not pick up rounding
    from delays. Up to the arrivals' horizon it runs ahead of SimPy without yielding.

    Parameters
    ----------
    env : simpy.Environment
    number : int
    rules : Rules
    cost : StepCost
    scale : float
        Factor on every step time; the bands re-run a scenario at both ends of it.
    batch : DecodeBatch
    recorder : Recorder
    """

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        rules: Rules,
        cost: StepCost,
        scale: float,
        batch: DecodeBatch,
        recorder: Recorder,
    ) -> None:
        self.env, self.number, self.rules = env, number, rules
        self.cost, self.scale = cost, scale
        self.batch = batch
        self.scheduler = Scheduler(rules, batch)
        self.recorder = recorder
        self.totals: StepTotals = recorder.totals[number]
        self._gap = recorder.itl.add
        self.now_s = 0.0
        self.outstanding = 0
        self._known_s = 0.0
        self._wake: simpy.Event | None = None
        self._idled_for: Request | None = None
        self._stalled: list[tuple[float, int]] = []
        self._returned: dict[Request, float] = {}

    def attach(self, router: Router) -> None:
        """Know the router, whose arrivals bound how far this replica may run ahead."""
        self.router = router

    def enqueue(self, request: Request) -> None:
        """Receive a request from the router."""
        self.outstanding += 1
        self.scheduler.waiting.append(request)
        if self._wake is not None:
            self._wake.succeed()
            self._wake = None

    def run(self) -> Generator[simpy.Event, None, None]:
        """SimPy process of this replica; ends only with the simulation."""
        scheduler, batch, router = self.scheduler, self.batch, self.router
        arrivals, pool, rows = router.arrivals, scheduler.pool, self.recorder.rows
        ahead, fixed = self.rules.async_scheduling, not batch.varies_width
        scale, decode = self.scale, self.cost.decode
        while True:
            decodes, prefill = scheduler.schedule(self._known_s)
            if scheduler.preempted:
                self._interrupt(scheduler.interrupted)
            used = pool.total - pool.free
            if scheduler.late:
                scheduler.release_late()
            n = batch.n if decodes else 0
            if n and fixed and prefill is None:
                seconds = scale * decode(n, batch.ctx)
            elif n or prefill is not None or scheduler.returning:
                seconds = scale * self._mixed(n, prefill)
            else:
                yield from self._idle()
                continue
            if scheduler.swap_s:
                seconds += scheduler.swap_s
                scheduler.swap_s = 0.0
            self._idled_for = None
            start, end = self.now_s, self.now_s + seconds
            if rows is not None:
                rows.append(self._row(n, prefill, start, end, used))
            if arrivals.waits or end >= arrivals.next_s:
                yield self.env.timeout(max(end - self.env.now, 0.0))
            if used > self.totals.blocks_peak:
                self.totals.blocks_peak = used
            self._book(n, prefill, start, end)
            self._known_s = start if ahead else end
            self.now_s = end
            if arrivals.next_s <= end:
                router.deliver(end)

    def _idle(self) -> Generator[simpy.Event, None, None]:
        """Nothing to run: the next step starts when the head of the queue is ready.

        Raises
        ------
        RuntimeError
            If the head was ready the last time as well: its blocks will never be free.
        """
        if not self.scheduler.waiting:
            self._wake = self.env.event()
            yield self._wake
        head = self.scheduler.waiting[0]
        if self._known_s == self.now_s and head is self._idled_for:
            free = self.scheduler.pool.free
            raise RuntimeError(
                f"request {head.id} waits for ever: nothing runs, {free} blocks free"
            )
        self._idled_for = head
        self.now_s = max(self.now_s, head.ready_s)
        self._known_s = self.now_s

    def _mixed(self, n: int, prefill: Prefill | None) -> float:
        batch = self.batch
        ctx, tokens, query_ctx = 0, 0, 0
        if n:
            ctx, tokens, query_ctx = batch.ctx, batch.query_tokens, batch.query_ctx
        if prefill is None:
            return self.cost.mixed(n, ctx, tokens, query_ctx)
        return self.cost.mixed(
            n,
            ctx,
            tokens,
            query_ctx,
            prefill.tokens,
            prefill.ctx,
            prefill.pairs,
            len(prefill.finishing),
        )

    def _book(self, n: int, prefill: Prefill | None, start: float, end: float) -> None:
        """Everything the step from ``start`` to ``end`` changed."""
        totals, batch, seconds = self.totals, self.batch, end - start
        totals.steps += 1
        if n:
            totals.decode_s += seconds
            totals.n_s += n * seconds
            if batch.varies_width:
                totals.width_s += batch.query_tokens * seconds
            if self._stalled or self._returned:
                self._late_gaps(n, end - seconds, end)
            else:
                self._gap(seconds, n)
            for request in batch.advance():
                self._finish(request, end)
        elif batch.n:
            self._stalled.append((start, batch.n - self._n_late()))
        if prefill is not None:
            for request in prefill.started:
                if not request.preemptions:
                    self.recorder.log.schedule_s[request.id] = start
            for request in prefill.finishing:
                self._first_token(request, end)
        if self.scheduler.returning:
            for request in self.scheduler.returned():
                batch.join(request)
                self._returned[request] = request.last_emit_s

    def _n_late(self) -> int:
        """Sequences whose last emission lies further back than the step before."""
        return len(self._returned) + sum(count for _, count in self._stalled)

    def _late_gaps(self, n: int, start: float, end: float) -> None:
        """Chunk gaps of a decode step in which some sequences sat the steps before out."""
        back = [(since, 1) for since in self._returned.values()]
        for since, count in [*self._stalled, *back, (start, n - self._n_late())]:
            if count:
                self._gap(end - since, count)
        self._stalled, self._returned = [], {}

    def _interrupt(self, victims: list[Request]) -> None:
        """Note when preempted sequences last emitted, for the gap until they do again."""
        for request in victims:
            joined, request.last_emit_s = request.last_emit_s, self.now_s
            if request in self._returned:
                request.last_emit_s = self._returned.pop(request)
                continue
            for index, (since, count) in enumerate(self._stalled):
                if since >= joined:
                    self._stalled[index] = (since, count - 1)
                    request.last_emit_s = since
                    break

    def _first_token(self, request: Request, end: float) -> None:
        if request.emit_after_prefill(self.rules):
            self.recorder.log.first_token_s[request.id] = end
        else:
            self._gap(end - request.last_emit_s, 1)
        request.last_emit_s = end
        if request.produced == request.output_tokens:
            self._finish(request, end)
        else:
            self.batch.join(request)

    def _finish(self, request: Request, end: float) -> None:
        self.scheduler.finish(request)
        self.outstanding -= 1
        self.recorder.log.finish(request, self.number, end)
        self.router.answered(request.id, end)

    def _row(self, n: int, prefill: Prefill | None, start: float, end: float, used: int) -> StepRow:
        """Row of the step table."""
        batch = self.batch
        tokens = batch.query_tokens if n else 0
        ctx, query_ctx = (batch.ctx, batch.query_ctx) if n else (0, 0)
        prefill = prefill or Prefill()
        sequences = n + len(prefill.finishing)
        draft = self.scale * self.cost.draft_s(
            sequences, tokens + prefill.tokens, ctx + prefill.ctx, query_ctx, prefill.pairs
        )
        host = self.scale * self.cost.host_s(sequences)
        return (
            self.number,
            start,
            end - start,
            draft,
            end - start - draft - host,
            host,
            n,
            prefill.tokens,
            tokens,
            (batch.emitted if n else 0) + len(prefill.finishing),
            used,
            len(self.scheduler.waiting),
        )
