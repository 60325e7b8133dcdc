"""Metrics of each traffic stream of one row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sim.analysis import metrics
from sim.analysis.metrics import NO_LATENCY, select
from sim.analysis.slo import Objective, judge
from sim.tables import Columns

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")


class Kind(NamedTuple):
    """One kind of traffic: its name, and the SLO class it is in, if any."""

    name: str
    slo_class: str | None = None


def by_stream(
    everything: Columns,
    kept: Columns,
    kinds: Sequence[Kind],
    asked: Sequence[Objective],
    saturated: bool,
) -> list[dict[str, Any]]:
    """Counts, latencies and service level of each stream, in their order.

    Parameters
    ----------
    everything, kept : Columns
        The requests of all replications, and those measured. Counts are of the first, latencies
        and service level of the second.
    kinds : sequence of Kind
        The streams, by their code.
    asked : sequence of Objective
    saturated : bool
        Latencies are None.

    Returns
    -------
    list of dict
        Empty where there is one stream only: the row itself tells.
    """
    if len(kinds) < 2:
        return []
    objective = {code: part for part in asked for code in part.streams}
    parts = zip(_split(everything, len(kinds)), _split(kept, len(kinds)), strict=True)
    return [
        {
            "stream": kind.name,
            "slo_class": kind.slo_class,
            "requests": len(whole["status"]),
            "finished": int(metrics.finished(whole).sum()),
            **{
                name: NO_LATENCY
                if saturated
                else metrics.summary(metrics.LATENCIES[name](part))._asdict()
                for name in LATENCIES
            },
            "slo": judge(objective[code], part, saturated) if code in objective else None,
        }
        for code, (kind, (whole, part)) in enumerate(zip(kinds, parts, strict=True))
    ]


def _split(columns: Columns, streams: int) -> list[Columns]:
    """The requests of each stream; one sort, so that a thousand streams cost little more."""
    order = np.argsort(columns["stream"], kind="stable")
    edges = np.searchsorted(columns["stream"][order], np.arange(streams + 1))
    return [select(columns, order[start:end]) for start, end in pairwise(edges)]
