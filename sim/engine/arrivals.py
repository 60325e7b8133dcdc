"""When requests are sent: at times fixed in advance, or in answer to what came back."""

from __future__ import annotations

import heapq
import math

import numpy as np

from sim.scenario.requests import Requests


class Arrivals:
    """Rows of a workload in the order in which they are sent.

    A session's later turns follow the answers to the turns before. In an open loop sessions start
    at their own times; in a closed loop each of a fixed number of users takes the next session a
    think time after the end of the last.

    Attributes
    ----------
    next_s : float
        Time of the next request known so far [s]; infinite where there is none.
    waits : bool
        Whether an answer can make somebody send: times not yet known may then come before
        ``next_s``.
    """

    def __init__(self, requests: Requests) -> None:
        # Views whose items are Python numbers: as lists they would take several times the memory.
        self._turns, self._think_s = requests.turn.data, requests.think_s.data
        self._closed = requests.users is not None
        (heads,) = np.nonzero(requests.turn == 0)
        known = heads[: requests.users] if self._closed else heads
        self._heads, self._times = heads.data, requests.arrival_s[known].data
        self._promised = len(known)
        self._begun = self._timed = 0
        self._due: list[tuple[float, int, int | None]] = []
        self._serial = 0
        self.waits = self._closed or len(heads) < len(self._turns)
        self.next_s = 0.0
        self._look()

    def _look(self) -> None:
        fixed = self._times[self._timed] if self._timed < len(self._times) else math.inf
        self.next_s = min(fixed, self._due[0][0]) if self._due else fixed

    def pop(self) -> tuple[float, int]:
        """Take the next request: its time and row."""
        now = self.next_s
        if not self._due and not self._closed:
            row = self._heads[self._timed]
            self._timed += 1
            more = self._timed < len(self._times)
            self.next_s = self._times[self._timed] if more else math.inf
            self._begun += 1
            return now, row
        return now, self._pop_first(now)

    def _pop_first(self, now: float) -> int:
        """Row of whatever is due first."""
        row = None
        if self._timed < len(self._times) and self._times[self._timed] == now:
            self._timed += 1
        else:
            row = heapq.heappop(self._due)[2]
        if row is None:
            row = self._heads[self._begun]
            self._begun += 1
        self._look()
        return row

    def answered(self, row: int, now_s: float) -> float | None:
        """A request came back, served or not; when somebody sends in answer to it, if so [s].

        Whoever sends first takes the next session, so which one it is stays open until then.
        """
        follower: int | None = row + 1
        if row + 1 < len(self._turns) and self._turns[row + 1]:
            think_s = self._think_s[row + 1]
        elif self._closed and self._promised < len(self._heads):
            follower, think_s = None, self._think_s[self._heads[self._promised]]
            self._promised += 1
        else:
            return None
        self._serial += 1
        heapq.heappush(self._due, (now_s + think_s, self._serial, follower))
        self._look()
        return now_s + think_s

    def rest_of_session(self, row: int) -> range:
        """Rows that would follow in the session of ``row``."""
        last = row + 1
        while last < len(self._turns) and self._turns[last]:
            last += 1
        return range(row + 1, last)
