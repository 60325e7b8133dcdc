"""Rows of the step table, on their way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.engine.scheduler import Prefill

if TYPE_CHECKING:
    from sim.engine.replica import Replica


CHUNK_STEPS = 65_536
"""Step rows handed over at a time."""

StepRow = tuple[int, float, float, float, float, float, int, int, int, int, int, int]
OnSteps = Callable[[list[StepRow]], None]


class StepRows:
    """Step rows on their way out, so that a long run does not hold them all.

    Parameters
    ----------
    on_steps : callable
        Gets full chunks of rows in the order of ``sim.tables.STEPS``, and what is left at the end.
    """

    def __init__(self, on_steps: OnSteps) -> None:
        self._on_steps = on_steps
        self._rows: list[StepRow] = []

    def append(self, row: StepRow) -> None:
        """Take the row of one step."""
        self._rows.append(row)
        if len(self._rows) == CHUNK_STEPS:
            self.flush()

    def flush(self) -> None:
        """Hand over the rows not yet handed over."""
        rows, self._rows = self._rows, []
        if rows:
            self._on_steps(rows)


def step_row(
    replica: Replica, n: int, prefill: Prefill | None, start: float, end: float, used: int
) -> StepRow:
    """What a replica does from ``start`` to ``end``, before it is booked."""
    batch = replica.batch
    tokens = batch.query_tokens if n else 0
    draft, host = (replica.scale * part for part in batch.parts_s(replica.cost, n, prefill))
    prefill = prefill or Prefill()
    return (
        replica.number,
        start,
        end - start,
        draft,
        end - start - draft - host,
        host,
        n,
        prefill.tokens,
        tokens,
        (batch.emitted if n else 0) + len(prefill.finishing),
        used,
        len(replica.scheduler.waiting),
    )
