"""What happens outside the engines: sending, routing, giving up, trying again, outages."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import numpy as np
import simpy

from sim.engine.agenda import CHANGE, DEADLINE, RETRY, Agenda
from sim.engine.arrivals import Arrivals
from sim.engine.fleet import Fleet, Outage
from sim.engine.intake import Intake
from sim.engine.recorder import Recorder
from sim.engine.replica import Replica
from sim.engine.request import Request
from sim.engine.routing import make_choice
from sim.engine.rules import Rules
from sim.refusals import NEVER_FITS, NO_REPLICA, QUEUE_FULL, SESSION_ENDED, SESSION_GREW


class Router:
    """Hands requests to replicas, and takes care of those that do not come back.

    Attributes
    ----------
    agenda : Agenda
        What is due when; replicas run ahead of SimPy up to its horizon.
    """

    def __init__(
        self,
        env: simpy.Environment,
        arrivals: Arrivals,
        intake: Intake,
        replicas: list[Replica],
        fleet: Fleet,
        rules: Rules,
        recorder: Recorder,
        seed: int,
    ) -> None:
        self.arrivals, self.replicas = arrivals, replicas
        self._intake, self._fleet, self._recorder = intake, fleet, recorder
        self._request_s, self._seed = rules.request_s, seed
        self._limit = fleet.queue_limit
        self._choice = make_choice(fleet, replicas, rules.max_num_seqs, seed)
        self._pulled = fleet.router == "shared_queue"
        self._only = replicas[0] if len(replicas) == 1 and not self._pulled else None
        self._deadlines = fleet.client.deadlines
        self._up = list(replicas)
        self._returns = 0
        self._held: OrderedDict[Request, None] = OrderedDict()
        self._loading: dict[int, Outage] = {}
        self._alive: dict[int, Request] = {}
        self.agenda = Agenda(env, arrivals, self._arrive, self._over)
        for outage in fleet.outages:
            self.agenda.push(outage.at_s, CHANGE, partial(self._go_down, outage))
        env.process(self.agenda.run())

    # Sending

    def _arrive(self, row: int, now_s: float) -> None:
        log = self._recorder.log
        log.arrival_s[row] = now_s
        request = self._intake.take(row)
        if isinstance(request, str):
            log.attempts[row] = 1
            self._end(row, now_s, "rejected", request)
        else:
            self._send(request, now_s)

    def _send(self, request: Request, now_s: float) -> None:
        """Send one attempt of a client."""
        self._recorder.log.attempts[request.id] += 1
        request.sent_s = now_s
        if self._deadlines:
            row, attempt = request.id, (request.id, request.attempt)
            self._alive[row] = request
            for limit_s, first_token in self._deadlines:
                give_up = partial(self._lose_patience, row, first_token)
                self.agenda.push(now_s + limit_s, DEADLINE, give_up, attempt)
        self._place(request, now_s)

    def _place(self, request: Request, now_s: float) -> None:
        """Give a request to a replica, hold it, or refuse it."""
        if self._offer(request, now_s):
            return
        if not self._up and not self._returns:
            self._end(request.id, now_s, "failed", NO_REPLICA)
        elif self._limit is not None and self._full(None):
            self._miss(request, now_s, "rejected", QUEUE_FULL)
        else:
            self._held[request] = None
            self.agenda.hold_up(self._pulled)

    def _offer(self, request: Request, now_s: float) -> bool:
        """Give a request to a replica, which may refuse it; False: nobody can take it now."""
        chosen: Replica | None = None
        if self._up:
            chosen = self._only or self._choice.choose(request, self._up, now_s)
        if chosen is None:
            return False
        if self._limit is not None and self._full(chosen):
            self._miss(request, now_s, "rejected", QUEUE_FULL)
            return True
        ready_s = request.sent_s + self._request_s
        request.ready_s = ready_s if ready_s > now_s else now_s
        request.replica = chosen.number
        chosen.enqueue(request)
        return True

    def _full(self, replica: Replica | None) -> bool:
        """Whether a replica, or the queue they share, holds as many as it may."""
        assert self._limit is not None
        if replica is not None:
            return len(replica.scheduler.waiting) >= self._limit
        return self._pulled and len(self._held) >= self._limit * len(self.replicas)

    def _drain(self, now_s: float) -> None:
        """Give out what is held, as far as somebody can take it."""
        while self._held and self._offer(next(iter(self._held)), now_s):
            self._held.popitem(last=False)
        self.agenda.hold_up(self._pulled and bool(self._held))

    # Coming back, or not

    def finished(self, row: int, now_s: float) -> None:
        """A request was served; somebody may send in answer to it."""
        if self._deadlines:
            del self._alive[row]
        if self.arrivals.waits:
            self._answered(row, now_s)
        else:
            self._recorder.answered()
        if self._held:
            self._drain(now_s)

    def _answered(self, row: int, now_s: float) -> None:
        self._recorder.answered()
        due_s = self.arrivals.answered(row, now_s)
        if due_s is not None:
            self.agenda.expect(due_s)

    def _over(self, attempt: tuple[int, int]) -> bool:
        request = self._alive.get(attempt[0])
        return request is None or request.attempt != attempt[1]

    def _lose_patience(self, row: int, first_token: bool, now_s: float) -> None:
        """The client gives up, unless it waited for a first token and has it."""
        request = self._alive[row]
        if first_token and request.produced:
            return
        if request in self._held:
            del self._held[request]
        else:
            self.replicas[request.replica].cancel(request)
        self._miss(request, now_s, "timed_out", "")
        self._drain(now_s)

    def _miss(self, request: Request, now_s: float, status: str, reason: str) -> None:
        """An attempt came to nothing: its client tries again, or has had enough."""
        row, attempt, client = request.id, request.attempt, self._fleet.client
        self._alive.pop(row, None)
        if attempt > client.retries:
            self._end(row, now_s, status, reason)
            return
        u = float(np.random.default_rng([self._seed, row, attempt]).random())
        pause_s = client.backoff_s * client.backoff_factor ** (attempt - 1)
        pause_s *= 1 + client.jitter * (2 * u - 1)
        self.agenda.push(now_s + pause_s, RETRY, partial(self._retry, row, attempt + 1))

    def _retry(self, row: int, attempt: int, now_s: float) -> None:
        request = self._intake.again(row)
        request.attempt = attempt
        self._send(request, now_s)

    def _end(self, row: int, now_s: float, status: str, reason: str) -> None:
        """A request ends unserved, and with it its session."""
        log = self._recorder.log
        self._alive.pop(row, None)
        log.end(row, status, reason)
        for later in self.arrivals.rest_of_session(row):
            self._recorder.answered()
            row = later
            log.arrival_s[row] = now_s
            log.end(row, "rejected", SESSION_GREW if reason in NEVER_FITS else SESSION_ENDED)
        self._answered(row, now_s)

    # Outages

    def _go_down(self, outage: Outage, now_s: float) -> None:
        """A replica dies, perhaps while it was still coming back; not if it is gone for good."""
        replica = self.replicas[outage.replica]
        was_loading = self._loading.pop(replica.number, None) is not None
        if not replica.up and not was_loading:
            return
        lost: list[Request] = []
        if was_loading:
            self._returns -= 1
        else:
            self._up.remove(replica)
            lost = replica.fail()
        if outage.up_s is not None:
            self._returns += 1
            self._loading[replica.number] = outage
            self.agenda.push(outage.up_s, CHANGE, partial(self._come_up, outage))
        for request in lost:
            if outage.resend:
                self._resend(request, now_s)
            else:
                self._miss(request, now_s, "failed", "")
        if not self._up and not self._returns:
            while self._held:
                request, _ = self._held.popitem(last=False)
                self._end(request.id, now_s, "failed", NO_REPLICA)

    def _resend(self, lost: Request, now_s: float) -> None:
        request = self._intake.again(lost.id)
        request.attempt, request.sent_s = lost.attempt, now_s
        self._recorder.log.attempts[request.id] += 1
        if self._deadlines:
            self._alive[request.id] = request
        self._place(request, now_s)

    def _come_up(self, outage: Outage, now_s: float) -> None:
        if self._loading.get(outage.replica) is not outage:
            return
        del self._loading[outage.replica]
        self._returns -= 1
        self.replicas[outage.replica].restart(now_s)
        self._up = [replica for replica in self.replicas if replica.up]
        self._drain(now_s)
