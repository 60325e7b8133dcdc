"""Load stages of vLLM 0.15.1 on H100, run and published by the inference-sim project.

A client sends one of 100 prompts after another, at gaps drawn from an exponential distribution and
scaled to fill the stage, and no answer ends early. The project's own configurations state that for
the runs named by a date; for the numbered ones the lengths of the prompts and that they repeat are
inferred (``prompts_are``).
"""

from __future__ import annotations

from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites.rows import read

ROWS = "serving/vllm_0.15.csv"
ENGINE = "vllm_0.15"
MAX_MODEL_LEN = 4096
UTILISATION = 0.9
"""Where a row states none, its KV blocks are those of this share."""

ROUNDS_BEFORE = 5
"""Rounds of the prompts sent ahead of a stage that finds them cached; they are not measured."""

STATISTICS = ("mean", "p50", "p90", "p99")
TAIL = "ttft_s.p99"
"""Shown without a score: cold starts and kernels compiled on the way make it."""


def cases() -> list[Case]:
    """One case a load stage."""
    return [_case(row) for row in read(ROWS)]


def _case(row: dict[str, str]) -> Case:
    first = (row["model"], f"tp{row['tp']}", row["workload"], row["id"], row["stage"])
    measured = _measured(row)
    return Case(
        name="inference-sim/" + "-".join(first),
        suite="serving",
        origin="inference-sim",
        source=row["source"],
        labels={
            "model": row["model"],
            "tp": row["tp"],
            "engine": ENGINE,
            "strategy": "autoregressive",
            "workload": row["workload"],
            "rate": row["rate_per_s"],
            "stage": row["stage"],
            "prompts": row["prompts_are"],
        },
        scenario=_scenario(row),
        measured=measured,
        fitted=("request_us",),
        fitted_metrics=tuple(metric for metric in measured if metric.startswith("ttft_s")),
        shown=(TAIL,),
        unscored=row["unscored"],
    )


def _measured(row: dict[str, str]) -> dict[str, float]:
    found = {}
    for latency in ("e2e", "ttft", "tpot"):
        for statistic in STATISTICS:
            text = row.get(f"{latency}_{statistic}_ms")
            if text:
                found[f"{latency}_s.{statistic}"] = float(text) / 1e3
    return found


def _scenario(row: dict[str, str]) -> dict[str, Any]:
    rate, prompts = float(row["rate_per_s"]), int(row["prompts"])
    requests = round(rate * float(row["duration_s"]))
    # Stages after the first find the prompts in the cache.
    before = ROUNDS_BEFORE * prompts if int(row["stage"]) else 0
    requests += before
    return {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": row["model"], "tp": int(row["tp"])},
        "engine": {
            "name": ENGINE,
            "max_num_seqs": int(row["max_num_seqs"]),
            "max_num_batched_tokens": int(row["max_num_batched_tokens"]),
            "max_model_len": MAX_MODEL_LEN,
            "gpu_memory_utilization": float(row["gpu_memory_utilization"] or UTILISATION),
        },
        "workload": {
            "arrivals": {"kind": row["arrivals"], "rate_per_s": rate, "exact_rate": True},
            "requests": requests,
            "streams": [
                {
                    "name": row["workload"],
                    "prompt_tokens": {"kind": "fixed", "value": int(row["prompt_tokens"])},
                    "output_tokens": {"kind": "fixed", "value": int(row["output_tokens"])},
                    "prefix": {"tokens": "all", "groups": prompts, "order": "cycle"},
                }
            ],
        },
        "strategies": [{"kind": "autoregressive"}],
        "run": {"warmup": _share(before, requests), "band": False},
    }


def _share(left_out: int, requests: int) -> float:
    """A share of the requests that rounds down to those left out."""
    return round((left_out + 0.5) / requests, 6) if left_out else 0.0
