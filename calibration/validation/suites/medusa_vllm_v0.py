"""Medusa on vLLM V0 (pull request 4978): Mistral-7B on one H100, MT-Bench, by concurrency.

Four heads verify the chain of their best tokens; 2.0 tokens a step are assumed, as when the host
times of the engine entry were fitted to these very rows. ``held_out`` predicts each concurrency by
host times fitted to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibration.validation.case import Case
from calibration.validation.suites.rows import read
from models import catalog
from models.kernels import Kernels
from models.step_time import Deployed, StepTime
from models.strategies import strategy_types

ORIGIN = "vLLM PR 4978"
TAU = 2.0
HEADS = 4
PROMPT_TOKENS, OUTPUT_TOKENS = 100, 256
"""Assumed of MT-Bench; a token more or less of context takes nanoseconds."""

REQUESTS_A_USER = 20
FITTED = (
    "host_plain.per_step_us",
    "host_plain.per_sequence_us",
    "host_speculative.per_step_us",
    "host_speculative.per_sequence_us",
)

Row = Mapping[str, str]


def cases() -> list[Case]:
    """Every concurrency, with the constants of the engine entry: in-sample."""
    return [_case(row) for row in read("speculation/medusa_vllm_v0.csv")]


def held_out() -> list[Case]:
    """Every concurrency, with host times fitted to the other ones."""
    rows = read("speculation/medusa_vllm_v0.csv")
    found = []
    for row, case in zip(rows, cases(), strict=True):
        others = [other for other in rows if other is not row]
        engine = {**case.scenario["engine"], "constants": host_us(others)}
        found.append(
            replace(
                case,
                name=f"{case.name}-held-out",
                labels={**case.labels, "constants": "held out"},
                scenario={**case.scenario, "engine": engine},
                fitted=(),
            )
        )
    return found


def host_us(rows: Sequence[Row]) -> dict[str, float]:
    """Host times fitted to some concurrencies [us]: least squares of relative error.

    Parameters
    ----------
    rows : sequence of mapping
        Columns ``transformer``, ``engine``, ``batch``, ``plain_tok_per_s``, ``medusa_tok_per_s``.
    """
    plain, medusa = (
        _line(rows, strategy, tau, column)
        for strategy, tau, column in (
            ({"kind": "autoregressive"}, 1.0, "plain_tok_per_s"),
            (_medusa(), TAU, "medusa_tok_per_s"),
        )
    )
    return {name: round(us, 1) for name, us in zip(FITTED, (*plain, *medusa), strict=True)}


def _line(
    rows: Sequence[Row], strategy: Mapping[str, Any], tau: float, column: str
) -> tuple[float, float]:
    """What a measured step takes beyond the modelled GPU: a step, and more a sequence [us]."""
    batch = np.array([float(row["batch"]) for row in rows])
    step_us = 1e6 * tau * batch / np.array([float(row[column]) for row in rows])
    gpu_us = np.array([_gpu_us(row, strategy) for row in rows])
    design = np.column_stack([np.ones_like(batch), batch]) / step_us[:, None]
    found = np.linalg.lstsq(design, (step_us - gpu_us) / step_us, rcond=None)[0]
    return float(found[0]), float(found[1])


def _gpu_us(row: Row, stated: Mapping[str, Any]) -> float:
    """One decode step by the model without its host [us]."""
    batch, engine = int(row["batch"]), catalog.engine(row["engine"])
    strategy = strategy_types()[stated["kind"]].model_validate(dict(stated))
    accelerator = catalog.hardware(row["gpu"])
    deployed = Deployed(
        kernels=Kernels(accelerator, catalog.profile(accelerator.profile)),
        target=catalog.transformer(row["transformer"]),
        engine=engine,
        weights="bf16",
        kv="bf16",
        tp=1,
        top_p=False,
        max_num_seqs=batch,
        max_num_batched_tokens=8192,
    )
    context = batch * (PROMPT_TOKENS + OUTPUT_TOKENS // 2)
    parts = StepTime(deployed, strategy).breakdown(batch, context)
    return 1e6 * (sum(parts.values()) - parts["host"])


def _medusa() -> dict[str, Any]:
    return {"kind": "medusa", "heads": HEADS, "acceptance": {"tau": TAU}}


def _case(row: Row) -> Case:
    users = int(row["batch"])
    plain = float(row["plain_tok_per_s"])
    return Case(
        name=f"vllm-pr-4978/{row['transformer']}-medusa-b{row['batch']}",
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
        scenario={
            "hardware": {"gpu": row["gpu"]},
            "model": {"transformer": row["transformer"]},
            "engine": {"name": row["engine"], "max_num_seqs": users},
            "workload": {
                "arrivals": {"kind": "closed_loop", "users": users},
                "requests": REQUESTS_A_USER * users,
                "sampling": "greedy",
                "streams": [
                    {
                        "prompt_tokens": {"kind": "fixed", "value": PROMPT_TOKENS},
                        "output_tokens": {"kind": "fixed", "value": OUTPUT_TOKENS},
                    }
                ],
            },
            "strategies": [{"kind": "autoregressive"}, _medusa()],
            "run": {"warmup": 0, "band": False},
        },
        measured={
            "speedup": float(row["medusa_tok_per_s"]) / plain,
            "tok_per_s": float(row["medusa_tok_per_s"]),
        },
        fitted=FITTED,
        acceptance="assumed",
    )
