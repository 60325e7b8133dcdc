"""SpecDecode-Bench on vLLM 0.10.1 (arXiv 2601.11580): speedups by batch, strategy and data set.

500 requests are queued at once and at most a batch of them runs; prompts are prefilled in the steps
that decode. The publication gives no acceptance of these runs. Its released traces of
Llama-3.1-8B fit the runs on GSM8K and ShareGPT, less so those on CNN/DailyMail and InstructCoder;
everything else is solved from the batch-1 point of its own curve, and so are, once more, the
points that the traces predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Acceptance, Case
from calibration.validation.suites import lengths
from calibration.validation.suites.rows import read
from models import catalog

ORIGIN = "SpecDecode-Bench"
REQUESTS = 500
MAX_NUM_BATCHED_TOKENS = 8192
START_TAU = 2.0
"""Of a chain, until its batch-1 point has been solved."""

LARGE_BATCH = 64
REPLICATIONS = 3
"""Of large batches: 500 requests end in a thin tail, and seeds move a speedup by 1 to 4 %."""

TRACES = {
    ("llama-3.1-8b", "eagle", "3"): "eagle_llama31_8b",
    ("llama-3.1-8b", "ngram", "3"): "ngram_llama31_8b",
}
OF_THIS_RUN = ("gsm8k", "sharegpt")
"""Data sets whose traces have the acceptance of the runs that were timed."""

Row = Mapping[str, str]

SMALL = ("1", "16")
"""Batches at which speedups of EAGLE were used to fit the host time of a step as well."""


def cases() -> list[Case]:
    """Every point with traces, then every curve with a batch-1 point, solved from it."""
    rows = read("speculation/specdecode_bench_vllm.csv")
    anchored = {_curve(row) for row in rows if row["batch"] == "1"}
    replayed = [_replayed(row) for row in rows if _traced(row)]
    return replayed + [_solved(row) for row in rows if _curve(row) in anchored]


def scenario(row: Row, strategies: list[dict[str, Any]]) -> dict[str, Any]:
    """The run behind a row of this publication.

    Parameters
    ----------
    row : mapping
        Columns ``gpu``, ``transformer``, ``tp``, ``engine``, ``data_set``, ``batch``.
    strategies : list of dict
        As a scenario has them.
    """
    return {
        "hardware": {"gpu": row["gpu"]},
        "model": {"transformer": row["transformer"], "tp": int(row["tp"])},
        "engine": {
            "name": row["engine"],
            "max_num_seqs": int(row["batch"]),
            "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
        },
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": REQUESTS},
            "requests": REQUESTS,
            "sampling": "greedy",
            "streams": [lengths.stream(row["data_set"])],
        },
        "strategies": strategies,
        "run": {"warmup": 0, "band": False, "replications": _replications(row)},
    }


def _replications(row: Row) -> int:
    return REPLICATIONS if int(row["batch"]) >= LARGE_BATCH else 1


def strategy(row: Row, acceptance: Mapping[str, Any]) -> dict[str, Any]:
    """The strategy of a row; a draft model is split over the GPUs as the target is."""
    found: dict[str, Any] = {"kind": row["strategy"], "k": int(row["k"])}
    if row["draft"]:
        found |= {"draft": row["draft"], "draft_tp": int(row["tp"])}
    return {**found, "acceptance": dict(acceptance)}


def shape(row: Row) -> dict[str, Any]:
    """Acceptance of a row before its tau is known: what the data set makes of any strategy.

    Requests of a data set differ as much in one strategy as in another, and n-grams are matched
    in stretches; both come from the traces of Llama-3.1-8B.
    """
    domain = lengths.DOMAINS[row["data_set"]]
    lookup = row["strategy"] == "ngram"
    entry = catalog.entry("acceptance", f"{'ngram' if lookup else 'eagle'}_llama31_8b")
    known = dict(entry["acceptance"]["by_domain"][domain])
    return known if lookup else {"tau": START_TAU, "spread": known["spread"]}


def name(row: Row) -> str:
    """``<model>-<strategy>-<data set>-b<batch>`` of a row."""
    tp = f"-tp{row['tp']}" if row["tp"] != "1" else ""
    draft = f"-{row['draft']}" if row["draft"] else ""
    k = f"-k{row['k']}" if row["k"] else ""
    domain = lengths.DOMAINS[row["data_set"]].replace("_", "-")
    kind = row["strategy"].replace("_", "-")
    return f"{row['transformer']}{tp}-{kind}{draft}{k}-{domain}-b{row['batch']}"


def labels(row: Row) -> dict[str, str]:
    """What cases of this publication are grouped by."""
    kept = ("tp", "engine", "strategy", "draft", "k", "batch")
    own = {key: row[key] for key in kept if row[key]}
    return {"model": row["transformer"], "data_set": row["data_set"], **own}


def _curve(row: Row) -> tuple[str, ...]:
    return tuple(value for key, value in row.items() if key not in ("batch", "speedup", "source"))


def _traced(row: Row) -> bool:
    return (row["transformer"], row["strategy"], row["k"]) in TRACES


def _replayed(row: Row) -> Case:
    entry = TRACES[row["transformer"], row["strategy"], row["k"]]
    own = lengths.DOMAINS[row["data_set"]] in OF_THIS_RUN
    traces = "this run" if own else "another run"
    return _case(row, {"catalog": entry}, "traces", name(row), {"traces_of": traces})


def _solved(row: Row) -> Case:
    anchor = f"specdecode-bench/{name({**row, 'batch': '1'})}-solved"
    return _case(row, shape(row), "batch 1", f"{name(row)}-solved", {}, anchor)


def _case(
    row: Row,
    acceptance: Mapping[str, Any],
    origin: Acceptance,
    called: str,
    more: Mapping[str, str],
    anchor: str = "",
) -> Case:
    plain = {"kind": "autoregressive"}
    return Case(
        name=f"specdecode-bench/{called}",
        suite="speculation",
        origin=ORIGIN,
        source=row["source"],
        labels={**labels(row), **more},
        scenario=scenario(row, [plain, strategy(row, acceptance)]),
        measured={"speedup": float(row["speedup"])},
        reading={"speedup": float(row["reading"])},
        fitted=_fitted(row, origin),
        acceptance=origin,
        anchor=anchor,
    )


def _fitted(row: Row, origin: Acceptance) -> tuple[str, ...]:
    """Constants of vLLM 0.10 a speedup was used to fit, with the times by draft length."""
    if row["strategy"] != "eagle" or origin != "traces":
        return ()
    step = row["batch"] in SMALL and lengths.DOMAINS[row["data_set"]] in OF_THIS_RUN
    return ("draft_pass_us", "host_plain.per_step_us") if step else ("draft_pass_us",)
