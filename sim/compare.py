"""How one strategy stands against plain decoding: speedup and bands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sim.band import Scale, gain_band, latency_band

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")

Row = Mapping[str, Any]


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
