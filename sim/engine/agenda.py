"""What is due outside the engines, in order, and how far engines may run ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import NamedTuple

import simpy

from sim.engine.arrivals import Arrivals

INF = float("inf")

CHANGE, DEADLINE, RETRY = range(3)
"""Kinds of event, in the order in which they happen at one instant; new requests come last."""


class Event(NamedTuple):
    """Something due; a deadline is void once the ``attempt`` (row, number) it is for is over."""

    due_s: float
    kind: int
    serial: int
    act: Callable[[float], None]
    attempt: tuple[int, int] | None = None


class Agenda:
    """Arrivals and events, and the SimPy process that is awake for them.

    Parameters
    ----------
    env : simpy.Environment
    arrivals : Arrivals
    arrive : callable
        Takes row and time of a request that is sent.
    over : callable
        Whether an attempt is over.

    Attributes
    ----------
    next_s : float
        When something is due; infinite where nothing is known to be [s].
    horizon_s : float
        Before this nothing from outside, known or not, reaches a replica [s].
    held_up : bool
        Whether a request waits for any replica to finish one.
    """

    def __init__(
        self,
        env: simpy.Environment,
        arrivals: Arrivals,
        arrive: Callable[[int, float], None],
        over: Callable[[tuple[int, int]], bool],
    ) -> None:
        self._env, self._arrivals = env, arrivals
        self._arrive, self._over = arrive, over
        self._events: list[Event] = []
        self._serial = 0
        self._until_s = -INF
        self._nudge: simpy.Event | None = None
        self.held_up = False
        self._look()

    def run(self) -> Generator[simpy.Event, None, None]:
        """SimPy process that lets things happen nobody else was awake for."""
        while True:
            self._until_s = self.next_s
            if self.next_s == INF:
                self._nudge = self._env.event()
                yield self._nudge
                continue
            yield self._env.timeout(max(self._until_s - self._env.now, 0.0))
            if self._arrivals.waits or self._events:
                yield self._env.timeout(0.0)  # steps that end at this very instant come first
            self.deliver(self._until_s)

    def _alarm(self, due_s: float) -> Generator[simpy.Event, None, None]:
        yield self._env.timeout(max(due_s - self._env.now, 0.0))
        yield self._env.timeout(0.0)  # steps that end at this very instant come first
        self.deliver(due_s)

    def push(
        self,
        due_s: float,
        kind: int,
        act: Callable[[float], None],
        attempt: tuple[int, int] | None = None,
    ) -> None:
        """Let ``act`` happen at ``due_s``."""
        self._serial += 1
        heappush(self._events, Event(due_s, kind, self._serial, act, attempt))
        self.expect(due_s)

    def expect(self, due_s: float) -> None:
        """Something new is due: be awake by then."""
        self._look()
        if due_s >= self._until_s:
            return
        if self._nudge is not None:
            nudge, self._nudge = self._nudge, None
            nudge.succeed()
        else:
            self._env.process(self._alarm(due_s))

    def _look(self) -> None:
        events, next_s = self._events, self._arrivals.next_s
        while events and events[0].attempt is not None and self._over(events[0].attempt):
            heappop(events)
        if events and events[0].due_s < next_s:
            next_s = events[0].due_s
        self.next_s = next_s
        self.horizon_s = -INF if self._arrivals.waits or self.held_up else next_s

    def deliver(self, until_s: float) -> None:
        """Let everything happen that is due by ``until_s``, in order."""
        events, arrivals = self._events, self._arrivals
        while self.next_s <= until_s:
            if events and events[0].due_s <= arrivals.next_s:
                event = heappop(events)
                if event.attempt is None or not self._over(event.attempt):
                    event.act(event.due_s)
            else:
                now_s, row = arrivals.pop()
                self._arrive(row, now_s)
            if events or arrivals.waits or self.held_up:
                self._look()
            else:
                self.next_s = self.horizon_s = arrivals.next_s

    def hold_up(self, held: bool) -> None:
        """Whether a request now waits for any replica to finish one."""
        self.held_up = held
        self._look()
