"""One K for all sequences of a step: by goodput, or by the number of running sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models.strategies.dynamic_k import Goodput, Schedule
from sim.engine.control import Outcome
from sim.engine.mode_log import ModeLog, Switch
from sim.engine.path import Counts

if TYPE_CHECKING:
    from sim.engine.slot_batch import SlotBatch

_EVERYBODY = -1


class _OneK:
    """K of the next step, for every sequence; the modes are K = 0 to the largest."""

    def __init__(self, k: int, log: ModeLog) -> None:
        self._k = self._next = k
        self._log = log
        self.by_slot: list[NDArray[Any]] = []

    @property
    def entering(self) -> int:
        """See `Control.entering`."""
        return self._k

    def enter(self, slot: int) -> None:
        """See `Control.enter`."""

    def choose(self, batch: SlotBatch) -> tuple[Counts, None]:
        """See `Control.choose`."""
        self._next = self._chosen(batch)
        return np.full(batch.n, self._next), None

    def _chosen(self, batch: SlotBatch) -> int:
        raise NotImplementedError

    def _ran(self, reading: float, start_s: float) -> None:
        """The step that began at ``start_s`` ran with the K chosen for it."""
        if self._next != self._k:
            self._log.switch(Switch(start_s, _EVERYBODY, self._k, self._next, reading))
        self._k = self._next


class ByGoodput(_OneK):
    """The K that emits most tokens in the time of its step.

    Draft tokens are accepted with one chance each, taken over the latest tokens: a step reaches
    its accepted tokens and the first refused one. Plain steps tell nothing, so after some of them
    a token is drafted.
    """

    def __init__(self, rule: Goodput, largest: int, log: ModeLog) -> None:
        super().__init__(largest, log)
        self._rule, self._largest = rule, largest
        self._entries: list[tuple[int, int, int]] = []
        self._emitted = self._accepted = self._reached = 0
        self._plain = 0

    def observe(self, batch: SlotBatch, outcome: Outcome, start_s: float, end_s: float) -> None:
        """See `Control.observe`."""
        self._ran(self._chance, start_s)
        self._plain = self._plain + 1 if self._k == 0 else 0
        drafted = outcome.offered > 0
        if drafted.any():
            accepted = outcome.accepted[drafted]
            refused = accepted < outcome.offered[drafted]
            taken = int(accepted.sum())
            self._take_in(taken + accepted.size, taken, taken + int(refused.sum()))

    def _chosen(self, batch: SlotBatch) -> int:
        k = self._best(batch) if self._reached else self._k
        return 1 if k == 0 and self._plain >= self._rule.every_steps else k

    @property
    def _chance(self) -> float:
        return self._accepted / self._reached if self._reached else 0.0

    def _take_in(self, emitted: int, accepted: int, reached: int) -> None:
        self._entries.append((emitted, accepted, reached))
        self._emitted += emitted
        self._accepted += accepted
        self._reached += reached
        while self._emitted - self._entries[0][0] >= self._rule.window_tokens:
            emitted, accepted, reached = self._entries.pop(0)
            self._emitted -= emitted
            self._accepted -= accepted
            self._reached -= reached

    def _best(self, batch: SlotBatch) -> int:
        """The fewest draft tokens of the largest goodput, for the sequences there are."""
        emitted, best, most = 0.0, 0, 0.0
        for k in range(self._largest + 1):
            emitted += self._chance**k
            step_s = batch.priced_s(np.full(batch.n, k))
            if emitted / step_s > most:
                best, most = k, emitted / step_s
        return best


class BySchedule(_OneK):
    """K by the number of running sequences; within the dead band of a bound it stays."""

    def __init__(self, rule: Schedule, log: ModeLog) -> None:
        super().__init__(rule.by_batch[0][1], log)
        self._rule = rule
        self._place = 0

    def _chosen(self, batch: SlotBatch) -> int:
        self._place = self._placed(batch.n)
        return self._rule.by_batch[self._place][1]

    def observe(self, batch: SlotBatch, outcome: Outcome, start_s: float, end_s: float) -> None:
        """See `Control.observe`."""
        self._ran(float(batch.n), start_s)

    def _placed(self, n: int) -> int:
        """Row of the schedule for ``n`` sequences, given the one in force."""
        bounds, band, place = self._rule.by_batch, self._rule.dead_band, self._place
        while place + 1 < len(bounds) and n >= bounds[place + 1][0] + band:
            place += 1
        while place > 0 and n < bounds[place][0] - band:
            place -= 1
        return place
