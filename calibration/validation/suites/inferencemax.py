"""InferenceMAX: Llama-70B in FP8 on four H100 under vLLM, no prompt cached."""

from __future__ import annotations

from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites.rows import read

ENGINE = "vllm_async_0.10"
SHORTEST, LONGEST = 0.8, 1.0
QUANTILES = 20
REQUESTS_PER_USER = 10


def lengths(nominal: int) -> dict[str, Any]:
    """Lengths uniform in 0.8 to 1.0 of nominal, as the benchmark client draws them."""
    width = LONGEST - SHORTEST
    at = [SHORTEST + width * (step + 0.5) / QUANTILES for step in range(QUANTILES)]
    return {"kind": "empirical", "values": [int(nominal * share) for share in at]}


def cases() -> list[Case]:
    """Closed loops of 4 to 64 users at three pairs of lengths."""
    return [_case(row) for row in read("prefill/inferencemax.csv")]


def _case(row: dict[str, str]) -> Case:
    prompt, output = int(row["prompt_nominal"]), int(row["output_nominal"])
    users = int(row["users"])
    workload = f"{prompt}-{output}"
    return Case(
        name=f"inferencemax/llama-3.1-70b-fp8-tp4-{workload}-u{users}",
        suite="prefill",
        origin="InferenceMAX",
        source=row["source"],
        labels={
            "model": "llama-3.1-70b",
            "tp": "4",
            "engine": ENGINE,
            "strategy": "autoregressive",
            "workload": workload,
            "batch": str(users),
        },
        scenario=_scenario(prompt, output, users),
        measured={
            "ttft_s.mean": float(row["ttft_ms"]) / 1e3,
            "tpot_s.mean": float(row["tpot_ms"]) / 1e3,
        },
    )


def _scenario(prompt: int, output: int, users: int) -> dict[str, Any]:
    return {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": "llama-3.1-70b", "weights": "fp8", "kv": "fp8", "tp": 4},
        "engine": {
            "name": ENGINE,
            "max_num_seqs": users,
            "max_num_batched_tokens": 8192,
            "max_model_len": 10240,
        },
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": users},
            "requests": REQUESTS_PER_USER * users,
            "sampling": "greedy",
            "streams": [{"prompt_tokens": lengths(prompt), "output_tokens": lengths(output)}],
        },
        "strategies": [{"kind": "autoregressive"}],
    }
