"""Which mode ran when, what it accepted, and who switched."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.engine.bins import FIRST_WIDTH_S, MOST_BINS
from sim.engine.control import Outcome

MOST_SWITCHES = 100_000
"""Switches kept one by one; all of them are counted."""

FIELDS = ("sequence_s", "steps", "emitted", "accepted", "reached", "offered", "drafted")


class Switch(NamedTuple):
    """A gate that opened or closed, or a K that changed.

    Attributes
    ----------
    at_s : float
        When it took effect: the end of the step that decided it, the start of the next [s].
    owner : int
        Request or stream it holds for; -1: all sequences of the replica.
    mode_from, mode_to : int
    reading : float
        What was read: alpha, acceptance or tau of the window, or running sequences.
    """

    at_s: float
    owner: int
    mode_from: int
    mode_to: int
    reading: float


class ModeLog:
    """Sums by mode over time, in bins that widen as the run gets longer, and switches.

    Attributes
    ----------
    names : tuple of str
        Modes, by index.
    width_s : float
        Width of all bins [s].
    switches : list of Switch
        The first ``MOST_SWITCHES``.
    switched : int
        All of them.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.width_s = names, FIRST_WIDTH_S
        self._sums = np.zeros((MOST_BINS, len(names), len(FIELDS)))
        self.switches: list[Switch] = []
        self.switched = 0

    def add(self, start_s: float, end_s: float, outcome: Outcome) -> None:
        """Count a step of all sequences in the bin it ends in."""
        while end_s >= MOST_BINS * self.width_s:
            self._sums[: MOST_BINS // 2] = self._sums[::2] + self._sums[1::2]
            self._sums[MOST_BINS // 2 :] = 0.0
            self.width_s *= 2
        place = int(end_s / self.width_s)
        mode, most = outcome.mode, len(self.names)
        steps = np.bincount(mode, minlength=most)
        reached = outcome.accepted + (outcome.accepted < outcome.offered)
        counts = (outcome.accepted, reached, outcome.offered, outcome.drafted)
        accepted, *others = (np.bincount(mode, each, most) for each in counts)
        self._sums[place] += np.stack(
            ((end_s - start_s) * steps, steps, steps + accepted, accepted, *others), 1
        )

    def switch(self, switch: Switch) -> None:
        """Note a switch."""
        self.switched += 1
        if len(self.switches) < MOST_SWITCHES:
            self.switches.append(switch)

    def sums(self) -> NDArray[np.float64]:
        """Sums by bin, mode and field of ``FIELDS``, shape (bins, modes, fields)."""
        used = np.flatnonzero(self._sums[:, :, 1].sum(axis=1))
        return self._sums[: int(used[-1]) + 1 if used.size else 0]
