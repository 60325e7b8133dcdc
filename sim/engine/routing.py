"""Which replica gets the next request, and how fresh the signal is that decides it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol

from sim.engine.fleet import Fleet
from sim.engine.replica import Replica
from sim.engine.request import Request

AFFINITY_BOUND = 1.25
"""A replica is passed over where its load would exceed this many times the mean.

Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads", arXiv 1608.01350.
"""


class Choice(Protocol):
    """A routing policy."""

    def choose(self, request: Request, up: Sequence[Replica], now_s: float) -> Replica | None:
        """Replica for a request among those that are up; None: nobody can take it yet."""
        ...


class Loads:
    """Requests given to each replica and not finished, as the router knows them.

    Parameters
    ----------
    replicas : list of Replica
    refresh_s : float
        Age at which they are read anew; 0: exact at every choice [s].
    """

    def __init__(self, replicas: list[Replica], refresh_s: float) -> None:
        self._replicas, self._refresh_s = replicas, refresh_s
        self._known: list[int] = []
        self._stale_s = -math.inf if refresh_s else math.inf
        self.of: Callable[[Replica], int] = self._last if refresh_s else attrgetter("outstanding")
        """Load of a replica, as last read."""

    def read(self, now_s: float) -> None:
        """Look at the replicas, if the last look is too long ago."""
        if now_s >= self._stale_s:
            self._known = [replica.outstanding for replica in self._replicas]
            self._stale_s = now_s + self._refresh_s

    def _last(self, replica: Replica) -> int:
        return self._known[replica.number]

    def least(self, up: Sequence[Replica]) -> Replica:
        """The replica with the fewest, ties to the lowest number."""
        return min(up, key=self.of) if len(up) > 1 else up[0]


class RoundRobin:
    """Replicas in turn."""

    def __init__(self) -> None:
        self._turn = -1

    def choose(self, request: Request, up: Sequence[Replica], now_s: float) -> Replica:
        """The next one."""
        self._turn += 1
        return up[self._turn % len(up)]


class LeastOutstanding:
    """The replica with the fewest requests."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads

    def choose(self, request: Request, up: Sequence[Replica], now_s: float) -> Replica:
        """The least loaded."""
        self._loads.read(now_s)
        return self._loads.least(up)


class PowerOfTwo:
    """The less loaded of two drawn at random."""

    def __init__(self, loads: Loads, seed: int) -> None:
        self._loads, self._random = loads, random.Random(seed)

    def choose(self, request: Request, up: Sequence[Replica], now_s: float) -> Replica:
        """The less loaded one; the first drawn where they are equal."""
        self._loads.read(now_s)
        if len(up) == 1:
            return up[0]
        return min((up[i] for i in self._random.sample(range(len(up)), 2)), key=self._loads.of)


class PrefixAffinity:
    """Where the longest known prefix was sent last, unless that replica is overloaded."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._home: dict[int, Replica] = {}

    def choose(self, request: Request, up: Sequence[Replica], now_s: float) -> Replica:
        """Its home if that has room, else the least loaded, which becomes its home."""
        self._loads.read(now_s)
        homes = (self._home.get(node.key) for node in reversed(request.nodes))
        chosen = next((home for home in homes if home is not None and home.up), None)
        if chosen is None or self._loads.of(chosen) >= self._room(up):
            chosen = self._loads.least(up)
        for node in request.nodes:
            self._home[node.key] = chosen
        if request.keeps is not None:
            self._home[request.keeps.key] = chosen
        return chosen

    def _room(self, up: Sequence[Replica]) -> int:
        total = sum(map(self._loads.of, up))
        return math.ceil(AFFINITY_BOUND * (total + 1) / len(up))


class SharedQueue:
    """Replicas take from one queue as soon as they have a place."""

    def __init__(self, places: int) -> None:
        self._places = places

    def choose(self, request: Request, up: Sequence[Replica], now_s: float) -> Replica | None:
        """The emptiest replica with a place left."""
        free = [replica for replica in up if replica.outstanding < self._places]
        return min(free, key=lambda replica: replica.outstanding, default=None)


def make_choice(fleet: Fleet, replicas: list[Replica], places: int, seed: int) -> Choice:
    """The policy a fleet names.

    Parameters
    ----------
    fleet : Fleet
    replicas : list of Replica
    places : int
        Most sequences in the batch of a replica.
    seed : int
        For what is drawn at random.
    """
    if fleet.router == "shared_queue":
        return SharedQueue(places)
    loads = Loads(replicas, fleet.refresh_s)
    if fleet.router == "least_outstanding":
        return LeastOutstanding(loads)
    if fleet.router == "power_of_two":
        return PowerOfTwo(loads, seed)
    if fleet.router == "prefix_affinity":
        return PrefixAffinity(loads)
    return RoundRobin()
