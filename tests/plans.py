"""A small plan whose fleets take a moment to simulate."""

from __future__ import annotations

from typing import Any

from models.strict_yaml import load_yaml
from sim.planning.candidates import PlanFile, parse_plan

SMALL = """\
# What carries a small service?
demand: {requests_per_day: 240000, peak_factor: 2, peak_hour: 14, uncertainty: 0.1}
hardware: {gpu: l40s}
model: {transformer: llama-3.1-8b}
workload:
  sampling: greedy
  streams:
    - prompt_tokens: {kind: lognormal, mean: 300, cv: 0.5, max: 1500}
      output_tokens: {kind: lognormal, mean: 100, cv: 0.5, max: 500}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {alpha: 0.7}}
slo: {ttft_s: {p95: 0.5}, tpot_s: {p95: 0.024}, attainment: 0.9}
failure: {restart: {load_bytes_per_s: 2e9, boot_s: 60}}
confidence: 0.9
run: {window_s: 60, hour_s: 120, lead_s: 10, replications: 2}
"""
PLAIN = SMALL.replace("  - {kind: eagle3, k: 3, acceptance: {alpha: 0.7}}\n", "")
"""With plain decoding alone."""


def small(*sets: str, text: str = SMALL, **blocks: str) -> PlanFile:
    """The small plan, with lines of its own in place of blocks, and ``--set``."""
    return parse_plan(load_yaml(edited(text, **blocks), "plan.yaml"), sets)


def edited(text: str = SMALL, **blocks: str) -> str:
    """The text with the lines of some blocks replaced, or with new ones at the end."""
    lines = text.splitlines()
    for name, value in blocks.items():
        kept = [line for line in lines if not line.startswith(f"{name}:")]
        lines = [*kept, f"{name}: {value}"]
    return "\n".join(lines) + "\n"


def settings(file: PlanFile) -> list[tuple[str, dict[str, Any]]]:
    """Strategy and searched values of every candidate."""
    return [(candidate.group, candidate.settings) for candidate in file.candidates]
