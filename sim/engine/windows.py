"""Acceptance over the latest tokens, of many groups of sequences at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.strategies.adaptive import Measure
from sim.engine.path import Counts

EMITTED, ACCEPTED, REACHED, OFFERED, STEPS = FIELDS = range(5)


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
    sums : int64, shape (groups, 5)
        Tokens emitted, draft tokens accepted, draft tokens reached (accepted, or the first
        refused), levels offered, and steps of sequences.
    """

    def __init__(self, groups: int, window_tokens: int, longest: int | None = None) -> None:
        self._tokens = window_tokens
        # Every entry emits a token, and one more stands until the oldest is dropped.
        self._span = min(window_tokens, longest or window_tokens) + 1
        self._ring = np.zeros((groups, self._span, len(FIELDS)), dtype=np.int64)
        self._first = np.zeros(groups, dtype=np.int64)
        self._count = np.zeros(groups, dtype=np.int64)
        self.sums = np.zeros((groups, len(FIELDS)), dtype=np.int64)

    @property
    def by_group(self) -> list[NDArray[np.int64]]:
        """Arrays whose first axis is the group."""
        return [self._ring, self._first, self._count, self.sums]

    def add(self, groups: Counts, entries: Counts) -> None:
        """Take in one entry each of some different groups, and drop the oldest.

        Parameters
        ----------
        groups : int64, shape (n,)
        entries : int64, shape (n, 5)
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

    def read(self, measure: Measure) -> NDArray[np.float64]:
        """What every group reads, shape (groups,); 0 before any step."""
        over, under = _RATIO[measure]
        ratio: NDArray[np.float64] = self.sums[:, over] / np.maximum(self.sums[:, under], 1)
        return ratio


_RATIO: dict[Measure, tuple[int, int]] = {
    "alpha": (ACCEPTED, REACHED),
    "acceptance": (ACCEPTED, OFFERED),
    "tau": (EMITTED, STEPS),
}
