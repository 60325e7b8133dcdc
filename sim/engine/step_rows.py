"""Rows of the step table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.recorder import StepRow
from sim.engine.scheduler import Prefill

if TYPE_CHECKING:
    from sim.engine.replica import Replica


def step_row(
    replica: Replica, n: int, prefill: Prefill | None, start: float, end: float, used: int
) -> StepRow:
    """What a replica does from ``start`` to ``end``, before it is booked."""
    batch, cost, scale = replica.batch, replica.cost, replica.scale
    tokens = batch.query_tokens if n else 0
    ctx, query_ctx = (batch.ctx, batch.query_ctx) if n else (0, 0)
    prefill = prefill or Prefill()
    sequences = n + len(prefill.finishing)
    draft = scale * cost.draft_s(
        sequences, tokens + prefill.tokens, ctx + prefill.ctx, query_ctx, prefill.pairs
    )
    host = scale * cost.host_s(sequences)
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
