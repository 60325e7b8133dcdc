"""Medusa on vLLM V0 (pull request 4978): Mistral-7B and Llama-3-8B on one H100, MT-Bench.

Four heads verify the chain of their best tokens. The host times of the engine entry are fitted to
the rows of Mistral-7B, 2.0 tokens a step assumed; Llama-3-8B is predicted by them, its tau solved
from its own batch-1 point. ``held_out`` turns this round: Mistral-7B by what Llama-3-8B gives.
Above 51 sequences the scorer's five rows each exceed the 256 rows V0 has graphs for: not fitted to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibration.validation.case import Case
from calibration.validation.suites.rows import read
from models import catalog
from models.kernels import Kernels
from models.step_time import Deployed, StepTime
from models.strategies import strategy_types

ORIGIN = "vLLM PR 4978"
FIT, OTHER = "mistral-7b", "llama-3.1-8b"
TAU = 2.0
HEADS = 4
HELD_OUT = "-held-out"
PROMPT_TOKENS, OUTPUT_TOKENS, OUTPUT_CV = 100, 256, 0.5
"""Assumed of MT-Bench; what varies ends requests one by one, each with a prompt step behind it."""

FEWEST_REQUESTS, REQUESTS_A_USER = 160, 20
FITTED = (
    "host_plain.per_step_us",
    "host_plain.per_sequence_us",
    "host_speculative.per_step_us",
    "host_speculative.per_sequence_us",
)

Row = Mapping[str, str]


def cases() -> list[Case]:
    """Every concurrency of both models, with the constants of the engine entry."""
    return [_case(row) for row in _rows()]


def held_out() -> list[Case]:
    """Every concurrency of the model the entry is fitted to, by host times fitted to the other."""
    constants = host_us([row for row in _rows() if row["transformer"] == OTHER])
    return [_case(row, constants) for row in _rows() if row["transformer"] == FIT]


def host_us(rows: Sequence[Row]) -> dict[str, float]:
    """Host times fitted to the concurrencies that run in graphs [us]: least relative squares.

    Parameters
    ----------
    rows : sequence of mapping
        Columns ``gpu``, ``transformer``, ``engine``, ``batch``, ``plain_tok_per_s``,
        ``medusa_tok_per_s``.
    """
    plain = _line(rows, {"kind": "autoregressive"}, 1.0, "plain_tok_per_s")
    medusa = _line(rows, _medusa(TAU), TAU, "medusa_tok_per_s")
    return {name: round(us, 1) for name, us in zip(FITTED, (*plain, *medusa), strict=True)}


def _rows() -> list[dict[str, str]]:
    return read("speculation/medusa_vllm_v0.csv")


def _line(
    rows: Sequence[Row], strategy: Mapping[str, Any], tau: float, column: str
) -> tuple[float, float]:
    """What a measured step takes beyond the modelled GPU: a step, and more a sequence [us].

    Between the decode steps, prompts take steps of their own: one for every request that ends.
    """
    design, wanted = [], []
    for row in rows:
        batch = int(row["batch"])
        step_time = _step_time(row, strategy)
        if batch * step_time.width > step_time.deployed.engine.graphs.largest:
            continue
        step_us = 1e6 * tau * batch / float(row[column])
        context = batch * (PROMPT_TOKENS + OUTPUT_TOKENS // 2)
        parts = step_time.breakdown(batch, context)
        prompts = batch * tau / OUTPUT_TOKENS
        gpu_s = sum(parts.values()) - parts["host"] + prompts * _prompt_s(step_time)
        design.append([(1 + prompts) / step_us, (batch + prompts) / step_us])
        wanted.append(1 - 1e6 * gpu_s / step_us)
    found = np.linalg.lstsq(np.array(design), np.array(wanted), rcond=None)[0]
    return float(found[0]), float(found[1])


def _prompt_s(step_time: StepTime) -> float:
    """GPU time of a step that computes one prompt [s]."""
    n = PROMPT_TOKENS
    step_s = step_time.mixed(0, 0.0, 0, 0.0, n, float(n), n * n / 2, 1)
    return step_s - step_time.host_s(1)


def _step_time(row: Row, stated: Mapping[str, Any]) -> StepTime:
    strategy = strategy_types()[stated["kind"]].model_validate(dict(stated))
    accelerator = catalog.hardware(row["gpu"])
    deployed = Deployed(
        kernels=Kernels(accelerator, catalog.profile(accelerator.profile)),
        target=catalog.transformer(row["transformer"]),
        engine=catalog.engine(row["engine"]),
        weights="bf16",
        kv="bf16",
        tp=1,
        top_p=False,
        max_num_seqs=int(row["batch"]),
        max_num_batched_tokens=8192,
    )
    return StepTime(deployed, strategy)


def _medusa(tau: float) -> dict[str, Any]:
    return {"kind": "medusa", "heads": HEADS, "acceptance": {"tau": tau}}


def _name(row: Row, batch: str, constants: Mapping[str, float] | None) -> str:
    end = HELD_OUT if constants else ""
    return f"vllm-pr-4978/{row['transformer']}-medusa-b{batch}{end}"


def _case(row: Row, constants: Mapping[str, float] | None = None) -> Case:
    in_sample = row["transformer"] == FIT and constants is None
    measured = {"speedup": float(row["medusa_tok_per_s"]) / float(row["plain_tok_per_s"])}
    return Case(
        name=_name(row, row["batch"], constants),
        suite="speculation",
        origin=ORIGIN,
        source=row["source"],
        labels={
            "model": row["transformer"],
            "tp": "1",
            "engine": row["engine"],
            "strategy": "medusa",
            "data_set": "MT-Bench",
            "batch": row["batch"],
        },
        scenario=_scenario(row, constants),
        measured={**measured, "tok_per_s": float(row["medusa_tok_per_s"])},
        fitted=FITTED if in_sample else (),
        acceptance="assumed" if row["transformer"] == FIT else "batch 1",
        anchor="" if row["transformer"] == FIT else _name(row, "1", constants),
    )


def _scenario(row: Row, constants: Mapping[str, float] | None) -> dict[str, Any]:
    users = int(row["batch"])
    engine: dict[str, Any] = {"name": row["engine"], "max_num_seqs": users}
    if constants:
        engine["constants"] = dict(constants)
    stream = {
        "prompt_tokens": {"kind": "fixed", "value": PROMPT_TOKENS},
        "output_tokens": {"kind": "lognormal", "mean": OUTPUT_TOKENS, "cv": OUTPUT_CV},
    }
    return {
        "hardware": {"gpu": row["gpu"]},
        "model": {"transformer": row["transformer"]},
        "engine": engine,
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": users},
            "requests": max(FEWEST_REQUESTS, REQUESTS_A_USER * users),
            "sampling": "greedy",
            "streams": [stream],
        },
        "strategies": [{"kind": "autoregressive"}, _medusa(TAU)],
        "run": {"warmup": 0, "band": False},
    }
