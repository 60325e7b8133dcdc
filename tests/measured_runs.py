"""Figures measured by others, and the scenario files that replay those runs."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sim import experiment
from sim.scenario.load import ScenarioFile, load_scenario

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "examples" / "measured"

Row = dict[str, Any]


class Stage(NamedTuple):
    """One load stage of a real server: means [s]."""

    scenario: str
    rate_per_s: float
    max_num_batched_tokens: int
    ttft_s: float
    tpot_s: float
    e2e_s: float


def stages() -> list[Stage]:
    """Those stages that a scenario file replays."""
    return [
        Stage(
            row["scenario"],
            float(row["rate_per_s"]),
            int(row["max_num_batched_tokens"]),
            float(row["ttft_ms"]) / 1e3,
            float(row["tpot_ms"]) / 1e3,
            float(row["e2e_ms"]) / 1e3,
        )
        for row in _table("vllm_h100.csv")
        if row["scenario"]
    ]


class Prefill(NamedTuple):
    """One closed loop with uncached prompts: nominal lengths, users, times [s]."""

    prompt_nominal: int
    output_nominal: int
    users: int
    ttft_s: float
    tpot_s: float


def prefills() -> list[Prefill]:
    return [
        Prefill(
            int(row["prompt_nominal"]),
            int(row["output_nominal"]),
            int(row["users"]),
            float(row["ttft_ms"]) / 1e3,
            float(row["tpot_ms"]) / 1e3,
        )
        for row in _table("inferencemax_h100.csv")
    ]


def _table(name: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / "measured" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def load(scenario: str) -> ScenarioFile:
    return load_scenario(SCENARIOS / f"{scenario}.yaml")


@cache
def simulated(scenario: str) -> list[Row]:
    return list(experiment.run(load(scenario)).document["rows"])


def only(rows: list[Row], **asked: Any) -> Row:
    """The one row whose point, or strategy kind, is the one asked for."""
    found = [row for row in rows if all(_has(row, key, value) for key, value in asked.items())]
    assert len(found) == 1, (asked, [row["point"] for row in found])
    return found[0]


def _has(row: Row, key: str, value: Any) -> bool:
    if key == "kind":
        return bool(row["strategy"].split()[0] == value)
    at = {name.rpartition(".")[2]: varied for name, varied in row["point"].items()}
    return bool(at.get(key, value) == value)
