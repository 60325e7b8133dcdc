"""Which replica serves a request: decided at its arrival, on the state of that instant."""

from __future__ import annotations

from collections.abc import Generator
from typing import Literal

import simpy

from sim.engine.arrivals import Arrivals
from sim.engine.intake import Intake
from sim.engine.recorder import Recorder
from sim.engine.replica import Replica

Policy = Literal["round_robin", "least_outstanding"]


class Router:
    """Hands arrivals to replicas.

    Parameters
    ----------
    policy : str
        ``round_robin`` by row, or ``least_outstanding`` (requests assigned and not finished; ties
        go to the lowest number). Its signal is exact: finishes up to the arrival are counted.
    """

    def __init__(
        self,
        env: simpy.Environment,
        arrivals: Arrivals,
        intake: Intake,
        replicas: list[Replica],
        policy: Policy,
        recorder: Recorder,
        request_s: float,
    ) -> None:
        self.env, self.arrivals, self.replicas = env, arrivals, replicas
        self._intake = intake
        self._policy, self._recorder, self._request_s = policy, recorder, request_s

    def run(self) -> Generator[simpy.Event, None, None]:
        """SimPy process that delivers arrivals nobody else was awake to deliver."""
        env, arrivals = self.env, self.arrivals
        while arrivals.next_s != float("inf"):
            due = arrivals.next_s
            yield env.timeout(max(due - env.now, 0.0))
            if arrivals.next_s <= due:
                self.deliver(due)

    def _alarm(self, due_s: float) -> Generator[simpy.Event, None, None]:
        yield self.env.timeout(max(due_s - self.env.now, 0.0))
        self.deliver(due_s)

    def deliver(self, until_s: float) -> None:
        """Route every arrival up to ``until_s``, in order."""
        arrivals, log = self.arrivals, self._recorder.log
        while arrivals.next_s <= until_s:
            now_s, row = arrivals.pop()
            request = self._intake.take(row)
            log.arrival_s[row] = now_s
            if isinstance(request, str):
                log.reject(row, request)
                self.answered(row, now_s)
                continue
            request.ready_s = now_s + self._request_s
            self._choose(row).enqueue(request)

    def answered(self, row: int, now_s: float) -> None:
        """A request was finished or rejected: its user may send again."""
        self._recorder.answered()
        next_s = self.arrivals.answered(row, now_s)
        if next_s is not None:
            self.env.process(self._alarm(next_s))

    def _choose(self, row: int) -> Replica:
        if self._policy == "round_robin" or len(self.replicas) == 1:
            return self.replicas[row % len(self.replicas)]
        return min(self.replicas, key=lambda replica: replica.outstanding)
