"""Single streams: the EAGLE-3 paper, Medusa's paper and logs, Spec-Bench, and SGLang.

Where tau stands beside the speedup, their ratio is the step of the strategy over a plain one: what
a model of steps can predict, and what differs by 20 to 50 % between harnesses for one method.
Methods without a model here (Hydra, REST, Recycling, SAMD, HASS) are left out, so are rows without
a tau (Lookahead's and most of Medusa's own) and 70B models, which that code splits by layers.
K of the draft model and of prompt lookup, and (W, N, G) of Lookahead, are not stated: assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites.rows import read

PROMPT_TOKENS, OUTPUT_TOKENS = 200, 512
REQUESTS = 8
SHAPES: dict[str, dict[str, Any]] = {
    "draft_model": {"draft": "llama-68m", "k": 5},
    "ngram": {"k": 10},
    "medusa": {"heads": 4, "tree": "medusa_63"},
    "lookahead": {"w": 15, "n": 5, "g": 15},
    "eagle": {"tree": "eagle_25"},
    "eagle2": {},
    "eagle3": {"tree": {}},
}
"""What the reference code runs when not told otherwise."""

SGLANG_TREE = {"tree": {"total_tokens": 64, "passes": 8, "topk": 8}}
LOOKAHEAD_13B = {"w": 10, "n": 5, "g": 10}
FITTED_TREES = ("tree_pass_us",)
ABOVE_TAU = "the speedup printed exceeds the tokens a step"
NOT_STATED = "the GPU is not stated"

Row = Mapping[str, str]


def cases() -> list[Case]:
    """Every row, harness by harness."""
    return [_case(row) for row in read("speculation/single_stream.csv")]


def _case(row: Row) -> Case:
    sglang = row["harness"] == "SGLang"
    measured = {}
    if row["speedup"]:
        measured["step_ratio"] = float(row["tau"]) / float(row["speedup"])
        measured["speedup"] = float(row["speedup"])
    if row["tok_per_s"]:
        measured["tok_per_s"] = float(row["tok_per_s"])
    return Case(
        name=_name(row),
        suite="speculation",
        origin=f"single stream, {row['harness']}",
        source=row["source"],
        labels={
            "harness": row["harness"],
            "model": row["transformer"],
            "target": row["target"],
            "tp": "1",
            "engine": row["engine"],
            "strategy": row["strategy"],
            "data_set": row["data_set"],
            "batch": "1",
        },
        scenario=_scenario(row),
        measured=measured,
        fitted=FITTED_TREES if sglang else (),
        acceptance="published",
        unscored=_unscored(row),
    )


def _unscored(row: Row) -> str:
    if not row["speedup"]:
        return NOT_STATED
    return ABOVE_TAU if float(row["speedup"]) > float(row["tau"]) else ""


def _name(row: Row) -> str:
    parts = (row["harness"], row["target"], row["strategy"], row["data_set"])
    words = "-".join(parts).lower().replace(",", "")
    for mark in " _/":
        words = words.replace(mark, "-")
    return f"single-stream/{words}"


def _scenario(row: Row) -> dict[str, Any]:
    stream = {"prompt_tokens": PROMPT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    return {
        "hardware": {"gpu": row["gpu"]},
        "model": {"transformer": row["transformer"]},
        "engine": {"name": row["engine"], "max_num_seqs": 1},
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": 1},
            "requests": REQUESTS,
            "sampling": "greedy",
            "streams": [
                {name: {"kind": "fixed", "value": tokens} for name, tokens in stream.items()}
            ],
        },
        "strategies": [{"kind": "autoregressive"}, _strategy(row)],
        "run": {"warmup": 0, "band": False},
    }


def _strategy(row: Row) -> dict[str, Any]:
    """A few requests alike: tau is that of the whole run."""
    kind = row["strategy"]
    shape = SHAPES[kind]
    if row["harness"] == "SGLang":
        shape = SGLANG_TREE
    elif kind == "lookahead" and row["transformer"] == "vicuna-13b":
        shape = LOOKAHEAD_13B
    return {"kind": kind, **shape, "acceptance": {"tau": float(row["tau"]), "spread": 0}}
