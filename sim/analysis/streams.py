"""Metrics of each traffic stream of one row, and of each kind of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Counts, acceptance, latencies and service level of each stream, in their order.

    Parameters
    ----------
    everything, kept : Columns
        The requests of all replications, and those measured. Counts and acceptance are of the
        first, latencies and service level of the second.
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
    parts = _parts(everything, kept, "stream", len(kinds))
    return [
        {
            "stream": kind.name,
            "slo_class": kind.slo_class,
            **_told(whole, part, saturated),
            "slo": judge(objective[code], part, saturated) if code in objective else None,
        }
        for code, (kind, (whole, part)) in enumerate(zip(kinds, parts, strict=True))
    ]


def by_domain(
    everything: Columns, kept: Columns, domains: Sequence[str], saturated: bool
) -> list[dict[str, Any]]:
    """Counts, acceptance and latencies of each kind of text, as ``by_stream`` has them.

    Empty where there is one domain only.
    """
    if len(domains) < 2:
        return []
    parts = _parts(everything, kept, "domain", len(domains))
    return [
        {"domain": domain, **_told(whole, part, saturated)}
        for domain, (whole, part) in zip(domains, parts, strict=True)
    ]


def _told(whole: Columns, part: Columns, saturated: bool) -> dict[str, Any]:
    return {
        "requests": len(whole["status"]),
        "finished": int(metrics.finished(whole).sum()),
        "tau": metrics.tau(whole),
        "acceptance_rate": metrics.acceptance_rate(whole),
        **{
            name: NO_LATENCY
            if saturated
            else metrics.summary(metrics.LATENCIES[name](part))._asdict()
            for name in LATENCIES
        },
    }


def _parts(
    everything: Columns, kept: Columns, key: str, codes: int
) -> Iterator[tuple[Columns, Columns]]:
    return zip(_split(everything, key, codes), _split(kept, key, codes), strict=True)


def _split(columns: Columns, key: str, codes: int) -> list[Columns]:
    """The requests of each code; one sort, so that a thousand streams cost little more."""
    order = np.argsort(columns[key], kind="stable")
    edges = np.searchsorted(columns[key][order], np.arange(codes + 1))
    return [select(columns, order[start:end]) for start, end in pairwise(edges)]
