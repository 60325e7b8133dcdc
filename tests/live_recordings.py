"""Recordings as a live server leaves them: simulated ones, and tables made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.live import recording
from calibration.live.compare import stages as comparing
from calibration.live.compare.predict import Ends, Prediction
from calibration.live.recording import Observation, Stage
from sim import experiment
from sim.analysis.timeline import course
from sim.scenario.load import load_scenario
from sim.tables import Columns, RunTable, Status

SCENARIO = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: closed_loop, users: 1}
  requests: 24
  sampling: greedy
  streams:
    - prompt_tokens: {kind: lognormal, mean: 300, cv: 0.7}
      output_tokens: {kind: lognormal, mean: 40, cv: 0.5}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {alpha: 0.7}}
run: {band: false}
"""
PLAIN = {"autoregressive": {"kind": "autoregressive"}}
EAGLE = {"eagle3 K=3": {"kind": "eagle3", "k": 3}}
ARRIVALS = {
    "concurrency": "{{kind: closed_loop, users: {}, stagger_s: 0.024}}",
    "rate_per_s": "{{kind: poisson, rate_per_s: {}}}",
}


def about(strategies: dict[str, Any], mode: str = "closed_loop") -> dict[str, Any]:
    return {
        "made_by": "observe",
        "date": "2026-11-30",
        "target": "llama-3.1-8b",
        "machine": "one H100",
        "mode": mode,
        "server": {"engine": "vllm", "version": "0.32.0", "info": {}},
        "strategies": strategies,
    }


def simulated(
    folder: Path, key: str, loads: Sequence[float], strategies: dict[str, Any], repeats: int = 2
) -> tuple[Path, Path]:
    """Folder of a recording made by the simulator, and the scenario that made it."""
    file = folder / "scenario.yaml"
    file.write_text(SCENARIO, "utf-8")
    (label,) = strategies
    stages, runs = [], []
    for replication in range(repeats):
        for load in loads:
            arrivals = f"workload.arrivals={ARRIVALS[key].format(load)}"
            made = load_scenario(file, [arrivals, f"run.seed={replication + 1}"])
            result = experiment.run(made)
            requests = next(run for run in result.requests if run.strategy == label)
            timeline = next(run for run in result.timelines if run.strategy == label)
            use = float(course(timeline.columns, "kv_use", 1).values[0])
            gauges = {"kv_use": {"mean": use, "max": use}}
            stages.append(Stage({key: load}, replication, label, gauges=gauges))
            runs.append(requests._replace(point={key: load}, replication=replication))
    recording.write(folder / "runs", about(strategies), stages, runs)
    return folder / "runs", file


def by_hand(n: int, ttft_s: float = 0.1, tpot_s: float = 0.01, output: int = 11) -> Columns:
    """``n`` alike requests one after another: E2E is ``ttft_s + (output - 1) * tpot_s``."""
    e2e_s = ttft_s + (output - 1) * tpot_s
    arrival_s = e2e_s * np.arange(n)
    counts = ("replica", "cached_tokens", "n_steps", "drafted", "accepted")
    columns: Columns = {name: np.zeros(n, dtype=np.int64) for name in counts}
    columns |= {name: np.zeros(n, dtype=np.int64) for name in ("preemptions", "discarded_tokens")}
    return columns | {
        "id": np.arange(n),
        "session": np.arange(n),
        "attempts": np.ones(n, dtype=np.int64),
        "status": np.full(n, Status.FINISHED, dtype=np.int8),
        "prompt_tokens": np.full(n, 100),
        "output_tokens": np.full(n, output),
        "arrival_s": arrival_s,
        "schedule_s": np.full(n, np.nan),
        "first_token_s": arrival_s + ttft_s,
        "finish_s": arrival_s + e2e_s,
        "stream": np.full(n, "live", dtype=object),
        "domain": np.full(n, "text", dtype=object),
    }


def observation(
    stages: Sequence[Stage], tables: Sequence[Columns], strategies: dict[str, Any] = PLAIN
) -> Observation:
    """An observation that was never written."""
    runs = tuple(
        RunTable(stage.point, stage.strategy, stage.replication, table)
        for stage, table in zip(stages, tables, strict=True)
    )
    return Observation(Path("runs"), about(strategies), tuple(stages), runs)


def predicted(
    table: Columns,
    kv_use: float | None = None,
    bands: dict[str, Ends] | None = None,
    saturated: bool = False,
) -> Prediction:
    """A prediction by hand."""
    return Prediction(table, kv_use, bands or {}, saturated)


def predicts(monkeypatch: pytest.MonkeyPatch, *predictions: Prediction) -> None:
    """Let these be what is predicted of the stages, in order."""
    left = iter(predictions)
    monkeypatch.setattr(comparing, "predict", lambda *_: next(left))
