"""Measures of a simulated run: what clients would see, and what the scheduler did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.audit.registry import register
from sim.audit.view import Look, Measured
from sim.band import Z

SATURATED = "saturated: more arrives than is served, so no latency is promised"


def _banded(value: float | None, band: Mapping[str, Any] | None, why: str | None) -> Measured:
    if value is None:
        return Measured(None, why=why or "no request was measured")
    if not band:
        return Measured(value)
    return Measured(value, band["lo"], band["hi"], band["basis"])


def _why(look: Look) -> str | None:
    return SATURATED if look.row["saturated"] else None


def _latency(look: Look, name: str, statistic: str) -> Measured:
    """A latency; a percentile moves with the mean, whose band is known."""
    row = look.row
    value, mean, band = row[name][statistic], row[name]["mean"], row["band"].get(name)
    if band and value is not None and mean:
        ends = {end: band[end] and value * band[end] / mean for end in ("lo", "hi")}
        band = {**ends, "basis": band["basis"]}
    return _banded(value, band, _why(look))


@register("x", simulated=True)
def speedup(look: Look) -> Measured:
    """Time per token of plain decoding over the strategy's, at the same load."""
    return _banded(look.row["speedup"], look.row["band"].get("speedup"), _why(look))


@register("%", simulated=True)
def latency_change(look: Look) -> Measured:
    """Time per token beyond that of plain decoding, as a share of it; below 0 it is faster."""
    gain = speedup(look)
    if not gain.value:
        return gain
    lo, hi = (None if end is None else 1 / end - 1 for end in (gain.hi, gain.lo))
    return Measured(1 / gain.value - 1, lo, hi, gain.basis)


@register("tok/s", simulated=True)
def tok_per_s_per_user(look: Look) -> Measured:
    """Mean rate at which the tokens of a request stream in after the first one."""
    value, tpot = look.row["tok_per_s_per_user"], _latency(look, "tpot_s", "mean")
    if value is None or tpot.value is None or tpot.basis is None:
        return _banded(value, None, _why(look))
    lo, hi = (None if end is None else value * tpot.value / end for end in (tpot.hi, tpot.lo))
    return Measured(value, lo, hi, tpot.basis)


@register("tok/s", simulated=True)
def tok_per_s(look: Look) -> Measured:
    """Output tokens a second of all GPUs together."""
    gpus, band = look.view.deployment.gpus, look.row["band"].get("tok_per_s_per_gpu")
    each = look.row["tok_per_s_per_gpu"]
    if band:
        ends = {end: band[end] and gpus * band[end] for end in ("lo", "hi")}
        band = {**ends, "basis": band["basis"]}
    return _banded(each and gpus * each, band, _why(look))


@register("tokens", simulated=True, by_stream=True)
def tau(look: Look) -> Measured:
    """Mean tokens a decode step emits."""
    value, law = look.row["tau"], look.setup.law
    if value is None or not look.setup.strategy.drafted:
        return _banded(value, None, None)
    # Tokens beyond the first are what the acceptance is uncertain about.
    off = Z * law.uncertainty * value
    return Measured(value, max(value - off, 1.0), value + off, law.basis)


@register("%", simulated=True, by_stream=True)
def accepted_share_of_levels(look: Look) -> Measured:
    """Accepted draft tokens over the most a step can accept: K of a chain, depth of a tree."""
    each, depth = tau(look), look.setup.strategy.depth
    if each.value is None or not depth:
        return Measured(None, why="nothing is drafted")
    lo, hi = (None if end is None else (end - 1) / depth for end in (each.lo, each.hi))
    return Measured((each.value - 1) / depth, lo, hi, each.basis)


@register("%", simulated=True, by_stream=True)
def acceptance_rate(look: Look) -> Measured:
    """Accepted over drafted tokens; every node of a tree is drafted."""
    return _banded(look.row["acceptance_rate"], None, "nothing is drafted")


@register("s", simulated=True, by_stream=True)
def ttft_mean_s(look: Look) -> Measured:
    """Mean time to first token, queue included."""
    return _latency(look, "ttft_s", "mean")


@register("s", simulated=True, by_stream=True)
def ttft_p95_s(look: Look) -> Measured:
    """95th percentile of the time to first token."""
    return _latency(look, "ttft_s", "p95")


@register("s", simulated=True, by_stream=True)
def tpot_mean_s(look: Look) -> Measured:
    """Mean time per output token after the first."""
    return _latency(look, "tpot_s", "mean")


@register("s", simulated=True, by_stream=True)
def tpot_p95_s(look: Look) -> Measured:
    """95th percentile of the time per output token after the first."""
    return _latency(look, "tpot_s", "p95")


@register("s", simulated=True, by_stream=True)
def e2e_mean_s(look: Look) -> Measured:
    """Mean time from sending a request to its last token."""
    return _latency(look, "e2e_s", "mean")


@register("s", simulated=True)
def queue_p95_s(look: Look) -> Measured:
    """95th percentile of the time a request waits before its first step."""
    return _banded(look.row["queue_s"]["p95"], None, _why(look))


@register("number", simulated=True)
def preemptions(look: Look) -> Measured:
    """How often a request was moved back from running to waiting."""
    return Measured(float(look.row["preemptions"]))


@register("%", simulated=True)
def kv_use_peak(look: Look) -> Measured:
    """KV blocks in use at the peak, of all there are."""
    return Measured(look.row["kv_use_peak"])


@register("%", simulated=True, by_stream=True)
def wasted_share(look: Look) -> Measured:
    """Drafted tokens that were not accepted, of all drafted."""
    rate = look.row["acceptance_rate"]
    return Measured(None if rate is None else 1 - rate, why="nothing is drafted")


@register("sequences", simulated=True)
def batch_peak(look: Look) -> Measured:
    """Most sequences one replica decoded at once."""
    return Measured(float(look.row["batch_peak"]))


@register("%", simulated=True)
def kv_unusable(look: Look) -> Measured:
    """Free KV blocks in stretches too short for the branches of a tree, of all blocks."""
    return Measured(look.row["kv_unusable"], why="no layout needs adjacent blocks")
