"""Pruning by the estimate keeps the optimum: a full search of a hundred candidates against it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from models.strict_yaml import load_yaml
from sim.planning.candidates import Candidate, PlanFile, parse_plan
from sim.planning.cheapest import Cheapest, cheapest

PLAN = """\
demand: {requests_per_day: 300000, peak_factor: 2}
model: {transformer: llama-3.1-70b, weights: fp8}
workload:
  streams:
    - prompt_tokens: {kind: lognormal, mean: 600, cv: 0.8}
      output_tokens: {kind: lognormal, mean: 100, cv: 0.6}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, label: eagle3}
  - {kind: draft_model, draft: llama-3.2-1b, k: 3}
  - {kind: medusa}
slo: {ttft_s: {p95: 0.6}, tpot_s: {p95: 0.025}, attainment: 0.9}
search:
  hardware.gpu: [h100_sxm, h200_sxm]
  model.tp: [2, 4]
  engine.max_num_seqs: [8, 32]
  engine.max_num_batched_tokens: [1024, 8192]
  strategies[1].k: [1, 2, 3, 5]
failure: none
run: {window_s: 12, hour_s: 24, lead_s: 4}
"""


@pytest.fixture(scope="module")
def file() -> PlanFile:
    return parse_plan(load_yaml(PLAN, "plan.yaml"))


@pytest.fixture(scope="module")
def found(file: PlanFile) -> dict[tuple[str, str], tuple[Cheapest, Cheapest]]:
    """Full and pruned search, by strategy and GPU."""
    return {
        key: tuple(cheapest(file.plan, group, prune=prune) for prune in (False, True))  # type: ignore[misc]
        for key, group in groups(file)
    }


def groups(file: PlanFile) -> Iterator[tuple[tuple[str, str], tuple[Candidate, ...]]]:
    def key(candidate: Candidate) -> tuple[str, str]:
        return candidate.group, candidate.gpu

    for name, group in itertools.groupby(sorted(file.candidates, key=key), key):
        yield name, tuple(group)


def test_a_full_search_of_a_hundred_candidates_finds_the_same_optima(
    file: PlanFile, found: dict[tuple[str, str], tuple[Cheapest, Cheapest]]
) -> None:
    assert len(file.candidates) >= 100 and len(found) == 8
    for name, (full, pruned) in found.items():
        assert full.left_out == 0, name
        assert full.best is not None and pruned.best is not None, name
        smallest = min(one.gpus for one in full.searched if one.gpus is not None)
        assert pruned.best.gpus == full.best.gpus == smallest, name
        one, other = full.best.ranked.candidate, pruned.best.ranked.candidate
        assert one.settings == other.settings, name
    assert len({full.best.gpus for full, _ in found.values() if full.best}) > 1


def test_pruning_saves_nine_simulations_in_ten(
    found: dict[tuple[str, str], tuple[Cheapest, Cheapest]],
) -> None:
    full, pruned = (sum(pair[i].simulations for pair in found.values()) for i in (0, 1))
    assert full > 100
    assert pruned < 0.15 * full
