"""vLLM's blog of 2024-10-17: Llama-3-70B on four H100, vLLM V0, mean latency by request rate.

A 0.5B draft on ShareGPT and n-gram lookup on CNN/DailyMail, in an open loop. What the blog does not
give is solved from the points at 1 request a second, which are not scored: the mean output length
from plain decoding, tau from speculation. Prompt lengths are those of the data sets elsewhere.
vLLM 0.6 of that autumn handles the outputs of a step behind the next one, unless it speculates: the
host time of a plain step no longer grows with its sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites import lengths
from calibration.validation.suites.rows import read

ORIGIN = "vLLM blog, V0"
REQUESTS = 400
OUTPUT_TOKENS = {"ShareGPT": 135, "CNN/DailyMail": 139}
"""Mean, solved from plain decoding at 1 request a second."""

OUTPUT_CV = 0.6
"""Assumed."""

ASYNC_OUTPUT = {"host_plain.per_sequence_us": 0}
START_TAU = 2.5
ANCHOR_RATE = "1"
DRAFT = "qwama-0.5b"

Row = Mapping[str, str]


def cases() -> list[Case]:
    """Every rate of both curves."""
    return [_case(row) for row in read("speculation/vllm_blog.csv")]


def _case(row: Row) -> Case:
    spec_s, plain_s = float(row["e2e_ms"]) / 1e3, float(row["plain_e2e_ms"]) / 1e3
    reading_s = float(row["reading_ms"]) / 1e3
    gain = plain_s / spec_s
    return Case(
        name=_name(row, row["rate_per_s"]),
        suite="speculation",
        origin=ORIGIN,
        source=row["source"],
        labels={
            "model": row["transformer"],
            "tp": row["tp"],
            "engine": row["engine"],
            "strategy": row["strategy"],
            "data_set": row["data_set"],
            "rate_per_s": row["rate_per_s"],
        },
        scenario=_scenario(row),
        measured={"e2e_speedup": gain, "e2e_s.mean": spec_s},
        reading={
            "e2e_speedup": gain * reading_s * (1 / spec_s + 1 / plain_s),
            "e2e_s.mean": reading_s,
        },
        acceptance="batch 1",
        anchor=_name(row, ANCHOR_RATE),
    )


def _name(row: Row, rate: str) -> str:
    strategy = row["strategy"].replace("_", "-")
    return f"vllm-blog/{row['transformer']}-tp{row['tp']}-{strategy}-{rate}-per-s"


def _scenario(row: Row) -> dict[str, Any]:
    strategy: dict[str, Any] = {"kind": row["strategy"], "k": int(row["k"])}
    if row["strategy"] == "draft_model":
        strategy["draft"] = DRAFT
    data_set = row["data_set"]
    output = {"kind": "lognormal", "mean": OUTPUT_TOKENS[data_set], "cv": OUTPUT_CV}
    return {
        "hardware": {"gpu": row["gpu"]},
        "model": {"transformer": row["transformer"], "tp": int(row["tp"])},
        "engine": {"name": row["engine"], "constants": dict(ASYNC_OUTPUT)},
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": float(row["rate_per_s"])},
            "requests": REQUESTS,
            "sampling": "greedy",
            "streams": [{**lengths.stream(data_set), "output_tokens": output}],
        },
        "strategies": [
            {"kind": "autoregressive"},
            {**strategy, "acceptance": {"tau": START_TAU}},
        ],
        "run": {"warmup": 0, "band": False},
    }
