"""SpecDecode-Bench's breakdown of a step on vLLM 0.10.1: drafting, verifying, sampling, host.

Shares of the wall time of a run on CNN/DailyMail. No acceptance is given: that of n-gram lookup
and EAGLE on Llama-3.1-8B comes from traces, all else is assumed; shares hardly depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from calibration.validation.case import Case
from calibration.validation.suites import specdecode_bench_vllm as bench
from calibration.validation.suites.rows import read

ORIGIN = "SpecDecode-Bench steps"
PARTS = ("draft", "verify", "sampling", "host")


def cases() -> list[Case]:
    """One case a bar of the figure, its shares as ``share.<part>``."""
    return [_case(row) for row in read("speculation/step_breakdown.csv")]


def _case(row: Mapping[str, str]) -> Case:
    plain, drafts = {"kind": "autoregressive"}, row["strategy"] != "autoregressive"
    traced = (row["transformer"], row["strategy"], row["k"]) in bench.TRACES
    shares = {f"share.{part}": float(row[f"{part}_percent"]) / 100 for part in PARTS}
    shares = {metric: share for metric, share in shares.items() if share > 0}
    return Case(
        name=f"specdecode-bench-steps/{bench.name(row)}",
        suite="speculation",
        origin=ORIGIN,
        source=row["source"],
        labels=bench.labels(row),
        scenario=bench.scenario(
            row, [plain, bench.strategy(row, bench.shape(row))] if drafts else [plain]
        ),
        measured=shares,
        reading=dict.fromkeys(shares, float(row["reading"]) / 100),
        fitted=("draft_layer_us",) if row["draft"] and row["batch"] == "1" else (),
        acceptance="traces" if traced else "assumed" if drafts else "none",
    )
