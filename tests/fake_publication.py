"""A publication that never was: small cases that a second simulates, and tables of many figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from calibration.validation.case import Case
from calibration.validation.groups import with_groups

SOURCE = "measured by nobody"
TAU = 2.4


def scenario(strategies: list[dict[str, Any]], users: int = 1) -> dict[str, Any]:
    return {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": "llama-3.1-8b"},
        "engine": {"name": "vllm_0.10", "max_num_seqs": users},
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": users},
            "requests": 12,
            "sampling": "greedy",
            "streams": [
                {
                    "prompt_tokens": {"kind": "fixed", "value": 100},
                    "output_tokens": {"kind": "fixed", "value": 40},
                }
            ],
        },
        "strategies": strategies,
    }


def eagle(tau: float) -> dict[str, Any]:
    return {"kind": "eagle", "k": 3, "acceptance": {"tau": tau}}


def plain(name: str = "fake/plain", **measured: float) -> Case:
    figures = {name.replace("__", "."): value for name, value in measured.items()}
    return Case(
        name=name,
        suite="serving",
        origin="Fake Serving",
        source=SOURCE,
        labels={"model": "llama-3.1-8b", "tp": "1", "engine": "vllm_0.10", "workload": "chat"},
        scenario=scenario([{"kind": "autoregressive"}]),
        measured=figures or {"tpot_s.mean": 0.007, "ttft_s.mean": 0.02},
    )


def chain(batch: int, speedup: float, anchor: str = "", tau: float = TAU) -> Case:
    return Case(
        name=f"fake/eagle-b{batch}",
        suite="speculation",
        origin="Fake Bench",
        source=SOURCE,
        labels={"model": "llama-3.1-8b", "engine": "vllm_0.10", "batch": str(batch)},
        scenario=scenario([{"kind": "autoregressive"}, eagle(tau)], batch),
        measured={"speedup": speedup},
        acceptance="batch 1" if anchor else "assumed",
        anchor=anchor,
    )


def cases(suite: str) -> list[Case]:
    """What stands in for ``suites.cases``."""
    return {
        "serving": [plain()],
        "speculation": [
            chain(1, 1.7, "fake/eagle-b1", tau=2.0),
            chain(4, 1.5, "fake/eagle-b1", tau=2.0),
        ],
    }.get(suite, [])


def figures(
    errors: list[float], metric: str = "speedup", measured: float = 1.5, **columns: Any
) -> pd.DataFrame:
    """A table of outcomes with these relative errors, one case each."""
    known = {
        "suite": "speculation",
        "origin": "Fake Bench",
        "model": "llama-3.1-8b",
        "engine": "vllm_0.10",
        "strategy": "eagle",
        "family": "EAGLE",
        "batch": "16",
        "acceptance": "traces",
        "scored": True,
        "in_sample": False,
        "reading": 0.0,
        "basis": "validated",
        "tau": TAU,
        "dataset": "gsm8k",
        **columns,
    }
    predicted = measured * (1 + np.array(errors))
    frame = pd.DataFrame(
        {
            "case": [f"fake/{known['family']}-{index}".lower() for index in range(len(errors))],
            "metric": metric,
            "measured": measured,
            "predicted": predicted,
            "lo": 0.9 * predicted,
            "hi": 1.1 * predicted,
            "relative": errors,
        }
    )
    return with_groups(frame.assign(**known))


def everything() -> pd.DataFrame:
    """Figures of every kind the page shows."""
    serving = {"suite": "serving", "origin": "Fake Serving", "family": "plain", "batch": ""}
    served = serving | {"strategy": "autoregressive", "acceptance": "none", "engine": "vllm_0.15"}
    prefill = served | {"suite": "prefill", "origin": "InferenceMAX", "tp": "4"}
    parts = [
        figures([0.02, -0.03, 0.09], metric, seconds, **served)
        for metric, seconds in (("e2e_s.mean", 4.0), ("ttft_s.mean", 0.04), ("tpot_s.mean", 0.01))
    ]
    parts += [
        figures([0.1], metric, seconds * users, **prefill | {"batch": str(users)}).assign(
            case=f"fake/prefill-{users}"
        )
        for metric, seconds in (("ttft_s.mean", 0.1), ("tpot_s.mean", 0.002))
        for users in (4, 16)
    ]
    parts += [
        figures([0.04, -0.2], "speedup", 2 / batch**0.2, family=family, batch=str(batch)).assign(
            case=[f"fake/{family}-{batch}-{index}" for index in range(2)]
        )
        for family in ("EAGLE", "n-gram")
        for batch in (1, 16, 128)
    ]
    return pd.concat(parts, ignore_index=True)
