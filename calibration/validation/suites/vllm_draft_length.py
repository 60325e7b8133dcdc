"""Time per token of vLLM's V1 engine by draft length, one request at a time (issue 20780).

MT-Bench prompts on Llama-3.1-8B, mid 2025; the acceptance length of each run is published beside
it. Not stated, so assumed: one H100, first turns of about 100 tokens, answers of 256, and the
engine of vLLM 0.10, a few weeks younger. At batch 1 no time depends much on the lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites.rows import read

ORIGIN = "vLLM draft length"
PROMPTS = 80
PROMPT_TOKENS, OUTPUT_TOKENS = 100, 256
FITTED = {"autoregressive": ("host_plain.per_step_us",), "eagle": ("draft_pass_us",)}
"""Constants of vLLM 0.10 that these rows were used to fit, by strategy."""


def cases() -> list[Case]:
    """One case a row: time per output token at its published acceptance length."""
    return [_case(row) for row in read("speculation/vllm_draft_length.csv")]


def _case(row: Mapping[str, str]) -> Case:
    kind, k = row["strategy"], row["k"]
    strategies: list[dict[str, Any]] = [{"kind": "autoregressive"}]
    if k:
        acceptance = {"tau": float(row["tau"])}
        strategies.append({"kind": kind, "k": int(k), "acceptance": acceptance})
    return Case(
        name=f"vllm-20780/{row['transformer']}-{kind}" + (f"-k{k}" if k else ""),
        suite="speculation",
        origin=ORIGIN,
        source=row["source"],
        labels={
            "model": row["transformer"],
            "tp": row["tp"],
            "engine": row["engine"],
            "strategy": kind,
            "data_set": row["data_set"],
            "batch": row["batch"],
            "lengths": "assumed",
            **({"k": k} if k else {}),
        },
        scenario=_scenario(row, strategies),
        measured={"tpot_s.mean": float(row["tpot_ms"]) / 1e3},
        reading={"tpot_s.mean": float(row["reading"]) / 1e3},
        fitted=FITTED.get(kind, ()),
        acceptance="published" if k else "none",
    )


def _scenario(row: Mapping[str, str], strategies: list[dict[str, Any]]) -> dict[str, Any]:
    """One prompt after another, each by itself."""
    return {
        "hardware": {"gpu": row["gpu"]},
        "model": {"transformer": row["transformer"], "tp": int(row["tp"])},
        "engine": {"name": row["engine"], "max_num_seqs": 1},
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": 1},
            "requests": PROMPTS,
            "sampling": "greedy",
            "streams": [
                {
                    "prompt_tokens": {"kind": "fixed", "value": PROMPT_TOKENS},
                    "output_tokens": {"kind": "fixed", "value": OUTPUT_TOKENS},
                }
            ],
        },
        "strategies": strategies,
        "run": {"warmup": 0, "band": False},
    }
