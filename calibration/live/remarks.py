"""What to know of recorded stages before they are fitted or compared, in words."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.live.recording import Stage
from calibration.live.replay import MOST_LOST, usable
from sim.analysis.metrics import finished
from sim.tables import RunTable

MOST_CACHED = 0.03
"""Share of prompt tokens from a prefix cache above which prompts take less than they are priced
at. Assumed."""


def left_out(stages: Sequence[Stage], runs: Sequence[RunTable]) -> list[str]:
    """Stages that too few answers came of, each with how many."""
    found = []
    for stage, run in zip(stages, runs, strict=True):
        if not usable(stage, run):
            answered = finished(run.columns)
            count = f"{int(answered.sum())} of {answered.size} answered"
            found.append(f"{stage.name} repeat {stage.replication} ({count})")
    return found


def lost(stages: Sequence[Stage], runs: Sequence[RunTable]) -> str:
    """Which stages are left out for requests without an answer; empty for none."""
    named = left_out(stages, runs)
    return lost_note(named) if named else ""


def lost_note(named: Sequence[str]) -> str:
    """The same of stages that ``left_out`` names."""
    most = f"{100 * MOST_LOST:g} %"
    return f"More than {most} of the requests have no answer, so left out: {', '.join(named)}."


def cached(stages: Sequence[Stage], runs: Sequence[RunTable]) -> str:
    """At which loads a prefix cache answered part of the prompts; empty for none."""
    shares: dict[str, float] = {}
    for stage, run in zip(stages, runs, strict=True):
        shares[stage.name] = max(shares.get(stage.name, 0.0), cached_share(stage, run))
    named = [f"{name} ({100 * one:.0f} %)" for name, one in shares.items() if one > MOST_CACHED]
    if not named:
        return ""
    return (
        f"A prefix cache answered part of the prompt tokens: {', '.join(named)}. They are taken as "
        "computed, so that times to the first token are not those of such prompts."
    )


def cached_share(stage: Stage, run: RunTable) -> float:
    """Share of prompt tokens that a prefix cache answered, 0 where nothing tells it."""
    counters = stage.counters
    asked = counters.get("prefix_queries", counters.get("prompt_tokens", 0.0))
    if asked and "prefix_hits" in counters:
        return counters["prefix_hits"] / asked
    prompt = float(run.columns["prompt_tokens"].sum())
    return float(run.columns["cached_tokens"].sum()) / prompt if prompt else 0.0
