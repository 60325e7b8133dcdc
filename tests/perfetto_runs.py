"""A scenario with a trace, and the trace read back."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from models.strict_yaml import load_yaml
from sim import experiment
from sim.analysis.metrics import Window
from sim.perfetto_file import PerfettoFile
from sim.scenario.load import parse_scenario

Event = dict[str, Any]

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b, replicas: 2}
engine: {name: vllm_0.10, max_model_len: 2500}
workload:
  arrivals: {kind: poisson, rate_per_s: 4}
  requests: 60
  streams:
    - name: 'a "chat" <é>'
      share: 0.7
      prompt_tokens: {kind: lognormal, mean: 300, cv: 0.8}
      output_tokens: {kind: lognormal, mean: 60, cv: 0.8}
    - name: code
      share: 0.3
      prompt_tokens: {kind: lognormal, mean: 1500, cv: 0.8}
      output_tokens: {kind: fixed, value: 1}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {tau: 2.4}}
run: {band: false, replications: 2}
"""


def traced(
    path: Path, window: Window, *overrides: str, vary: str = ""
) -> tuple[list[Event], experiment.Result]:
    """Run with a trace, and once more with the tables kept."""
    file = parse_scenario(load_yaml(TEXT + vary, "x.yaml"), overrides)
    with PerfettoFile(path, window) as trace:
        trace.finish(experiment.run(file, tables=[trace]).document)
    return read(path), experiment.run(file, keep_steps=True)


def read(path: Path) -> list[Event]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    document = json.loads(path.read_text("ascii"), parse_constant=refuse)
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    return list(document["traceEvents"])


def steps_of(events: list[Event], process: int) -> list[Event]:
    """Slices of whole steps of one process."""
    return [e for e in events if e["pid"] == process and e["ph"] == "X" and "args" in e]


def asynchronous(events: list[Event]) -> dict[str, list[Event]]:
    """Events of each request, in the order they come."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "ben":
            assert event["cat"] == "request"
            (number,) = event["id2"].values()
            found[f"{event['pid']}.{number}"].append(event)
    return found


def nanoseconds(microseconds: float) -> int:
    """Times of a trace as the integers they were rounded to."""
    return round(1000 * microseconds)
