"""GPUStack's logs of Qwen3-14B on one H100: all requests at once.

The page says H100 SXM. Its own step times do not: with 72 GB of weights and KV cache to read, a
decode step takes 43 to 46 ms, 1.7 TB/s, and one of 8192 prompt tokens 0.65 s, 350 TFLOP/s. A PCIe
card has 2.0 TB/s and 756 TFLOP/s at 350 W. So every run is also there on that card, not scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites.rows import read

ENGINES = {"vllm": "vllm_0.10", "sglang": "sglang_0.5", "tensorrt_llm": "tensorrt_llm"}
SAID, IMPLIED = "h100_sxm", "h100_pcie"
OTHER_CARD = "on the card that the step times of the log speak for, not the one the page names"

SPREAD = 1.0
"""Of ShareGPT's lengths over their mean: assumed, the log has means only."""

LONGEST = 1024
"""Tokens of a ShareGPT prompt at most, as the client picks them; of an answer assumed."""


def cases() -> list[Case]:
    """Each run on the GPU the page names, and once more on the one its step times speak for."""
    rows = read("prefill/gpustack.csv")
    return [_case(row, gpu) for gpu in (SAID, IMPLIED) for row in rows]


def _lengths(row: Mapping[str, str], total: str) -> dict[str, Any]:
    mean = int(row[total]) / int(row["requests"])
    if row["dataset"] == "sharegpt":
        return {"kind": "lognormal", "mean": mean, "cv": SPREAD, "max": LONGEST}
    return {"kind": "fixed", "value": round(mean)}


def _case(row: Mapping[str, str], gpu: str) -> Case:
    requests = int(row["requests"])
    lengths = "-".join(
        str(round(int(row[f"{what}_tokens_total"]) / requests)) for what in ("prompt", "output")
    )
    workload = f"{row['dataset']}-{lengths}"
    card = "" if gpu == SAID else "-pcie"
    stream = {key: _lengths(row, f"{key}_total") for key in ("prompt_tokens", "output_tokens")}
    return Case(
        name=f"gpustack/qwen3-14b-{row['engine'].replace('_', '-')}-{workload}{card}",
        suite="prefill",
        origin="GPUStack" if gpu == SAID else "GPUStack, PCIe",
        source=row["source"],
        labels={
            "model": "qwen3-14b",
            "tp": "1",
            "engine": ENGINES[row["engine"]],
            "strategy": "autoregressive",
            "workload": workload,
            "batch": row["requests"],
        },
        scenario={
            "hardware": {"gpu": gpu},
            "model": {"transformer": "qwen3-14b"},
            "engine": {"name": ENGINES[row["engine"]]},
            "workload": {
                "arrivals": {"kind": "closed_loop", "users": requests},
                "requests": requests,
                "sampling": "greedy",
                "streams": [stream],
            },
            "strategies": [{"kind": "autoregressive"}],
        },
        measured={
            "duration_s": float(row["duration_s"]),
            "ttft_s.mean": float(row["ttft_ms_mean"]) / 1e3,
            "tpot_s.p50": float(row["tpot_ms_p50"]) / 1e3,
        },
        unscored="" if gpu == SAID else OTHER_CARD,
    )
