"""Why a request is rejected, or never served: the words in results, and what decides on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

TOO_LONG = "longer than max_model_len"
TOO_LARGE = "larger than the whole KV pool"
QUEUE_FULL = "queue full"
NO_REPLICA = "no replica left"
SESSION_ENDED = "its session ended"
SESSION_GREW = "its session outgrew the context"

NEVER_FITS = (TOO_LONG, TOO_LARGE)
"""No room would help."""

LOAD = (QUEUE_FULL, SESSION_ENDED)
"""Rejected for want of room."""


def counted(refusals: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Rejected requests by reason, over all replications."""
    counts: Counter[str] = Counter()
    for each in refusals:
        counts.update(each)
    return dict(sorted(counts.items()))
