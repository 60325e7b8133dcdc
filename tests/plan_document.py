"""A capacity plan written by hand: what ``speccast plan`` prints for 600,000 requests a day."""

from __future__ import annotations

import math
from typing import Any

Json = dict[str, Any]

PEAK = 20.83
PRICES = {"h100_sxm": 2.69, "h200_sxm": 3.59, "l40s": 0.86}


def document(**changes: Any) -> Json:
    """Seven strategies and a hypothetical one on two GPUs, a check and a tornado."""
    made: Json = {
        "question": "What carries 600,000 chat requests a day of Llama-3.1-70B?",
        "demand": {
            "requests_per_day": 600000,
            "peak_factor": 3.0,
            "peak_hour": 14.0,
            "mean_req_s": 6.944,
            "peak_req_s": PEAK,
            "uncertainty": 0.1,
        },
        "slo": {"ttft_s": {"p95": 0.5}, "tpot_s": {"p95": 0.025}},
        "model": {"transformer": "llama-3.1-70b", "weights": "fp8", "kv": "fp8"},
        "engine": "vllm_0.15",
        "seed": 1,
        "window_s": 300.0,
        "hour_s": 3600.0,
        "level": 0.9,
        "confidence": 0.95,
        "counts": {
            "candidates": 512,
            "estimated_out": 431,
            "searched": 81,
            "simulations": 1204,
            "requests": 14_300_000,
        },
        "plans": _plans(),
        "impossible": [
            {
                "strategy": "autoregressive",
                "gpu": "l40s",
                "why": "an idle replica takes 31 ms a token, 25 ms asked",
            },
            {
                "strategy": "lookahead W=5 N=3 G=5",
                "gpu": "l40s",
                "why": "weights leave no room for KV at TP 1 and 2, and TP 4 takes 28 ms a token",
            },
        ],
        "chosen": 0,
        "check": _check(),
        "tornado": _tornado(),
        "inputs": _inputs(),
        "search": _search(),
    }
    return {**made, **changes}


def _plans() -> list[Json]:
    rows = [
        ("eagle3 K=3", "h100_sxm", 8, 8, 12, 0.71, 11.4, 0.09, 0.391, 0.0227, "tpot_s p95"),
        ("gate eagle3 K=3", "h100_sxm", 8, 8, 12, 0.69, 11.3, 0.08, 0.395, 0.0229, "tpot_s p95"),
        ("eagle3 K=4", "h200_sxm", 8, 8, 8, 0.96, 15.9, 0.53, 0.31, 0.0181, "ttft_s p95"),
        ("medusa 4 heads", "h100_sxm", 12, 8, 16, 0.64, 7.6, 0.09, 0.412, 0.0236, "tpot_s p95"),
        ("draft llama-3.2-1b K=3", "h100_sxm", 12, 12, 16, 0.6, 7.5, 0.08, 0.44, 0.0241, "tpot_s"),
        ("ngram K=4", "h100_sxm", 16, 12, 20, 0.66, 5.6, 0.07, 0.36, 0.0239, "tpot_s p95"),
        ("autoregressive", "h100_sxm", 16, 16, 20, 0.82, 5.5, 0.06, 0.35, 0.0244, "tpot_s p95"),
        ("lookahead W=5 N=3 G=5", "h100_sxm", 20, 16, None, 0.58, 4.4, 0.05, 0.47, 0.0243, ""),
    ]
    plans = [_plan(*row) for row in rows]
    plans[5]["limited_by"] = "saturated"
    plans[7] |= {"hypothetical": True, "limited_by": "attainment"}
    for index in (0, 2):
        plans[index]["pareto"] = True
    return plans


def _plan(
    strategy: str,
    gpu: str,
    gpus: int,
    lo: int,
    hi: int | None,
    sure: float,
    capacity: float,
    headroom: float,
    ttft_s: float,
    tpot_s: float,
    limited_by: str,
) -> Json:
    hourly = PRICES[gpu] * gpus
    million = hourly / 20.1
    return {
        "strategy": strategy,
        "gpu": gpu,
        "hypothetical": False,
        "settings": {
            "model.tp": 4,
            "model.weights": "fp8",
            "model.kv": "fp8",
            "engine.max_num_seqs": 256,
            "engine.max_num_batched_tokens": 8192,
        },
        "tp": 4,
        "replicas": gpus // 4,
        "gpus": gpus,
        "gpus_band": {"lo": lo, "hi": hi, "level": 0.9, "basis": "extrapolated"},
        "confidence": sure,
        "gpus_for_confidence": hi if sure < 0.95 else gpus,
        "usd_per_hour": hourly,
        "usd_per_day": 24 * hourly,
        "usd_per_million_tokens": million,
        "usd_per_million_band": {
            "lo": million * lo / gpus,
            "hi": None if hi is None else million * hi / gpus,
        },
        "power": None,
        "replica_capacity_req_s": {"value": capacity, "lo": 0.9 * capacity, "hi": 1.1 * capacity},
        "fleet_peak_req_s": PEAK * (1 + headroom),
        "headroom": headroom,
        "worst": {
            "ttft_s_p95": ttft_s,
            "tpot_s_p95": tpot_s,
            "e2e_s_p95": 40 * tpot_s,
            "attainment": 0.967,
        },
        "limited_by": limited_by,
        "pareto": False,
        "launch": "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 "
        "--quantization fp8 --kv-cache-dtype fp8 --max-num-seqs 256 --max-num-batched-tokens 8192 "
        '--speculative-config \'{"method": "eagle3", "model": '
        '"yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "num_speculative_tokens": 3}\'',
    }


def _check() -> Json:
    series = []
    for index in range(1436):
        start_s = 60.0 * index
        hour = start_s / 3600
        rate = 6.944 * (1 + 2 * math.exp(-(((hour - 14) / 2.6) ** 2)) - 0.45 * (hour < 8))
        down = 14 * 3600 - 300 < start_s < 14 * 3600 + 240
        series.append(
            {
                "start_s": start_s,
                "ttft_s_p95": 0.12 + 0.006 * rate + 0.16 * down + 0.01 * math.sin(index),
                "tpot_s_p95": 0.0119 + 0.00035 * rate + 0.0031 * down + 2e-4 * math.cos(index),
                "offered_req_per_s": rate + 0.3 * math.sin(2.3 * index),
                "attainment": 1.0 - 0.03 * down,
            }
        )
    worst = max(series, key=lambda each: each["tpot_s_p95"])
    return {
        "requests": 600132,
        "duration_s": 86400.0,
        "killed_at_s": 50400.0,
        "back_at_s": 50628.0,
        "worst": dict(worst),
        "met": True,
        "attainment": 0.9932,
        "ttft_s": {"mean": 0.094, "p50": 0.081, "p95": 0.213, "p99": 0.371},
        "tpot_s": {"mean": 0.0141, "p50": 0.0138, "p95": 0.0192, "p99": 0.0226},
        "preemptions": 12,
        "series": series,
    }


def _tornado() -> list[Json]:
    own = "tokens a step of eagle3 K=3; `speccast calibrate acceptance` fits your own"
    rows = [
        ("acceptance", own, "published", 0.86, 1.13, 10.6, 6.7),
        ("demand", "requests that will come, as stated", "assumed", 0.84, 1.17, 6.6, 9.6),
        ("step time", "decode steps of vllm_0.15 on h100_sxm", "extrapolated", 0.9, 1.1, 7.3, 9.3),
        ("prefill time", "what prompts add to steps", "validated", 0.9, 1.1, 7.9, 8.4),
        ("simulation", "three replications", "measured", 0.99, 1.01, 7.98, 8.01),
    ]
    keys = ("input", "what", "basis", "lo", "hi", "gpus_lo", "gpus_hi")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _inputs() -> list[Json]:
    rows = [
        (
            "kernel times",
            "profile h100_sxm",
            "measured",
            "https://github.com/NVIDIA/aiconfigurator",
        ),
        ("lengths", "azure_llm_2023_conversation", "measured", "Azure public dataset, 2023"),
        (
            "acceptance of eagle3",
            "tau 2.87 at K=3",
            "published",
            "https://arxiv.org/abs/2503.01840",
        ),
        ("acceptance of ngram", "match rate 0.25", "assumed", "no figure for chat was published"),
        ("peak factor", "3 x the mean", "assumed", "stated in the plan"),
        ("price of h100_sxm", "2.69 USD/h", "published", "RunPod on demand, March 2026"),
    ]
    return [dict(zip(("input", "value", "basis", "source"), row, strict=True)) for row in rows]


def _search() -> list[Json]:
    rows = []
    for plan in _plans():
        for seqs in (128, 256):
            rows.append(
                {
                    "strategy": plan["strategy"],
                    "gpu": plan["gpu"],
                    "settings": {**plan["settings"], "engine.max_num_seqs": seqs},
                    "estimate_req_s": 1.2 * plan["replica_capacity_req_s"]["value"],
                    "capacity_req_s": plan["replica_capacity_req_s"]["value"] * seqs / 256,
                    "gpus": plan["gpus"] * 256 // seqs,
                    "usd_per_day": plan["usd_per_day"] * 256 / seqs,
                }
            )
    return rows
