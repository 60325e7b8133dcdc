"""No choice: every sequence stays in one mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.control import Outcome
from sim.engine.path import Counts

if TYPE_CHECKING:
    from sim.engine.slot_batch import SlotBatch


class Stay:
    """All sequences in ``mode``, always."""

    def __init__(self, mode: int) -> None:
        self.by_slot: list[NDArray[Any]] = []
        self.entering = self._mode = mode

    def enter(self, slot: int) -> None:
        """See `Control.enter`."""

    def choose(self, batch: SlotBatch) -> tuple[Counts, None]:
        """See `Control.choose`."""
        return np.full(batch.n, self._mode), None

    def observe(self, batch: SlotBatch, outcome: Outcome, start_s: float, end_s: float) -> None:
        """See `Control.observe`."""
