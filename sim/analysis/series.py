"""What the lines and bars of a picture show: arrays by strategy, from tables and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analysis import metrics
from sim.tables import RunTable

Row = Mapping[str, Any]
Floats = npt.NDArray[np.float64]

SHARES: Floats = np.linspace(0.0, 1.0, 201)
MOST_WINDOWS = 200
SMALL = 0.01
"""Components below this share of every bar are drawn as one."""


def by_strategy(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each strategy, in the order they come."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["strategy"], []).append(row)
    return found


def quantile_curves(runs: Sequence[RunTable], name: str) -> dict[str, Floats]:
    """Latency within which each share of ``SHARES`` of the finished requests lies [s].

    Replications are pooled; a strategy that finished nothing is left out, and so are latencies of
    0 s, which a logarithmic axis cannot show.
    """
    pooled: dict[str, list[Floats]] = {}
    for run in runs:
        pooled.setdefault(run.strategy, []).append(metrics.LATENCIES[name](run.columns))
    values = {strategy: np.concatenate(parts) for strategy, parts in pooled.items()}
    known = {strategy: latency[latency > 0] for strategy, latency in values.items()}
    return {strategy: np.quantile(v, SHARES) for strategy, v in known.items() if v.size}


class LoadLine(NamedTuple):
    """One strategy over the varied load; NaN where it has no latency [s].

    ``hi`` is infinite where the slow end of the band saturates; ``saturated`` flags the loads it
    does not carry at all.
    """

    load: Floats
    mean: Floats
    p95: Floats
    lo: Floats
    hi: Floats
    saturated: npt.NDArray[np.bool_]


def load_lines(rows: Sequence[Row], name: str, key: str) -> dict[str, LoadLine]:
    """A line a strategy over the values of ``key``, in ascending order."""
    return {
        strategy: _load_line(sorted(mine, key=lambda row: float(row["point"][key])), name, key)
        for strategy, mine in by_strategy(rows).items()
    }


def _load_line(rows: Sequence[Row], name: str, key: str) -> LoadLine:
    bands = [row["band"].get(name) for row in rows]
    tops = [np.inf if band and band["hi"] is None else band and band["hi"] for band in bands]
    return LoadLine(
        array(row["point"][key] for row in rows),
        array(row[name]["mean"] for row in rows),
        array(row[name]["p95"] for row in rows),
        array(band and band["lo"] for band in bands),
        array(tops),
        np.array([bool(row["saturated"]) for row in rows]),
    )


def array(values: Iterable[float | None]) -> Floats:
    """Values as an array, NaN for None."""
    return np.array([np.nan if value is None else float(value) for value in values])


def limits(arrays: Iterable[Floats]) -> tuple[float, float] | None:
    """Least and largest finite value above 0 in all of them; None where there is none."""
    values = np.concatenate([np.zeros(0), *arrays])
    known = values[np.isfinite(values) & (values > 0)]
    return (float(known.min()), float(known.max())) if known.size else None


def speed_lines(rows: Sequence[Row], key: str | None) -> dict[str, tuple[Floats, Floats]]:
    """Tokens a second of a user and of a GPU, a line a strategy in the order of ``key``.

    Rows without a speed, being saturated, are left out.
    """
    known = [row for row in rows if row["tok_per_s_per_user"] and row["tok_per_s_per_gpu"]]
    if key is not None:
        known.sort(key=lambda row: float(row["point"][key]))
    lines = by_strategy(known)
    order = [label for label in by_strategy(rows) if label in lines]
    user, gpu = "tok_per_s_per_user", "tok_per_s_per_gpu"
    return {
        label: (array(row[user] for row in lines[label]), array(row[gpu] for row in lines[label]))
        for label in order
    }


def step_parts(rows: Sequence[Row]) -> dict[str, Floats]:
    """Milliseconds of each component of a decode step, one a row; small ones are joined.

    Parameters
    ----------
    rows : sequence of mapping
        Result rows whose ``step_s`` is not None.
    """
    names = dict.fromkeys(name for row in rows for name in row["step_s"]["components"])
    parts = {
        name: 1e3 * array(row["step_s"]["components"].get(name, 0.0) for row in rows)
        for name in names
    }
    whole = np.asarray(sum(parts.values()))
    large = {name: values for name, values in parts.items() if (values > SMALL * whole).any()}
    rest = whole - np.asarray(sum(large.values()))
    return large if (rest <= 1e-9 * whole).all() else {**large, "other": rest}


def memory_parts(rows: Sequence[Row]) -> dict[str, Floats]:
    """Gigabytes of one GPU by what holds them, one a row; they sum to its memory.

    Parameters
    ----------
    rows : sequence of mapping
        Result rows with ``kv_budget_bytes``.
    """
    budgets = [row["kv_budget_bytes"] for row in rows]
    names = ("weights", "draft", "reserve", "kv_peak_used", "kv", "unused")
    parts = {name: 1e-9 * array(budget[name] for budget in budgets) for name in names}
    free = parts.pop("kv") - parts["kv_peak_used"]
    unused = parts.pop("unused")
    return {
        name: values
        for name, values in {**parts, "kv_free": free, "unused": unused}.items()
        if (values > 0).any()
    }


def window_line(row: Row, name: str) -> tuple[Floats, Floats]:
    """Start of the windows of one row [s], and a statistic of each.

    Of more than ``MOST_WINDOWS`` neighbours the largest value stands for all.
    """
    series = row["windows"]["series"]
    starts, values = (array(each.get(key) for each in series) for key in ("start_s", name))
    joined = -(-len(series) // MOST_WINDOWS)
    if joined <= 1:
        return starts, values
    groups = np.arange(len(series)) // joined
    largest = np.full(groups[-1] + 1, -np.inf)
    np.maximum.at(largest, groups, np.nan_to_num(values, nan=-np.inf))
    return starts[::joined], np.where(np.isfinite(largest), largest, np.nan)
