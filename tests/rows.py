"""Result rows and request tables made by hand, shared by the tests of metrics and reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.analysis.verdict import verdict
from sim.tables import Columns, Status


def latencies(mean: float | None) -> dict[str, float | None]:
    factors = {"mean": 1.0, "p50": 0.9, "p90": 1.4, "p95": 1.8, "p99": 2.6}
    return {name: None if mean is None else mean * factor for name, factor in factors.items()}


def band(value: float, basis: str = "validated", spread: float = 0.05) -> dict[str, Any]:
    return {"lo": value * (1 - spread), "hi": value * (1 + spread), "level": 0.9, "basis": basis}


def row(
    strategy: str = "eagle3 K=3", speedup: float | None = 1.6, **changes: Any
) -> dict[str, Any]:
    tpot = 0.02 / (speedup or 1.0)
    made: dict[str, Any] = {
        "strategy": strategy,
        "baseline": speedup is None,
        "hypothetical": False,
        "point": {},
        "ttft_s": latencies(0.0812),
        "tpot_s": latencies(tpot),
        "itl_s": latencies(2 * tpot),
        "e2e_s": latencies(0.08 + 250 * tpot),
        "queue_s": latencies(0.004),
        "tok_per_s_per_user": 1 / tpot,
        "tok_per_s_per_gpu": 375.4,
        "req_per_s": 11.97,
        "offered_req_per_s": 12.02,
        "tau": 1.0 if speedup is None else 2.41,
        "break_even_tau": None if speedup is None else 1.42,
        "acceptance_rate": None if speedup is None else 0.47,
        "kv_use_peak": 0.613,
        "kv_free_bytes": 81.4e9,
        "prefix_hit_rate": 0.31,
        "preemptions": 0,
        "finished": 3000,
        "rejected": 0,
        "unfinished": 0,
        "timed_out": 0,
        "failed": 0,
        "resent": 0,
        "saturated": False,
        "speedup": speedup,
        "slo": None,
        "streams": [],
        "windows": None,
        "band": {"tpot_s": band(tpot)} | ({} if speedup is None else {"speedup": band(speedup)}),
    }
    made |= changes
    return made | {"verdict": verdict(made)}


def saturated_row(strategy: str, **changes: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"), latencies(None))
    gone = {"tok_per_s_per_user": None, "speedup": None, "break_even_tau": None, "band": {}}
    known = {"saturated": True, "req_per_s": 9.5, "baseline": False}
    return row(strategy, **{**nothing, **gone, **known, **changes})


def document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    scenario = {
        "hardware": {"gpu": "h100_sxm", "gpus": 8},
        "model": {
            "transformer": "llama-3.1-70b",
            "weights": "fp8",
            "kv": "bf16",
            "tp": 4,
            "replicas": 2,
        },
        "engine": {"name": "vllm_0.15"},
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 12.0},
            "requests": 3000,
            "streams": [
                {
                    "name": "chat",
                    "share": 0.7,
                    "prompt_tokens": {"kind": "lognormal", "mean": 500, "cv": 0.8},
                    "output_tokens": {"kind": "lognormal", "mean": 250, "cv": 0.7},
                    "prefix": {"tokens": 200, "groups": 10, "order": "random"},
                },
                {
                    "name": "sql",
                    "share": 0.3,
                    "prompt_tokens": {"kind": "fixed", "value": 900},
                    "output_tokens": {"kind": "fixed", "value": 120},
                    "prefix": None,
                },
            ],
        },
        "run": {"replications": 3},
    }
    return {"scenario": scenario, "seed": 1, "profile": "h100_sxm", "rows": rows}


def requests(n: int, **changes: Any) -> Columns:
    """``n`` finished requests, one a second: first token after 1 s, 20 more within 2 s."""
    arrival = np.arange(n, dtype=np.float64)
    made: Columns = {
        "id": np.arange(n),
        "session": np.arange(n),
        "stream": np.zeros(n, dtype=np.int32),
        "domain": np.zeros(n, dtype=np.int64),
        "replica": np.zeros(n, dtype=np.int64),
        "status": np.full(n, Status.FINISHED, dtype=np.int8),
        "arrival_s": arrival,
        "schedule_s": arrival + 0.5,
        "first_token_s": arrival + 1.0,
        "finish_s": arrival + 3.0,
        "prompt_tokens": np.full(n, 100),
        "cached_tokens": np.full(n, 16),
        "output_tokens": np.full(n, 21),
        "n_steps": np.full(n, 10),
        "drafted": np.full(n, 30),
        "accepted": np.full(n, 11),
        "preemptions": np.zeros(n, dtype=np.int64),
        "attempts": np.ones(n, dtype=np.int64),
        "discarded_tokens": np.zeros(n, dtype=np.int64),
    }
    return made | {name: np.asarray(value) for name, value in changes.items()}


def single_server(load: float, n: int, seed: int) -> Columns:
    """An M/M/1 queue with mean service 1 s; one output token, emitted at the finish."""
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(1 / load, n))
    service = random.exponential(1.0, n)
    busy = np.cumsum(service)
    finish = busy + np.maximum.accumulate(arrival - (busy - service))
    return requests(
        n,
        arrival_s=arrival,
        schedule_s=finish - service,
        first_token_s=finish,
        finish_s=finish,
        output_tokens=np.ones(n, dtype=np.int64),
    )
