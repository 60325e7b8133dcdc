"""What the request tables of a live server have in common, whoever sent the requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from calibration.live.server.per_request import Speculated
from sim.analysis.metrics import histogram_summary
from sim.histogram import LogHistogram
from sim.tables import Columns

STREAM = "live"
LATE_S = 0.02
"""A request sent more than this after its time is late; assumed, two ticks of a busy client."""
REJECTIONS = (429, 503)
"""HTTP: too many requests, and service unavailable."""
SPECULATION = ("n_steps", "drafted", "accepted")
NOT_TOLD = ("replica", "preemptions", "discarded_tokens")
"""Columns of the request table that no server says: 0."""
COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens")


def columns(known: Columns, told: Sequence[Speculated | None]) -> Columns:
    """The request table of a stage, every column of shape (requests,).

    Parameters
    ----------
    known : Columns
        At least ``domain``, ``status``, the times and ``COUNTS``; without ``id`` requests are
        numbered from 0, without ``attempts`` each was sent once.
    told : sequence of Speculated or None
        What the server told of the speculation of each.
    """
    n = len(told)
    ids = known.get("id", np.arange(n, dtype=np.int64))
    return {
        "id": ids,
        "session": ids,
        "stream": np.full(n, STREAM, dtype=object),
        "schedule_s": np.full(n, np.nan),
        "attempts": np.ones(n, dtype=np.int64),
        **{
            name: np.array([0 if one is None else getattr(one, name) for one in told], np.int64)
            for name in SPECULATION
        },
        **{name: np.zeros(n, dtype=np.int64) for name in NOT_TOLD},
        **known,
    }


def taken(rows: Sequence[Any], names: Iterable[str], kind: type) -> Columns:
    """Attributes of rows as columns of one type, each of shape (rows,); None is NaN."""
    return {name: np.array([getattr(row, name) for row in rows], dtype=kind) for name in names}


def itl(gaps: LogHistogram) -> dict[str, float | int | None]:
    """Count, mean and quantiles of gaps between chunks [s]."""
    return {"count": gaps.count, **histogram_summary(gaps)._asdict()}
