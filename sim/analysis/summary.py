"""The measured part of one result row: every metric of one strategy at one point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from sim.analysis import metrics, steady
from sim.analysis.lifetimes import arrival_span
from sim.analysis.metrics import Summary, Window
from sim.histogram import LogHistogram
from sim.tables import Columns

NO_LATENCY = dict.fromkeys(Summary._fields)


def measure(
    runs: Sequence[Columns],
    itl: LogHistogram,
    *,
    gpus: int,
    open_loop: bool,
    warmup: Literal["auto"] | float = "auto",
    slo: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure the replications of one strategy at one point.

    Parameters
    ----------
    runs : sequence of Columns
        Request tables, one a replication.
    itl : LogHistogram
        Gaps between stream chunks of all replications.
    gpus : int
        GPUs that serve the traffic.
    open_loop : bool
        Arrivals do not wait for completions; only then can the run be saturated.
    warmup : "auto" or float
        As in ``steady.without_warmup``.
    slo : mapping, optional
        Bounds such as ``{"ttft_s": {"p95": 0.5}, "attainment": 0.99}``; no bounds, no ``slo``.

    Returns
    -------
    dict
        JSON-ready keys of a result row, from ``ttft_s`` to ``saturated``, and ``slo``. Latencies
        pool the requests of all replications after warm-up and are None when saturated; rates
        average over replications; counts and preemptions add up, warm-up included.
    """
    kept = [steady.without_warmup(run, warmup) for run in runs]
    windows = [steady.window(part) for part in kept]
    if not open_loop:
        windows = [steady.whole_run(run) for run in runs]
    spans = [arrival_span(run) for run in runs]
    pooled, everything = _concatenate(kept), _concatenate(runs)
    full = open_loop and 2 * sum(steady.saturated(run) for run in runs) >= len(runs)
    tok_per_s = _mean(metrics.tok_per_s, runs, windows)
    row: dict[str, Any] = {
        name: NO_LATENCY if full else metrics.summary(latency(pooled))._asdict()
        for name, latency in metrics.LATENCIES.items()
    }
    row |= {
        "itl_s": NO_LATENCY if full else metrics.histogram_summary(itl)._asdict(),
        "tok_per_s_per_user": None if full else metrics.tok_per_s_per_user(pooled),
        "tok_per_s_per_gpu": None if tok_per_s is None else tok_per_s / gpus,
        "req_per_s": _mean(metrics.req_per_s, runs, windows),
        "offered_req_per_s": _mean(metrics.offered_req_per_s, runs, spans) if open_loop else None,
        "served_req_per_s": _mean(metrics.req_per_s, runs, spans) if open_loop else None,
        "tau": metrics.tau(everything),
        "acceptance_rate": metrics.acceptance_rate(everything),
        "prefix_hit_rate": metrics.prefix_hit_rate(pooled),
        "preemptions": metrics.preemptions(everything),
        **metrics.counts(everything),
        "saturated": full,
        "measured": len(pooled["arrival_s"]),
        "short_run": any(
            steady.unsettled(run) if open_loop else steady.short_run(run) for run in runs
        ),
    }
    return row | {"slo": _slo(row, kept, windows, slo or {})}


def _concatenate(tables: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _mean(
    rate: Callable[[Columns, Window], float | None],
    tables: Sequence[Columns],
    windows: Sequence[Window],
) -> float | None:
    rates = [rate(table, over) for table, over in zip(tables, windows, strict=True)]
    known = [value for value in rates if value is not None]
    return sum(known) / len(known) if known else None


def _slo(
    row: Mapping[str, Any],
    kept: Sequence[Columns],
    windows: Sequence[Window],
    slo: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Every stated quantile must hold, and the share of requests within the loosest of each."""
    stated = {name: value for name, value in slo.items() if isinstance(value, Mapping)}
    if not stated:
        return None
    target = slo["attainment"]
    bounds = {name: max(value.values()) for name, value in stated.items()}
    attainment = metrics.slo_attainment(_concatenate(kept), bounds)
    missed = [
        f"{name[:-2].upper()} {statistic} over {1e3 * bound:g} ms"
        for name, value in stated.items()
        for statistic, bound in value.items()
        if row[name][statistic] is not None and row[name][statistic] > bound
    ]
    return {
        "attainment": attainment,
        "goodput_req_s": _mean(
            lambda table, over: metrics.goodput_req_s(table, bounds, over), kept, windows
        ),
        "target": target,
        "missed": missed,
        "met": not row["saturated"] and not missed and (attainment or 0.0) >= target,
    }
