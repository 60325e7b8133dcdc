"""One K for all sequences of a step: by goodput, or by the number of running sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models.mixed_modes import Chunks, Group
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
        self._k, self._log = k, log
        self.by_slot: list[NDArray[Any]] = []

    @property
    def entering(self) -> int:
        """See `Control.entering`."""
        return self._k

    def enter(self, slot: int) -> None:
        """See `Control.enter`."""

    def choose(self, batch: SlotBatch) -> tuple[Counts, None]:
        """See `Control.choose`."""
        return np.full(batch.n, self._k), None

    def _change(self, k: int, reading: float, end_s: float) -> None:
        if k != self._k:
            self._log.switch(Switch(end_s, _EVERYBODY, self._k, k, reading))
        self._k = k


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

    def observe(self, batch: SlotBatch, outcome: Outcome, seconds: float, end_s: float) -> None:
        """See `Control.observe`."""
        self._plain = self._plain + 1 if self._k == 0 else 0
        drafted = outcome.offered > 0
        if drafted.any():
            accepted = outcome.accepted[drafted]
            refused = accepted < outcome.offered[drafted]
            taken = int(accepted.sum())
            self._take_in(taken + accepted.size, taken, taken + int(refused.sum()))
        k = self._best(batch) if self._reached else self._k
        if k == 0 and self._plain >= self._rule.every_steps:
            k = 1
        self._change(k, self._chance, end_s)

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
        n, ctx, time = batch.n, batch.ctx, batch.modes.time
        emitted, best, most = 0.0, 0, 0.0
        for k in range(self._largest + 1):
            emitted += self._chance**k
            width = k + 1
            step_s = time.step_s([Group(k, n, ctx, n * width, ctx * width)], Chunks())
            if emitted / step_s > most:
                best, most = k, emitted / step_s
        return best


class BySchedule(_OneK):
    """K by the number of running sequences; within the dead band of a bound it stays."""

    def __init__(self, rule: Schedule, log: ModeLog) -> None:
        super().__init__(rule.by_batch[0][1], log)
        self._rule = rule
        self._place = 0

    def choose(self, batch: SlotBatch) -> tuple[Counts, None]:
        """See `Control.choose`."""
        self._place = self._placed(batch.n)
        return np.full(batch.n, self._rule.by_batch[self._place][1]), None

    def observe(self, batch: SlotBatch, outcome: Outcome, seconds: float, end_s: float) -> None:
        """See `Control.observe`."""
        self._change(self._rule.by_batch[self._place][1], float(batch.n), end_s)

    def _placed(self, n: int) -> int:
        """Row of the schedule for ``n`` sequences, given the one in force."""
        bounds, band, place = self._rule.by_batch, self._rule.dead_band, self._place
        while place + 1 < len(bounds) and n >= bounds[place + 1][0] + band:
            place += 1
        while place > 0 and n < bounds[place][0] - band:
            place -= 1
        return place
