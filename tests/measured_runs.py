"""Figures measured by others, and the scenario files that replay those runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from calibration.validation.suites.rows import read
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
    """Those load stages that a point of a scenario file replays."""
    rows = {_key(row): [] for row in read("serving/vllm_0.15.csv")}
    for row in read("serving/vllm_0.15.csv"):
        rows[_key(row)].append(row)
    return [
        Stage(
            path.stem,
            float(row["rate_per_s"]),
            int(row["max_num_batched_tokens"]),
            float(row["ttft_mean_ms"]) / 1e3,
            float(row["tpot_mean_ms"]) / 1e3,
            float(row["e2e_mean_ms"]) / 1e3,
        )
        for path in sorted(SCENARIOS.glob("vllm_*.yaml"))
        for point in load(path.stem).points
        for row in rows.get(_asked(point.scenario), [])
    ]


def _key(row: dict[str, str]) -> tuple[Any, ...]:
    return (
        (row["model"], int(row["tp"]), float(row["rate_per_s"])),
        (int(row["prompt_tokens"]), int(row["output_tokens"])),
        (int(row["max_num_batched_tokens"]), float(row["gpu_memory_utilization"] or 0.9)),
    )


def _asked(scenario: Any) -> tuple[Any, ...]:
    model, engine, workload = scenario.model, scenario.engine, scenario.workload
    stream = workload.streams[0]
    return (
        (model.transformer, model.tp, workload.arrivals.rate_per_s),
        (stream.prompt_tokens.value, stream.output_tokens.value),
        (engine.max_num_batched_tokens, engine.gpu_memory_utilization),
    )


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
