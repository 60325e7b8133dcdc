"""SpecDecode-Bench's breakdown of a step on vLLM 0.10.1: drafting, verifying, sampling, host.

Shares of the wall time of a run on CNN/DailyMail. No acceptance is given: that of n-gram lookup
and EAGLE on Llama-3.1-8B comes from traces, all else is assumed; shares hardly depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites import specdecode_bench_vllm as bench
from calibration.validation.suites.rows import read

ORIGIN = "SpecDecode-Bench steps"
FEW = 60
PARTS = ("draft", "verify", "sampling", "host")


def cases() -> list[Case]:
    """One case a bar of the figure, its shares as ``share.<part>``."""
    return [_case(row) for row in read("speculation/step_breakdown.csv")]


def _case(row: Mapping[str, str]) -> Case:
    plain, drafts = {"kind": "autoregressive"}, row["strategy"] != "autoregressive"
    traced = (row["transformer"], row["strategy"], row["k"]) in bench.TRACES
    shares = {f"share.{part}": float(row[f"{part}_percent"]) / 100 for part in PARTS}
    shares = {metric: share for metric, share in shares.items() if share > 0}
    strategies = [plain, bench.strategy(row, bench.shape(row))] if drafts else [plain]
    return Case(
        name=f"specdecode-bench-steps/{bench.name(row)}",
        suite="speculation",
        origin=ORIGIN,
        source=row["source"],
        labels=bench.labels(row),
        scenario=_scenario(row, strategies),
        measured=shares,
        reading=dict.fromkeys(shares, float(row["reading"]) / 100),
        fitted=_fitted(row),
        acceptance="traces" if traced else "assumed" if drafts else "none",
    )


def _scenario(row: Mapping[str, str], strategies: list[dict[str, Any]]) -> dict[str, Any]:
    """The run; alone, one request's step is as good as another's, and a few tell."""
    found = bench.scenario(row, strategies)
    if row["batch"] == "1":
        found["workload"] |= {"requests": FEW, "arrivals": {"kind": "closed_loop", "users": FEW}}
    return {**found, "run": {"warmup": 0, "band": False}}


def _fitted(row: Mapping[str, str]) -> tuple[str, ...]:
    """Constants of vLLM 0.10 that the shares of a row were used to fit."""
    alone = row["batch"] == "1"
    if row["draft"]:
        return ("draft_layer_us",) if alone else ()
    if row["strategy"] == "autoregressive":
        return ("host_plain.per_sequence_us",)
    mapped = ("draft_vocab_us",) if row["strategy"] == "eagle3" and alone else ()
    host = "host_speculative.per_sequence_us", "host_speculative.per_draft_token_us"
    return (*host, *mapped)
