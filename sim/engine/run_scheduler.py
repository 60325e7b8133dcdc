"""Scheduling where branches need adjacent KV blocks, and how many free ones are of no use."""

from __future__ import annotations

import random

from sim.engine.batch import Batch
from sim.engine.kv_runs import RunBlocks
from sim.engine.rules import Rules
from sim.engine.scheduler import Prefill, Scheduler
from sim.engine.totals import StepTotals


class RunScheduler(Scheduler):
    """A scheduler whose requests also wait for a stretch of free blocks.

    Parameters
    ----------
    rules : Rules
    batch : Batch
    totals : StepTotals
        Its ``unusable_s`` is kept.
    draws : random.Random
        Chooses which blocks a sequence gives back.
    """

    blocks: RunBlocks

    def __init__(
        self, rules: Rules, batch: Batch, totals: StepTotals, draws: random.Random
    ) -> None:
        blocks = RunBlocks(rules, draws)
        super().__init__(rules, batch, blocks)
        self._addresses, self._totals = blocks.pool, totals
        self._since_s, self._unusable = 0.0, 0

    def schedule(self, known_s: float) -> tuple[bool, Prefill | None]:
        """See `Scheduler.schedule`."""
        self._totals.unusable_s += self._unusable * (known_s - self._since_s)
        plan = super().schedule(known_s)
        # Nobody waits for a run while nothing runs: whatever is left of late ones goes next.
        self._unusable = self._addresses.unusable(self.rules.kv.run) if self.running else 0
        self._since_s = known_s
        return plan


def scheduler_of(rules: Rules, batch: Batch, totals: StepTotals, draws: random.Random) -> Scheduler:
    """Scheduler of one replica, by how its blocks must lie."""
    return RunScheduler(rules, batch, totals, draws) if rules.kv.run else Scheduler(rules, batch)
