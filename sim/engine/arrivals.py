"""Where requests come from: an open stream in time, or users who wait for their answers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Protocol

from sim.engine.request import Request
from sim.scenario.workload import Requests


class Arrivals(Protocol):
    """Requests in order of arrival; a replica may run ahead up to the horizon."""

    @property
    def next_s(self) -> float:
        """Time of the next arrival known so far."""
        ...

    @property
    def horizon_s(self) -> float:
        """Time before which no arrival, known or not, can happen."""
        ...

    def pop(self) -> tuple[float, int, Request | str]:
        """Take the next arrival: time, row, request (or why it is rejected)."""
        ...

    def answered(self, now_s: float) -> float | None:
        """A request was finished or rejected at ``now_s``; when that makes its user send again."""
        ...


class OpenArrivals:
    """Arrivals at times fixed in advance."""

    def __init__(self, requests: Requests, intake: Iterator[Request | str]) -> None:
        self._times = requests.arrival_s.tolist()
        self._intake = intake
        self._next = 0
        self.next_s: float = self._times[0]
        self.horizon_s: float = self._times[0]

    def pop(self) -> tuple[float, int, Request | str]:
        """Take the next arrival."""
        row, now = self._next, self.next_s
        self._next = row + 1
        more = self._next < len(self._times)
        self.next_s = self.horizon_s = self._times[self._next] if more else math.inf
        return now, row, next(self._intake)

    def answered(self, now_s: float) -> float | None:
        """Nobody waits for an answer."""
        return None


class ClosedArrivals:
    """A fixed number of users, each sending its next request a think time after its answer.

    Rows of the workload are taken in the order in which requests are sent.
    """

    def __init__(self, requests: Requests, intake: Iterator[Request | str]) -> None:
        assert requests.users is not None
        self._intake = intake
        self._left = len(requests.prompt_tokens)
        self._row = 0
        self._think_s = requests.think_s
        users = min(requests.users, self._left)
        self._sends = [(float(t), user) for user, t in enumerate(requests.arrival_s[:users])]
        heapq.heapify(self._sends)
        self._serial = users
        self.horizon_s = -math.inf
        """Never ahead: an answer anywhere may make a user send anywhere."""

    @property
    def next_s(self) -> float:
        """Time of the next request already due."""
        return self._sends[0][0] if self._sends and self._left else math.inf

    def pop(self) -> tuple[float, int, Request | str]:
        """Take the next arrival."""
        now, _ = heapq.heappop(self._sends)
        row = self._row
        self._row, self._left = row + 1, self._left - 1
        return now, row, next(self._intake)

    def answered(self, now_s: float) -> float | None:
        """Its user sends again after thinking, while rows are left."""
        if not self._left:
            return None
        self._serial += 1
        heapq.heappush(self._sends, (now_s + self._think_s, self._serial))
        return now_s + self._think_s


def make_arrivals(requests: Requests, intake: Iterator[Request | str]) -> Arrivals:
    """Open or closed arrivals, as the workload asks."""
    if requests.users is None:
        return OpenArrivals(requests, intake)
    return ClosedArrivals(requests, intake)
