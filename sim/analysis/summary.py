"""The measured part of one result row: every metric of one strategy at one point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from sim.analysis import metrics, steady
from sim.analysis.lifetimes import arrival_span
from sim.analysis.metrics import NO_LATENCY, Window
from sim.analysis.slo import goodput_req_s, objectives, row_slo
from sim.analysis.streams import Kind, by_domain, by_stream
from sim.analysis.windows import sliding
from sim.histogram import LogHistogram
from sim.tables import Columns

ONE_STREAM = (Kind("all"),)


def measure(
    runs: Sequence[Columns],
    itl: LogHistogram,
    *,
    gpus: int,
    open_loop: bool,
    warmup: Literal["auto"] | float = "auto",
    slo: Mapping[str, Any] | None = None,
    streams: Sequence[Kind] = ONE_STREAM,
    domains: Sequence[str] = (),
    stationary: bool = True,
    window_s: float = 300.0,
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
        Bounds such as ``{"ttft_s": {"p95": 0.5}, "attainment": 0.99}``, and ``classes`` of them;
        no bounds, no ``slo``.
    streams : sequence of Kind
        The traffic streams, by their code in the table.
    domains : sequence of str
        Kinds of text, likewise.
    stationary : bool
        Neither the arrival rate nor what arrives changes with time. Where one does there is no
        steady state: an ``auto`` warm-up drops nothing, no run is short, and
        ``steady.overloaded`` tells whether it is saturated.
    window_s : float
        Length of the sliding windows [s].

    Returns
    -------
    dict
        JSON-ready keys of a result row, from ``ttft_s`` to ``saturated``, and ``slo``,
        ``streams``, ``domains`` and ``windows``. Latencies pool the requests of all replications
        after warm-up and are None when saturated; rates average over replications; counts and
        preemptions add up, warm-up included; windows cover the whole run.
    """
    slo = slo or {}
    if warmup == "auto" and not stationary:
        warmup = 0.0
    kept = [steady.without_warmup(run, warmup) for run in runs]
    measured = steady.window if open_loop else steady.whole_run
    over = [measured(part) for part in (kept if open_loop else runs)]
    pooled, everything = metrics.joined(kept), metrics.joined(runs)
    asked = objectives(slo, [stream.slo_class for stream in streams])
    too_much = steady.saturated if stationary else steady.overloaded
    full = open_loop and 2 * sum(too_much(run) for run in runs) >= len(runs)
    row: dict[str, Any] = {
        name: NO_LATENCY if full else metrics.summary(latency(pooled))._asdict()
        for name, latency in metrics.LATENCIES.items()
    }
    row |= {
        "itl_s": NO_LATENCY if full else metrics.histogram_summary(itl)._asdict(),
        "tok_per_s_per_user": None if full else metrics.tok_per_s_per_user(pooled),
        **_rates(runs, over, gpus, open_loop),
        "tau": metrics.tau(everything),
        "acceptance_rate": metrics.acceptance_rate(everything),
        "prefix_hit_rate": metrics.prefix_hit_rate(pooled),
        "preemptions": metrics.preemptions(everything),
        **metrics.counts(everything),
        "resent": metrics.resent(everything),
        "resent_e2e_s": metrics.resent_e2e_s(everything),
        "saturated": full,
        "warmup": warmup,
        "measured": len(pooled["arrival_s"]),
        "short_run": stationary
        and any(steady.unsettled(run) if open_loop else steady.short_run(run) for run in runs),
    }
    level = None
    if asked:
        goodput = _mean(lambda table, within: goodput_req_s(table, asked, within), kept, over)
        level = {**row_slo(asked, pooled, slo["attainment"], full), "goodput_req_s": goodput}
    return row | {
        "slo": level,
        "streams": by_stream(everything, pooled, streams, asked, full),
        "domains": by_domain(everything, pooled, domains, full),
        "windows": sliding(runs, window_s, asked, full),
    }


def _rates(
    runs: Sequence[Columns], over: Sequence[Window], gpus: int, open_loop: bool
) -> dict[str, float | None]:
    """Throughput over the windows given; offered and served while requests arrived."""
    spans = [arrival_span(run) for run in runs]
    tok_per_s = _mean(metrics.tok_per_s, runs, over)
    return {
        "tok_per_s_per_gpu": None if tok_per_s is None else tok_per_s / gpus,
        "req_per_s": _mean(metrics.req_per_s, runs, over),
        "offered_req_per_s": _mean(metrics.offered_req_per_s, runs, spans) if open_loop else None,
        "served_req_per_s": _mean(metrics.req_per_s, runs, spans) if open_loop else None,
    }


def _mean(
    rate: Callable[[Columns, Window], float | None],
    tables: Sequence[Columns],
    windows: Sequence[Window],
) -> float | None:
    rates = [rate(table, over) for table, over in zip(tables, windows, strict=True)]
    known = [value for value in rates if value is not None]
    return sum(known) / len(known) if known else None
