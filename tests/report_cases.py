"""Results made by hand, with everything a report can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rows import document, latencies, requests, row, saturated_row

from sim.tables import Columns, RunTable

RATE = "workload.arrivals.rate_per_s"
HOSTILE = "<script>alert(1)</script>"
LABELS = ("autoregressive", HOSTILE, "$x_y$ & \"'</svg>", "_" + "長い名前" * 16)


def parts(batch: int = 16) -> dict[str, Any]:
    """The keys of a row that tell where memory and time go."""
    gigabyte = 1e9
    return {
        "kv_budget_bytes": {
            "memory": 84.9 * gigabyte,
            "unused": 8.5 * gigabyte,
            "weights": 17.6 * gigabyte,
            "draft": 1.6 * gigabyte,
            "reserve": 1.2 * gigabyte,
            "kv": 56.0 * gigabyte,
            "kv_peak_used": 12.0 * gigabyte,
        },
        "step_s": {
            "components": {"weights": 8e-3, "kv": 1e-3, "draft": 2e-3, "host": 5e-6},
            "batch": batch,
            "context": 600,
        },
    }


def windows(peak_s: float, count: int = 30) -> dict[str, Any]:
    """Five-minute windows a minute apart, the middle one the worst."""
    series = []
    for index in range(count):
        near = 1 / (1 + abs(index - count // 2))
        series.append(
            {
                "start_s": 60.0 * index,
                "requests": 500,
                "offered_req_per_s": 1.7 + near,
                "ttft_s_p95": peak_s * (0.2 + near),
                "tpot_s_p95": 0.01 * (1 + near),
                "e2e_s_p95": 2.0 + near,
                "attainment": 1.0 - near / 2,
            }
        )
    worst = {**series[count // 2], "by": "attainment"}
    return {"window_s": 300.0, "hop_s": 60.0, "series": series, "worst": worst}


def streams(names: Sequence[str] = ("chat", "sql")) -> list[dict[str, Any]]:
    slo = {"attainment": 0.9, "target": 0.99, "missed": [], "met": False}
    return [
        {
            "stream": name,
            "slo_class": "interactive",
            "requests": 100,
            "finished": 99,
            "ttft_s": latencies(0.1),
            "tpot_s": latencies(0.02),
            "e2e_s": latencies(3.0),
            "slo": slo,
        }
        for name in names
    ]


def timeline(
    bins: int = 40, replicas: int = 2, width_s: float = 5.0, level: float = 3.0
) -> Columns:
    """A queue that comes and goes; tau is unknown in the first bin."""
    start = np.tile(np.arange(bins) * width_s, replicas)
    wave = level * (1 + np.sin(start / (bins * width_s) * np.pi))
    tau = np.where(start == 0, np.nan, 2.0)
    return {
        "replica": np.repeat(np.arange(replicas), bins),
        "start_s": start,
        "width_s": np.full(bins * replicas, width_s),
        "steps": np.full(bins * replicas, 100),
        "busy_s": np.full(bins * replicas, 0.9 * width_s),
        "running": 4 * wave,
        "waiting": wave,
        "kv_use": wave / (4 * level),
        "emitted": np.full(bins * replicas, 2000),
        "tau": tau,
        "preemptions": np.full(bins * replicas, 2),
    }


def table(strategy: str, point: dict[str, Any], n: int = 300, seed: int = 0) -> RunTable:
    """Finished requests with log-normal latencies."""
    random = np.random.default_rng(seed)
    arrival = np.arange(n, dtype=float)
    first = arrival + random.lognormal(-2.5, 0.5, n)
    finish = first + 20 * random.lognormal(-4.3, 0.2, n)
    columns = requests(n, first_token_s=first, finish_s=finish)
    return RunTable(point, strategy, 0, columns)


Case = tuple[dict[str, Any], list[RunTable], list[RunTable]]


def case(labels: Sequence[str] = LABELS, rates: Sequence[float] = (4, 8, 12), n: int = 300) -> Case:
    """A grid over the rate: the last strategy saturates at the highest one."""
    rows: list[dict[str, Any]] = []
    made: list[RunTable] = []
    timelines: list[RunTable] = []
    for rate in rates:
        point = {RATE: rate} if len(rates) > 1 else {}
        for index, label in enumerate(labels):
            extra = {
                "point": point,
                "windows": windows(0.3 + 0.1 * index),
                "streams": streams(labels),
                **parts(8 + index),
            }
            if index == len(labels) - 1 and rate == rates[-1] and len(rates) > 1:
                rows.append(saturated_row(label, **extra))
            else:
                gain = 1.2 + 0.1 * index if index else None
                rows.append(row(label, gain, **extra, tok_per_s_per_gpu=30.0 * rate + index))
            made.append(table(label, point, n, seed=index))
            timelines.append(RunTable(point, label, 0, timeline(level=3.0 + index)))
    whole = document(rows)
    whole["question"] = f"Which of {HOSTILE} & \"'?"
    whole["scenario"]["slo"] = {"ttft_s": {"p95": 0.5}, "attainment": 0.99}
    return whole, made, timelines
