"""One model replica as a SimPy process: plan a step, sleep through it, book what it produced."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import simpy

from models.step_cost import StepCost
from sim.engine.batch import Batch
from sim.engine.gaps import Gaps
from sim.engine.recorder import Recorder
from sim.engine.request import Request
from sim.engine.rules import Rules
from sim.engine.run_scheduler import scheduler_of
from sim.engine.scheduler import Prefill
from sim.engine.step_rows import step_row
from sim.engine.totals import StepTotals

if TYPE_CHECKING:
    from sim.engine.router import Router


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
    make_batch : callable
        Makes an empty batch, whose count of tokens decoded goes on from the number given.
    recorder, draws : Recorder, random.Random

    Attributes
    ----------
    up : bool
    outstanding : int
        Requests it was given that somebody still waits for.
    """

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        rules: Rules,
        cost: StepCost,
        scale: float,
        make_batch: Callable[[int], Batch],
        recorder: Recorder,
        draws: random.Random,
    ) -> None:
        self.env, self.number, self.rules, self.cost, self.scale = env, number, rules, cost, scale
        self._make_batch, self._draws, self.recorder = make_batch, draws, recorder
        self.totals: StepTotals = recorder.totals[number]
        self.up = True
        self._life = 0
        self._wake: simpy.Event | None = None
        self._clear(0.0, 0)

    def _clear(self, now_s: float, decoded: int) -> None:
        """Nothing runs, waits or is cached."""
        self.batch = self._make_batch(decoded)
        self.scheduler = scheduler_of(self.rules, self.batch, self.totals, self._draws)
        self.now_s = self._known_s = now_s
        self.outstanding = 0
        self._idled_for: Request | None = None
        self.gaps = Gaps(self.recorder.gaps[self.number])
        self._leaving: list[Request] = []

    def attach(self, router: Router) -> None:
        """Know the router, whose horizon bounds how far this replica may run ahead."""
        self.router = router
        self.env.process(self.run())

    def enqueue(self, request: Request) -> None:
        """Receive a request from the router."""
        self.outstanding += 1
        self.scheduler.waiting.append(request)
        if self._wake is not None:
            self._rouse(self._wake)

    def _rouse(self, wake: simpy.Event) -> None:
        wake.succeed()
        self._wake = None

    def cancel(self, request: Request) -> None:
        """Its client has given up; what runs leaves when the step that runs now ends."""
        self.outstanding -= 1
        request.gone = True
        self.recorder.log.unschedule(request.id)
        if request in self.scheduler.running:
            self._leaving.append(request)
        else:
            self.scheduler.withdraw(request)
            self.recorder.log.discard(request)

    def fail(self) -> list[Request]:
        """Die: the step that runs now never ends, the cache is lost; requests lost, in order."""
        self.up = False
        self._life += 1
        lost = [*self.scheduler.running, *self.scheduler.waiting]
        for request in lost:
            if request.finish_step:
                self.batch.leave(request)
            self.recorder.log.discard(request)
            if not request.gone:
                self.recorder.log.unschedule(request.id)
        self._clear(self.now_s, self.batch.decoded)
        if self._wake is not None:
            self._rouse(self._wake)
        return [request for request in lost if not request.gone]

    def restart(self, now_s: float) -> None:
        """Serve again, with nothing cached."""
        self.up = True
        self._clear(now_s, self.batch.decoded)
        self.env.process(self.run())

    def close(self) -> None:
        """The run is over: nothing may be left, nor lost."""
        if self.scheduler.running:  # a step nobody waits for: their clients gave up
            self.fail()
        self.scheduler.release_late()
        self.scheduler.check()

    def run(self) -> Generator[simpy.Event, None, None]:
        """SimPy process of this replica; ends with its life, or the simulation."""
        scheduler, batch, agenda = self.scheduler, self.batch, self.router.agenda
        pool, queue, bins = scheduler.pool, scheduler.waiting, self.recorder.bins[self.number]
        ahead, fixed, rows = self.rules.async_scheduling, not batch.varies_width, self.recorder.rows
        scale, decode, life, row = self.scale, self.cost.decode, self._life, None
        leaving, bin_end_s = self._leaving, bins.end_s
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
                seconds = scale * batch.mixed_s(self.cost, n, prefill)
            else:
                yield from self._idle()
                if self._life != life:
                    return
                continue
            if scheduler.swap_s:
                seconds += scheduler.swap_s
                scheduler.swap_s = 0.0
            self._idled_for = None
            start, end = self.now_s, self.now_s + seconds
            waiting = len(queue)
            if rows is not None:
                row = step_row(self, n, prefill, start, end, used)
            if end >= agenda.horizon_s:
                yield self.env.timeout(max(end - self.env.now, 0.0))
                if self._life != life:
                    return
            before = bins.reading(batch.decoded) if end >= bin_end_s else None
            if rows is not None and row is not None:
                rows.append(row)
            self._book(n, prefill, start, end, used, waiting)
            if before is not None:
                bin_end_s = bins.close(before, start, end, batch.decoded)
            self._known_s = start if ahead else end
            self.now_s = end
            if agenda.next_s <= end:
                agenda.deliver(end)
                if self._life != life:
                    return
            if leaving:
                self._take_out()

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
            if not self.scheduler.waiting:
                return
        head = self.scheduler.waiting[0]
        if self._known_s == self.now_s and head is self._idled_for:
            free = self.scheduler.pool.free
            raise RuntimeError(
                f"request {head.id} waits for ever: nothing runs, {free} blocks free"
            )
        self._idled_for = head
        self.now_s = self._known_s = max(self.now_s, head.ready_s)
        agenda = self.router.agenda
        if self.now_s >= agenda.horizon_s:
            yield self.env.timeout(max(self.now_s - self.env.now, 0.0))
            agenda.deliver(self.now_s)

    def _book(
        self, n: int, prefill: Prefill | None, start: float, end: float, used: int, waiting: int
    ) -> None:
        """Everything the step from ``start`` to ``end`` changed."""
        totals, batch, seconds = self.totals, self.batch, end - start
        totals.steps += 1
        totals.blocks_s += used * seconds
        if waiting:
            totals.waiting_s += waiting * seconds
        if used > totals.blocks_peak:
            totals.blocks_peak = used
        if n:
            totals.decode_s += seconds
            totals.n_s += n * seconds
            if batch.varies_width:
                totals.width_s += batch.query_tokens * seconds
            gaps = self.gaps
            if gaps.uneven:
                gaps.emit(end - seconds, end, n)
            else:
                gaps.add(seconds, n)
            for request in batch.advance(start, end):
                self._finish(request, end)
        else:
            totals.stalled_s += seconds
            if batch.n:
                self.gaps.stall(start, batch.n)
        if prefill is not None:
            totals.prefilling_s += (len(self.scheduler.running) - n) * seconds
            for request in prefill.started:
                if not request.preemptions and not request.gone:
                    self.recorder.log.schedule_s[request.id] = start
            for request in prefill.finishing:
                self._first_token(request, end)
            tokens = prefill.tokens + n * batch.width
            if tokens > totals.tokens_peak:
                totals.tokens_peak = tokens
            if batch.n > totals.n_peak:
                totals.n_peak = batch.n
        if self.scheduler.returning:
            self._rejoin()

    def _rejoin(self) -> None:
        """Preempted requests that are computed again decode on."""
        for request in self.scheduler.returned():
            self.batch.join(request)
            self.gaps.come_back(request)
        self.totals.n_peak = max(self.totals.n_peak, self.batch.n)

    def _interrupt(self, victims: list[Request]) -> None:
        """Note when preempted sequences last emitted, for the gap until they do again."""
        self.totals.preemptions += self.scheduler.preempted
        for request in victims:
            self.gaps.forget(request, self.now_s)

    def _take_out(self) -> None:
        """Requests whose clients gave up while the last step ran leave the batch."""
        for request in self._leaving:
            if request in self.scheduler.running:
                if request.finish_step:
                    self.gaps.forget(request, self.now_s)
                self.scheduler.give_up(request)
                self.recorder.log.discard(request)
        self._leaving.clear()

    def _first_token(self, request: Request, end: float) -> None:
        self.totals.first_tokens += 1
        if not request.emit_after_prefill(self.rules):
            self.totals.resumed += 1
            self.gaps.add(end - request.last_emit_s, 1)
        elif not request.gone:
            self.recorder.log.first_token_s[request.id] = end
        request.last_emit_s = end
        if request.produced == request.output_tokens:
            self._finish(request, end)
        else:
            self.batch.join(request)

    def _finish(self, request: Request, end: float) -> None:
        self.scheduler.finish(request)
        self.totals.surplus += request.accepted + request.n_steps - request.decoded
        if request.gone:
            self.recorder.log.discard(request)
            return
        self.outstanding -= 1
        self.recorder.log.finish(request, self.number, end)
        self.router.finished(request.id, end)
