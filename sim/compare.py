"""How one strategy stands against plain decoding: speedup and bands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from models.strategies import Strategy
from models.strategies.oracle import Oracle
from sim.band import Scale, interval, with_prefill, with_request
from sim.setup import Setup

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


def bands(
    row: Row, baseline: Row, ends: Ends, scale: Scale, setup: Setup, open_loop: bool
) -> dict[str, Any]:
    """Bands of latencies, rate and speedup of one row; empty when it is saturated."""
    if row["saturated"]:
        return {}
    found: dict[str, dict[str, Any] | None] = {}
    for name in LATENCIES:
        value, fast, slow = _moved(*(end[name]["mean"] for end in (row, *ends)))
        found[name] = interval(value, fast, slow, scale=scale, open_above=True)
    computed = 1.0 - (row["prefix_hit_rate"] or 0.0)
    ttft = with_request(found["ttft_s"], row["ttft_s"]["mean"], setup)
    found["ttft_s"] = with_prefill(ttft, setup, computed)
    value, fast, slow = _moved(*(end["tok_per_s_per_gpu"] for end in (row, *ends)))
    found["tok_per_s_per_gpu"] = interval(value, fast, slow, scale=scale, open_above=False)
    if row["speedup"] is not None:
        found["speedup"] = _speedup_band(row, baseline, ends, scale, open_loop)
    return {name: band for name, band in found.items() if band is not None}


def _speedup_band(
    row: Row, baseline: Row, ends: Ends, scale: Scale, open_loop: bool
) -> dict[str, Any] | None:
    """The baseline stays where it is; the ends lie nearer, for its own errors cancel."""
    gains = [speedup(end, baseline, open_loop) for end in ends]
    value, fast, slow = _moved(row["speedup"], *gains)
    fast = _part_way(value, fast, math.log(scale.gain_lo) / math.log(scale.lo))
    slow = _part_way(value, slow, math.log(scale.gain_hi) / math.log(scale.hi))
    return interval(value, fast, slow, scale=scale, open_above=False)


def _part_way(value: float | None, end: float | None, share: float) -> float | None:
    """Geometric interpolation from the value towards one end."""
    if value is None or end is None:
        return None
    return float(value * (end / value) ** share)


def _moved(
    value: float | None, middle: float | None, fast: float | None, slow: float | None
) -> tuple[float | None, float | None, float | None]:
    """Value and both ends, the ends moved from the first replication to all of them."""
    if value is None or not middle:
        return value, fast, slow
    shift = value / middle
    return value, fast and fast * shift, slow and slow * shift


def add_regret(rows: Mapping[int, dict[str, Any]], strategies: Sequence[Strategy]) -> None:
    """Add to every row of a point what it loses to the first oracle of the scenario, if any.

    Parameters
    ----------
    rows : mapping
        Rows that are complete, by index of their strategy.
    strategies : sequence of Strategy
    """
    oracles = [i for i, strategy in enumerate(strategies) if isinstance(strategy, Oracle)]
    if not oracles or oracles[0] not in rows:
        return
    for row in rows.values():
        row["regret"] = regret(row, rows[oracles[0]])


def regret(row: Row, oracle: Row) -> dict[str, float | None] | None:
    """What a row loses to an oracle at the same load; None where either is saturated.

    Returns
    -------
    dict or None
        ``tok_per_s``: share of the oracle's tokens a second it lacks, ``1 - own / oracle``, in a
        closed loop; in an open one, where both emit what is asked of them, None. ``tpot_mean``
        and ``tpot_p95``: time per token beyond the oracle's, ``own / oracle - 1``. Below 0 where
        it does better: an oracle knows its own modes only, and looks at the mean rate.
    """
    if row["saturated"] or oracle["saturated"]:
        return None
    closed = row["offered_req_per_s"] is None
    mine, best = row["tok_per_s_per_gpu"], oracle["tok_per_s_per_gpu"]
    return {
        "tok_per_s": 1 - (mine or 0.0) / best if closed and best else None,
        **{f"tpot_{name}": _beyond(row, oracle, name) for name in ("mean", "p95")},
    }


def _beyond(row: Row, oracle: Row, statistic: str) -> float | None:
    mine, best = row["tpot_s"][statistic], oracle["tpot_s"][statistic]
    return mine / best - 1 if mine and best else None
