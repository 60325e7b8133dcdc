"""The simulator as a plain loop, one sequence and one block at a time: slow, meant to be read.

The fast loop of `sim.engine` must give exactly the same times and counts. Read `plain_blocks`,
`plain_records` and `plain_engine` (one replica) first, then this: clients, router and failures.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from tests.plain_engine import Cost, Replica
from tests.plain_records import Result, Sequence, make_sequence


class Client(NamedTuple):
    """How long a client waits, and how often it tries again."""

    timeout_s: float | None = None
    first_token_timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 1.0
    backoff_factor: float = 2.0
    jitter: float = 0.5


class Outage(NamedTuple):
    """A replica is down from one moment to another, or for ever."""

    replica: int
    at_s: float
    up_s: float | None
    resend: bool  # what it was serving is sent elsewhere; otherwise the clients see an error


class Fleet(NamedTuple):
    """Replicas, who chooses among them, who sends, and what fails."""

    replicas: int = 1
    router: str = "round_robin"
    refresh_s: float = 0.0
    queue_limit: int | None = None
    client: Client = Client()
    outages: tuple[Outage, ...] = ()
    seed: int = 0


class Kind(IntEnum):
    """Events at one instant come in this order; idle replicas plan after all of them."""

    STEP_ENDS = 1
    REPLICA_CHANGES = 2
    DEADLINE = 3
    RETRY = 4
    NEW_REQUEST = 5


class Router:
    """Chooses a replica that is up. What it looks at are the requests alive in each."""

    def __init__(self, fleet: Fleet, max_num_seqs: int, replicas: list[Replica]) -> None:
        self.fleet, self.max_num_seqs, self.replicas = fleet, max_num_seqs, replicas
        self.choices = 0
        self.draw = random.Random(fleet.seed)
        self.seen: list[int] = []  # requests in each replica, as of the last look
        self.looked_s: float | None = None
        self.home: dict[int, int] = {}  # replica a prefix was last sent to

    def choose(self, sequence: Sequence, now: float) -> Replica | None:
        """Return None if nobody can take the request now."""
        up = [replica for replica in self.replicas if replica.up]
        if not up:
            return None
        if self.fleet.router == "shared_queue":
            roomy = [replica for replica in up if len(replica.alive) < self.max_num_seqs]
            return min(roomy, key=lambda replica: len(replica.alive)) if roomy else None
        self.look(now)
        chosen = {
            "round_robin": self.next_in_turn,
            "least_outstanding": self.least_loaded,
            "power_of_two": self.better_of_two,
            "prefix_affinity": lambda up: self.nearest(up, sequence),
        }[self.fleet.router](up)
        self.choices += 1
        return chosen

    def look(self, now: float) -> None:
        """Count anew, unless the last look is recent enough."""
        refresh_s = self.fleet.refresh_s
        if not refresh_s or self.looked_s is None or now >= self.looked_s + refresh_s:
            self.seen = [len(replica.alive) for replica in self.replicas]
            self.looked_s = now

    def load(self, replica: Replica) -> int:
        return self.seen[replica.index]

    def next_in_turn(self, up: list[Replica]) -> Replica:
        return up[self.choices % len(up)]

    def least_loaded(self, up: list[Replica]) -> Replica:
        return min(up, key=self.load)

    def better_of_two(self, up: list[Replica]) -> Replica:
        if len(up) == 1:
            return up[0]
        return min((up[i] for i in self.draw.sample(range(len(up)), 2)), key=self.load)

    def nearest(self, up: list[Replica], sequence: Sequence) -> Replica:
        """Go where the longest part of the prompt was sent last, unless that one is overloaded."""
        homes = [self.home.get(node.key) for node in reversed(sequence.nodes)]
        home = next((r for index in homes for r in up if r.index == index), None)
        most = math.ceil(1.25 * (sum(self.load(replica) for replica in up) + 1) / len(up))
        if home is None or self.load(home) >= most:
            home = self.least_loaded(up)
        for node in [*sequence.nodes, *([sequence.keep] if sequence.keep else [])]:
            self.home[node.key] = home.index
        return home


class Loop:
    """Everything that happens, event by event."""

    def __init__(
        self, requests: Any, paths: Any, rules: Any, cost: Cost, fleet: Fleet, depth: int
    ) -> None:
        self.requests, self.paths, self.rules, self.fleet = requests, paths, rules, fleet
        self.client, self.depth = fleet.client, depth
        self.rows = len(requests.prompt_tokens)
        self.out = Result.empty(self.rows)
        self.replicas = [Replica(i, rules, cost, self.out) for i in range(fleet.replicas)]
        self.router = Router(fleet, rules.max_num_seqs, self.replicas)
        self.now = float("-inf")
        self.events: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.serial = count()
        self.alive: dict[int, Sequence] = {}  # by row, while a client waits for an answer
        self.held: list[Sequence] = []  # by the router, oldest first
        self.tries = [0] * self.rows  # times the client sent it; the router may have sent it again
        self.heads = [row for row in range(self.rows) if requests.turn[row] == 0]
        self.begun = 0  # sessions of a closed loop
        self.returns = 0  # times some replica will still come up
        self.loading: dict[int, Outage] = {}  # by replica: what it comes back from
        self.schedule_first_requests()
        self.schedule_outages()

    # -- time

    def at(self, time_s: float, kind: Kind, action: Callable[..., None], *args: Any) -> None:
        """Schedule an event. Equal ones (time and kind) come in the order of this call."""
        heapq.heappush(self.events, (time_s, kind, next(self.serial), action, args))

    def run(self) -> Result:
        """Go from event to event until every request has ended."""
        while (self.out.status == "unfinished").any():
            wakes_s = [replica.wakes_s(self.now) for replica in self.replicas]
            self.now = min(wakes_s + [event[0] for event in self.events[:1]])
            assert self.now < float("inf")
            while self.events and self.events[0][0] <= self.now:
                _, _, _, action, args = heapq.heappop(self.events)
                action(*args)
            for replica in self.replicas:
                if replica.up and replica.plan is None:
                    replica.start(self.now)
                    if replica.plan is not None:
                        self.at(
                            replica.end_s, Kind.STEP_ENDS, self.step_ends, replica, replica.plan
                        )
        self.check_end()
        self.out.steps.sort(key=lambda step: (step.start_s, step.replica))
        return self.out

    def check_end(self) -> None:
        """Nobody waits for anything, and all blocks come back."""
        assert not self.alive and not self.held
        for replica in self.replicas:
            assert not replica.alive and not replica.waiting
            assert all(sequence.gone for sequence in replica.running)
            replica.retire()
            replica.release_late()
            assert len(replica.pool.free) == self.rules.n_blocks

    def step_ends(self, replica: Replica, plan: Any) -> None:
        if replica.plan is not plan:
            return  # the replica went down meanwhile
        for sequence in replica.end():
            replica.alive.remove(sequence)
            del self.alive[sequence.row]
            self.answered(sequence.row)
            self.give_out()

    # -- sessions

    def schedule_first_requests(self) -> None:
        """Open loop: each session at its time. Closed loop: whoever sends takes the next one."""
        users = self.requests.users
        self.promised = len(self.heads) if users is None else min(users, len(self.heads))
        for row in self.heads[: self.promised]:
            action, args = (self.begin_session, ()) if users else (self.first_send, (row,))
            self.at(float(self.requests.arrival_s[row]), Kind.NEW_REQUEST, action, *args)

    def begin_session(self) -> None:
        self.begun += 1
        self.first_send(self.heads[self.begun - 1])

    def first_send(self, row: int) -> None:
        self.out.arrival_s[row] = self.now
        self.try_to_send(row)

    def followers(self, row: int) -> list[int]:
        """Rows of the same session behind this one."""
        behind = []
        for other in range(row + 1, self.rows):
            if self.requests.turn[other] == 0:
                break
            behind.append(other)
        return behind

    def answered(self, row: int) -> None:
        behind = self.followers(row)
        if behind:
            pause_s = float(self.requests.think_s[behind[0]])
            self.at(self.now + pause_s, Kind.NEW_REQUEST, self.first_send, behind[0])
        else:
            self.session_over()

    def session_over(self) -> None:
        """A user of a closed loop goes on, after a pause, with a session nobody has begun."""
        if self.requests.users is None or self.promised == len(self.heads):
            return
        pause_s = float(self.requests.think_s[self.heads[self.promised]])
        self.promised += 1
        self.at(self.now + pause_s, Kind.NEW_REQUEST, self.begin_session)

    # -- sending

    def try_to_send(self, row: int) -> None:
        """The client sends a request, for the first time or again."""
        self.tries[row] += 1
        for timeout_s, first_token in (
            (self.client.timeout_s, False),
            (self.client.first_token_timeout_s, True),
        ):
            if timeout_s is not None:
                args = (row, self.tries[row], first_token)
                self.at(self.now + timeout_s, Kind.DEADLINE, self.deadline, *args)
        self.send(row)

    def send(self, row: int) -> None:
        """A request comes to the router, from its client or from a replica that failed."""
        self.out.attempts[row] += 1
        ready_s = self.now + self.rules.request_s
        sequence = make_sequence(
            row,
            int(self.out.attempts[row]),
            ready_s,
            self.requests,
            self.paths,
            self.rules,
            self.depth,
        )
        never = why_never(sequence, self.rules)
        if never is not None:
            self.ends_unserved(row, "rejected", never)
            return
        replica = self.router.choose(sequence, self.now)
        self.alive[row] = sequence
        if replica is not None:
            self.hand_over(sequence, replica)
        elif self.nobody_left():
            self.ends_unserved(row, "failed", "no replica left")
        elif self.router_is_full():
            self.came_to_nothing(row, "rejected", "queue full")
        else:
            self.held.append(sequence)

    def nobody_left(self) -> bool:
        return not self.returns and not any(replica.up for replica in self.replicas)

    def router_is_full(self) -> bool:
        limit, shared = self.fleet.queue_limit, self.fleet.router == "shared_queue"
        return shared and limit is not None and len(self.held) >= limit * len(self.replicas)

    def hand_over(self, sequence: Sequence, replica: Replica) -> None:
        limit = self.fleet.queue_limit
        if limit is not None and len(replica.waiting) >= limit:
            self.came_to_nothing(sequence.row, "rejected", "queue full")
            return
        sequence.ready_s = max(sequence.ready_s, self.now)
        replica.join(sequence)

    def give_out(self) -> None:
        """Give held requests to replicas, from the front, while one can take them."""
        while self.held:
            replica = self.router.choose(self.held[0], self.now)
            if replica is None:
                return
            self.hand_over(self.held.pop(0), replica)

    # -- what goes wrong

    def deadline(self, row: int, tries: int, first_token: bool) -> None:
        """The client gives up, unless this attempt is over or has what it waits for."""
        sequence = self.alive.get(row)
        if sequence is None or self.tries[row] != tries or (first_token and sequence.produced):
            return
        if sequence in self.held:
            self.held.remove(sequence)
        else:
            (replica,) = (r for r in self.replicas if sequence in r.alive)
            replica.give_up(sequence)
        self.came_to_nothing(row, "timed_out", "client gave up")
        self.give_out()

    def came_to_nothing(self, row: int, status: str, reason: str) -> None:
        """An attempt was refused, given up or lost: the client tries again, or the row ends."""
        del self.alive[row]
        k = self.tries[row]
        if k > self.client.retries:
            self.ends_unserved(row, status, reason)
            return
        u = float(np.random.default_rng([self.fleet.seed, row, k]).random())
        pause_s = self.client.backoff_s * self.client.backoff_factor ** (k - 1)
        pause_s *= 1 + self.client.jitter * (2 * u - 1)
        self.at(self.now + pause_s, Kind.RETRY, self.try_to_send, row)

    def ends_unserved(self, row: int, status: str, reason: str) -> None:
        """A row ends, and its session with it."""
        self.alive.pop(row, None)
        self.out.status[row], self.out.reason[row] = status, reason
        for other in self.followers(row):
            self.out.status[other], self.out.reason[other] = "rejected", "its session ended"
            self.out.arrival_s[other] = self.now
        self.session_over()

    def schedule_outages(self) -> None:
        for outage in self.fleet.outages:
            self.at(outage.at_s, Kind.REPLICA_CHANGES, self.goes_down, outage)

    def goes_down(self, outage: Outage) -> None:
        replica = self.replicas[outage.replica]
        was_loading = self.loading.pop(outage.replica, None) is not None
        if not replica.up and not was_loading:
            return  # gone for good
        lost = [] if was_loading else replica.fail()
        if was_loading:
            self.returns -= 1  # it dies again, and will not come back at that time
        if outage.up_s is not None:
            self.returns += 1
            self.loading[outage.replica] = outage
            self.at(outage.up_s, Kind.REPLICA_CHANGES, self.comes_up, outage)
        for sequence in lost:
            if outage.resend:
                self.send(sequence.row)
            else:
                self.came_to_nothing(sequence.row, "failed", "lost with its replica")
        if self.nobody_left():
            for sequence in self.held:
                self.ends_unserved(sequence.row, "failed", "no replica left")
            self.held = []

    def comes_up(self, outage: Outage) -> None:
        if self.loading.get(outage.replica) is not outage:
            return
        del self.loading[outage.replica]
        self.returns -= 1
        self.replicas[outage.replica].up = True
        self.give_out()


def why_never(sequence: Sequence, rules: Any) -> str | None:
    """Say why a request can never be served, if so."""

    def blocks(tokens: int) -> int:
        return -(-tokens // rules.block_tokens)

    prompt, output = sequence.prompt, sequence.output
    if prompt + output > rules.max_model_len:
        return "too long"
    if max(blocks(prompt + output - 1 + rules.slots), blocks(prompt)) > rules.n_blocks:
        return "larger than the KV pool"
    return None


def simulate(
    requests: Any,
    paths: Any,
    rules: Any,
    cost: Cost,
    fleet: Fleet | None = None,
    drafted_per_step: int = 0,
) -> Result:
    """Serve all requests and return what happened to each, and in each step.

    `drafted_per_step` counts where `paths.drafted` is None. Without a fleet there is one replica.
    """
    return Loop(requests, paths, rules, cost, fleet or Fleet(), drafted_per_step).run()
