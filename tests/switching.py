"""Small closed loops whose sequences switch, and sums over what they did."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from models.strict_yaml import load_yaml
from sim.engine.recorder import Recorder
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.scenario.requests import Requests
from sim.scenario.workload import generate
from sim.setup import Setup, prepare
from tests.server import simulate_with_rows

COLUMNS = (
    *("replica", "start_s", "duration_s", "draft_s", "verify_s", "host_s", "n_decode"),
    *("prefill_tokens", "verify_tokens", "emitted", "blocks_used", "waiting"),
)
"""Columns of a step row."""

EAGLE = {"kind": "eagle3", "k": 5, "acceptance": {"alpha": 0.6, "spread": 0}}
MEDUSA = {"kind": "medusa", "tree": "medusa_63"}
LOOKAHEAD = {"kind": "lookahead"}
PLAIN = {"kind": "autoregressive"}


def chain(kind: str = "eagle3", k: int = 5, **acceptance: Any) -> dict[str, Any]:
    """A chain of ``k`` tokens, each accepted with chance 0.6 unless stated otherwise."""
    draft = {"draft": "llama-3.2-1b"} if kind == "draft_model" else {}
    return {
        "kind": kind,
        "k": k,
        "acceptance": {"spread": 0, **(acceptance or {"alpha": 0.6})},
        **draft,
    }


def gate(primary: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "adaptive", "primary": primary, **more}


def dynamic(rule: dict[str, Any], primary: dict[str, Any] | None = None, **more: Any) -> Any:
    return {"kind": "dynamic_k", "primary": primary or EAGLE, "rule": rule, **more}


def scheduled(*by_batch: list[int], dead_band: int = 0) -> dict[str, Any]:
    return {"kind": "schedule", "by_batch": list(by_batch), "dead_band": dead_band}


class Served:
    """One run: what was asked, what was recorded, and its decode steps as columns."""

    def __init__(self, setup: Setup, requests: Requests, recorder: Recorder) -> None:
        self.setup, self.requests, self.recorder = setup, requests, recorder
        self.log = recorder.log
        rows = np.array(recorder.rows, dtype=float).reshape(-1, len(COLUMNS))
        self.steps = dict(zip(COLUMNS, rows.T, strict=True))

    def modes(self) -> np.ndarray:
        """Sums over time of `ModeLog.sums`, by mode and field, all replicas."""
        return sum(log.sums().sum(axis=0) for log in self.recorder.modes.values())

    def switches(self) -> list[Any]:
        return [switch for log in self.recorder.modes.values() for switch in log.switches]

    def decode_rate(self) -> float:
        """Tokens decode steps emitted over their time, steps with prefill chunks left out."""
        pure = (self.steps["prefill_tokens"] == 0) & (self.steps["n_decode"] > 0)
        return self.steps["emitted"][pure].sum() / self.steps["duration_s"][pure].sum()

    def makespan_s(self) -> float:
        return max(self.log.finish_s)


def serve(strategy: dict[str, Any], seed: int = 1, **changes: Any) -> Served:
    """Serve a closed loop of 8 users whose requests are 200 + 100 tokens, unless changed."""
    workload = {
        "arrivals": changes.pop(
            "arrivals", {"kind": "closed_loop", "users": changes.pop("users", 8)}
        ),
        "requests": changes.pop("requests", 32),
        "streams": changes.pop("streams", None)
        or [
            {
                "prompt_tokens": _length(changes.pop("prompt", 200)),
                "output_tokens": _length(changes.pop("output", 100)),
            }
        ],
    }
    data = {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": "llama-3.1-8b"},
        "workload": workload,
        "strategies": [{"hypothetical": True, **strategy}],
        "run": {"band": False},
        **changes,
    }
    file = parse_scenario(load_yaml(json.dumps(data), "scenario.yaml"), [])
    scenario = file.points[0].scenario
    asked = next(one for one in scenario.strategies if one.kind == strategy["kind"])
    setup = prepare(build(scenario), asked, scenario.workload.domain_names)
    requests = generate(scenario.workload, seed=seed, replication=0)
    return Served(setup, requests, simulate_with_rows(setup.plan(), requests, seed))


def _length(value: Any) -> Any:
    return value if isinstance(value, dict) else {"kind": "fixed", "value": value}
