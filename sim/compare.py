"""How one strategy stands against plain decoding: speedup, break-even tau, bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sim.band import Scale, gain_band, latency_band
from sim.engine.recorder import Recorder
from sim.setup import Setup

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")

Row = Mapping[str, Any]


class Operating(NamedTuple):
    """Where a strategy ran on average: sequences decoding, context each, query tokens each."""

    n: float
    context: float
    width: float

    @property
    def query_tokens(self) -> float:
        """Query tokens a decode step."""
        return self.n * self.width


def operating_point(recorders: Sequence[Recorder], setup: Setup) -> Operating:
    """Time-weighted means over decode steps; one sequence where nothing was decoded."""
    totals = [totals for recorder in recorders for totals in recorder.totals]
    decode_s, n_s = sum(t.decode_s for t in totals), sum(t.n_s for t in totals)
    if not decode_s:
        return Operating(1.0, 1.0, setup.rules.width)
    ctx_s, width_s = sum(t.ctx_s for t in totals), sum(t.width_s for t in totals)
    width = width_s / n_s if width_s else setup.rules.width
    return Operating(n_s / decode_s, ctx_s / n_s, width)


def speedup(row: Row, baseline: Row, open_loop: bool) -> float | None:
    """Time per token of plain decoding over the strategy's, at the same load.

    Open loop: ratio of mean TPOT at equal rate. Closed loop: ratio of tokens a second at equal
    users. None for the baseline itself, and where either saturates.
    """
    if row is baseline or row["saturated"] or baseline["saturated"]:
        return None
    if open_loop:
        mine, plain = row["tpot_s"]["mean"], baseline["tpot_s"]["mean"]
        return plain / mine if mine and plain else None
    mine, plain = row["tok_per_s_per_gpu"], baseline["tok_per_s_per_gpu"]
    return mine / plain if mine and plain else None


def break_even_tau(setup: Setup, width: float, baseline: Setup, at: Operating) -> float | None:
    """Value of tau at which a strategy only equals plain decoding; None for plain decoding.

    At that tau both run the same batch, and prefill costs both the same time a token, so it is
    the ratio of their decode steps at the baseline's mean batch and context.

    Parameters
    ----------
    setup : Setup
    width : float
        Mean query tokens a sequence of the strategy.
    baseline : Setup
    at : Operating
        Where the baseline ran.
    """
    if not setup.strategy.drafted:
        return None
    n = max(1, min(round(at.n), setup.rules.max_num_seqs))
    ctx = n * at.context
    mine = setup.step_time.mixed(n, ctx, round(n * width), ctx * width)
    return mine / baseline.step_time.mixed(n, ctx, n, ctx)


class Ends(NamedTuple):
    """The first replication again: at the predicted step time, and at both ends of its band."""

    middle: Row
    fast: Row
    slow: Row


def bands(row: Row, baseline: Row, ends: Ends, scale: Scale, open_loop: bool) -> dict[str, Any]:
    """Bands of latencies, rate and speedup of one row; empty when it is saturated.

    The speedup's band leaves the baseline where it is: kernel errors common to both cancel, and
    the residuals of speculation were scored on speedups.
    """
    if row["saturated"]:
        return {}
    found: dict[str, dict[str, Any] | None] = {}
    for name in LATENCIES:
        means = [end[name]["mean"] for end in (row, *ends)]
        found[name] = latency_band(*_moved(*means), scale)
    rates = [end["tok_per_s_per_gpu"] for end in (row, *ends)]
    found["tok_per_s_per_gpu"] = gain_band(*_moved(*rates), scale)
    if row["speedup"] is not None:
        gains = [speedup(end, baseline, open_loop) for end in ends]
        found["speedup"] = gain_band(*_moved(row["speedup"], *gains), scale)
    return {name: band for name, band in found.items() if band is not None}


def _moved(
    value: float | None, middle: float | None, fast: float | None, slow: float | None
) -> tuple[float | None, float | None, float | None]:
    """Value and both ends, the ends moved from the first replication to all of them."""
    if value is None or not middle:
        return value, fast, slow
    shift = value / middle
    return value, fast and fast * shift, slow and slow * shift
