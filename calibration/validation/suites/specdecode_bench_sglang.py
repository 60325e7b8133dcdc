"""SpecDecode-Bench on SGLang 0.5.9 (arXiv 2601.11580): EAGLE-3 chains and trees on Qwen3-8B.

Steps of three: a chain, a tree of branch 2 and one of branch 4, verified as 4, 6 and 21 tokens a
sequence, the root among them: the acceptance rate the publication prints beside its acceptance
length, accepted drafts over drafts without the root as SGLang counts them, holds for 3 and 20
drafts and not for 21. Acceptance is solved from the batch-1 point of each curve, which is then not
scored. Lengths are those of Llama-3.1-8B on the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites import lengths
from calibration.validation.suites.rows import read
from models import catalog

ORIGIN = "SpecDecode-Bench, SGLang"
REQUESTS = 500
START_TAU = 2.0
"""Until the batch-1 point has been solved."""

FLAT = "128"
UNKNOWN_BATCH = (
    "every curve is flat from batch 64 to 128, which no engine is that runs 128 sequences"
)

Row = Mapping[str, str]


def cases() -> list[Case]:
    """Every point, curve by curve."""
    return [_case(row) for row in read("speculation/specdecode_bench_sglang.csv")]


def shape_of(row: Row) -> str:
    """``chain``, or ``tree of 21`` verified tokens."""
    return "chain" if row["topk"] == "1" else f"tree of {row['draft_tokens']}"


def _case(row: Row) -> Case:
    return Case(
        name=_name(row, row["batch"]),
        suite="speculation",
        origin=ORIGIN,
        source=row["source"],
        labels={
            "model": row["transformer"],
            "tp": row["tp"],
            "engine": row["engine"],
            "strategy": row["strategy"],
            "shape": shape_of(row),
            "data_set": row["data_set"],
            "batch": row["batch"],
        },
        scenario=_scenario(row),
        measured={"speedup": float(row["speedup"])},
        reading={"speedup": float(row["reading"])},
        acceptance="batch 1",
        anchor=_name(row, "1"),
        unscored=UNKNOWN_BATCH if row["batch"] == FLAT else "",
    )


def _name(row: Row, batch: str) -> str:
    domain = lengths.DOMAINS[row["data_set"]].replace("_", "-")
    shape = shape_of(row).replace(" of ", "-")
    return (
        f"specdecode-bench-sglang/{row['transformer']}-{row['strategy']}-{shape}-{domain}-b{batch}"
    )


def _scenario(row: Row) -> dict[str, Any]:
    return {
        "hardware": {"gpu": row["gpu"]},
        "model": {"transformer": row["transformer"], "tp": int(row["tp"])},
        "engine": {"name": row["engine"], "max_num_seqs": int(row["batch"])},
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": REQUESTS},
            "requests": REQUESTS,
            "sampling": "greedy",
            "streams": [lengths.stream(row["data_set"])],
        },
        "strategies": [{"kind": "autoregressive"}, _strategy(row)],
        "run": {"warmup": 0, "band": False},
    }


def _strategy(row: Row) -> dict[str, Any]:
    """Requests of a data set differ in acceptance as in the traces of EAGLE on Llama-3.1-8B."""
    steps, topk = int(row["steps"]), int(row["topk"])
    entry = catalog.entry("acceptance", "eagle_llama31_8b")["acceptance"]["by_domain"]
    spread = entry[lengths.DOMAINS[row["data_set"]]]["spread"]
    found: dict[str, Any] = {
        "kind": row["strategy"],
        "acceptance": {"tau": START_TAU, "spread": spread},
    }
    if topk == 1:
        return {**found, "k": steps}
    tree = {"total_tokens": int(row["draft_tokens"]), "passes": steps, "topk": topk}
    return {**found, "tree": tree}
