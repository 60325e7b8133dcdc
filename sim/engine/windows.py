"""Acceptance over the latest tokens, of many groups of sequences at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.path import Counts

EMITTED, ACCEPTED, OFFERED, STEPS = range(4)


class Windows:
    """Sums over the fewest latest entries of each group that emitted ``window_tokens``.

    An entry is what the sequences of a group did in one step.

    Parameters
    ----------
    groups : int
    window_tokens : int
        Tokens a full window holds.
    longest : int, optional
        Most entries a group can ever have.

    Attributes
    ----------
    sums : int64, shape (groups, 4)
        Tokens emitted, draft tokens accepted, levels offered, and steps of sequences.
    """

    def __init__(self, groups: int, window_tokens: int, longest: int | None = None) -> None:
        self._tokens = window_tokens
        # Every entry emits a token, and one more stands until the oldest is dropped.
        self._span = min(window_tokens, longest or window_tokens) + 1
        self._ring = np.zeros((groups, self._span, 4), dtype=np.int64)
        self._first = np.zeros(groups, dtype=np.int64)
        self._count = np.zeros(groups, dtype=np.int64)
        self.sums = np.zeros((groups, 4), dtype=np.int64)

    @property
    def by_group(self) -> list[NDArray[np.int64]]:
        """Arrays whose first axis is the group."""
        return [self._ring, self._first, self._count, self.sums]

    def add(self, groups: Counts, entries: Counts) -> None:
        """Take in one entry each of some different groups, and drop the oldest.

        Parameters
        ----------
        groups : int64, shape (n,)
        entries : int64, shape (n, 4)
            In the order of ``sums``; each emitted at least one token.
        """
        place = (self._first[groups] + self._count[groups]) % self._span
        self._ring[groups, place] = entries
        self._count[groups] += 1
        self.sums[groups] += entries
        while groups.size:
            oldest = self._ring[groups, self._first[groups]]
            over = self.sums[groups, EMITTED] - oldest[:, EMITTED] >= self._tokens
            groups, oldest = groups[over], oldest[over]
            self.sums[groups] -= oldest
            self._first[groups] = (self._first[groups] + 1) % self._span
            self._count[groups] -= 1

    def clear(self, groups: Counts) -> None:
        """Forget what some groups did."""
        self._first[groups] = self._count[groups] = 0
        self.sums[groups] = 0

    def full(self) -> NDArray[np.bool_]:
        """Which groups have a whole window, shape (groups,)."""
        whole: NDArray[np.bool_] = self.sums[:, EMITTED] >= self._tokens
        return whole

    def acceptance(self) -> NDArray[np.float64]:
        """Accepted tokens over levels offered, shape (groups,); 0 before any."""
        rate: NDArray[np.float64] = self.sums[:, ACCEPTED] / np.maximum(self.sums[:, OFFERED], 1)
        return rate

    def tau(self) -> NDArray[np.float64]:
        """Tokens a step of a sequence, shape (groups,); 0 before any."""
        tau: NDArray[np.float64] = self.sums[:, EMITTED] / np.maximum(self.sums[:, STEPS], 1)
        return tau
