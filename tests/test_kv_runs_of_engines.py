"""Whole runs under every layout and policy: blocks are conserved, whatever fails."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from invariants import blocks_held, check, run

from models.strict_yaml import load_yaml
from sim.engine.kv_runs import AddressPool
from sim.engine.scheduler import Scheduler
from sim.engine.slot_batch import SlotBatch
from sim.scenario.build import build
from sim.scenario.load import parse_scenario

LAYOUTS = ("inline", "copy_on_write", "contiguous")
LOSSES = {"acceptance_loss": 0.1, "quality_loss": 0.02}
POLICIES = (
    None,
    {"kind": "streaming_llm", "sinks": 4, "window": 100, **LOSSES},
    {"kind": "snapkv", "budget_tokens": 64, **LOSSES},
    {
        **{"kind": "offload", "hot_tokens": 128, "gb_per_s": 50, "latency_us": 20},
        **{"overlap": True, **LOSSES},
    },
)
MEDUSA = {"kind": "medusa", "heads": 2, "tree": [4, 4], "acceptance": {"tau": 2.0}}


def scenario(
    kv_tokens: int,
    users: int = 24,
    requests: int = 60,
    share: float | None = None,
    **engine: Any,
) -> dict[str, Any]:
    lengths = {"kind": "lognormal", "mean": 150, "cv": 0.7, "max": 600}
    return {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": "llama-3.1-8b"},
        "engine": {
            **{"name": "vllm_0.15", "max_num_seqs": 24, "max_model_len": 1300},
            **{"max_num_batched_tokens": 2048, **engine},
            "gpu_memory_utilization": share or memory(kv_tokens),
        },
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": users},
            "requests": requests,
            "streams": [{"prompt_tokens": lengths, "output_tokens": lengths}],
        },
        "strategies": [{**MEDUSA, "hypothetical": True}],
        "run": {"band": False},
    }


@cache
def memory(kv_tokens: int) -> float:
    """Share of the GPU that leaves the tree so much KV."""
    text = json.dumps({**scenario(0, share=0.9), "engine": {"name": "vllm_0.15"}})
    (point,) = parse_scenario(load_yaml(text, "scenario.yaml")).points
    budget = build(point.scenario).kv_budget(point.scenario.strategies[-1])
    needed = budget.memory_bytes - budget.unused_bytes - budget.kv_bytes
    return (needed + (kv_tokens // 16 + 0.5) * budget.block_bytes) / budget.memory_bytes


def held_now(scheduler: Scheduler, decodes: bool) -> int:
    """Blocks of every admitted request, added up one by one."""
    batch = scheduler.batch
    if not isinstance(batch, SlotBatch):
        return blocks_held(scheduler, decodes)
    held = {request: request.held for request in (*scheduler.running, *scheduler.late)}
    if batch.n:
        now = batch._coming().held if decodes else batch._held[: batch.n]
        held.update(zip(batch._requests, now.tolist(), strict=True))
    return sum(held.values())


CASES = [
    *itertools.product(["vllm_0.15"], LAYOUTS, POLICIES),
    *itertools.product(["vllm_v0_swap", "tensorrt_llm"], LAYOUTS[1:], (None, POLICIES[2])),
    ("sglang_0.5", "contiguous", None),
]


@pytest.mark.parametrize(
    ("engine", "tree_kv", "policy"),
    CASES,
    ids=lambda part: part if isinstance(part, str) else (part or {"kind": "all"})["kind"],
)
def test_blocks_are_conserved_at_every_step(engine, tree_kv, policy, monkeypatch):
    schedule, steps = Scheduler.schedule, 0

    def checked(self: Scheduler, known_s: float) -> Any:
        nonlocal steps
        plan = schedule(self, known_s)
        steps += 1
        if steps % 5 == 0 or self.preempted:
            self.pool.check()
            held = held_now(self, plan[0])
            assert self.pool.free + held == self.pool.total, (self.pool.free, held)
            assert all(request.held >= request.shared for request in self.running)
            if isinstance(self.pool, AddressPool):
                run = self.rules.kv.run
                usable = self.pool.free - self.pool.unusable(run)
                assert usable == 0 or usable >= run
        return plan

    monkeypatch.setattr(Scheduler, "schedule", checked)
    asked = scenario(4500, name=engine, tree_kv=tree_kv)
    if policy:
        asked["engine"]["kv_policy"] = policy
    made = run(json.dumps(asked))
    for ran in made:
        check(ran)
        assert ran.row["finished"] == 60
        assert ("quality_loss" in ran.row) == (policy is not None)
    if policy is None and made[-1].setup.rules.preemption != "never":
        assert made[-1].row["preemptions"] > 0
    assert steps > 100


@pytest.mark.parametrize("tree_kv", LAYOUTS)
def test_blocks_are_conserved_when_replicas_die(tree_kv):
    asked = scenario(5000, users=40, requests=120, tree_kv=tree_kv)
    asked["model"]["replicas"] = 2
    asked["failures"] = [
        {"replica": 0, "at_s": 1.0, "restart": {"load_bytes_per_s": 1e11, "boot_s": 0.5}},
        {"replica": 1, "at_s": 3.0, "restart": {"load_bytes_per_s": 1e11, "boot_s": 0.5}},
    ]
    for ran in run(json.dumps(asked)):
        assert ran.row["finished"] == 120


@pytest.mark.parametrize("prefix", ["all", 64])
def test_shared_prefixes_and_adjacent_blocks_go_together(prefix):
    asked = scenario(4500, tree_kv="contiguous")
    (stream,) = asked["workload"]["streams"]
    stream["prompt_tokens"] = {"kind": "fixed", "value": 200}
    stream["prefix"] = {"tokens": prefix, "groups": 3, "order": "cycle"}
    for ran in run(json.dumps(asked)):
        check(ran)
        assert ran.row["prefix_hit_rate"] > 0.1


def rows_by_layout(kv_tokens: int) -> dict[str, dict[str, Any]]:
    return {kind: run(json.dumps(scenario(kv_tokens, tree_kv=kind)))[-1].row for kind in LAYOUTS}


def test_layouts_that_take_more_admit_fewer_and_only_stretches_leave_blocks_unusable():
    rows = rows_by_layout(6000)
    assert rows["copy_on_write"]["batch_peak"] < rows["inline"]["batch_peak"]
    assert rows["contiguous"]["batch_peak"] < rows["inline"]["batch_peak"]
    assert rows["contiguous"]["kv_unusable"] > 0.02
    assert rows["inline"]["kv_unusable"] == rows["copy_on_write"]["kv_unusable"] == 0


def test_with_room_for_all_of_them_layouts_are_alike():
    rows = rows_by_layout(200_000)
    for name in ("tpot_s", "ttft_s", "tau", "preemptions", "batch_peak"):
        assert rows["copy_on_write"][name] == rows["inline"][name] == rows["contiguous"][name]


def test_a_request_too_large_for_its_copies_is_refused_and_not_kept_waiting():
    asked = scenario(960, users=1, requests=3, tree_kv="copy_on_write")
    asked["workload"]["streams"] = [
        {
            "prompt_tokens": {"kind": "fixed", "value": 300},
            "output_tokens": {"kind": "fixed", "value": 60},
        }
    ]
    assert run(json.dumps(asked))[-1].row["rejected"] == 0
    asked["workload"]["streams"][0]["output_tokens"]["value"] = 200
    assert run(json.dumps(asked))[-1].row["rejected"] == 3
    asked["engine"]["tree_kv"] = "inline"
    assert run(json.dumps(asked))[-1].row["rejected"] == 0


def test_policies_switch_prefix_caching_off():
    asked = scenario(40_000)
    (stream,) = asked["workload"]["streams"]
    stream["prompt_tokens"] = {"kind": "fixed", "value": 200}
    stream["prefix"] = {"tokens": "all", "groups": 3, "order": "cycle"}
    assert run(json.dumps(asked))[-1].row["prefix_hit_rate"] > 0
    asked["engine"]["kv_policy"] = POLICIES[1]
    ran = run(json.dumps(asked))[-1]
    assert ran.row["prefix_hit_rate"] == 0
    assert np.isclose(ran.row["quality_loss"], 0.02)


ALONE = {
    "prompt_tokens": {"kind": "fixed", "value": 20_000},
    "output_tokens": {"kind": "fixed", "value": 101},
}


def alone(policy: dict[str, Any] | None) -> dict[str, Any]:
    """Row of plain decoding of one request at a time."""
    asked = scenario(400_000, users=1, requests=3, max_model_len=32_000)
    asked["workload"]["streams"] = [ALONE]
    asked["strategies"] = [{"kind": "autoregressive"}]
    if policy:
        asked["engine"]["kv_policy"] = {**policy, "acceptance_loss": 0, "quality_loss": 0}
    return run(json.dumps(asked))[0].row


KEEPING = (
    {"kind": "streaming_llm", "sinks": 4, "window": 100_000},
    {"kind": "snapkv", "budget_tokens": 100_000},
    {"kind": "offload", "hot_tokens": 100_000, "gb_per_s": 1, "latency_us": 1e6, "overlap": False},
)


@pytest.mark.parametrize("policy", KEEPING, ids=lambda policy: policy["kind"])
def test_a_policy_that_keeps_everything_changes_nothing(policy):
    usual, kept = scenario(40_000), scenario(40_000)
    kept["engine"]["kv_policy"] = {**policy, "acceptance_loss": 0.5, "quality_loss": 0}
    for without, within in zip(run(json.dumps(usual)), run(json.dumps(kept)), strict=True):
        for name in ("tau", "preemptions", "kv_use_peak", "batch_peak", "finished"):
            assert within.row[name] == without.row[name]
        for name in ("tpot_s", "ttft_s", "e2e_s"):
            assert within.row[name]["p95"] == pytest.approx(without.row[name]["p95"], rel=1e-9)


def test_a_step_reads_the_window_alone():
    whole = alone(None)
    cut = alone({"kind": "streaming_llm", "sinks": 4, "window": 996})
    read = [row["step_s"]["components"]["kv"] for row in (whole, cut)]
    assert cut["step_s"]["context"] == 1000
    assert whole["step_s"]["context"] == 20_051
    saved = read[0] - read[1]
    assert whole["tpot_s"]["mean"] - cut["tpot_s"]["mean"] == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize("overlap", [True, False])
def test_a_step_waits_for_its_cold_tokens(overlap):
    rate = {"gb_per_s": 50, "latency_us": 500, "overlap": overlap}
    row = alone({"kind": "offload", "hot_tokens": 4000, **rate})
    token = 2 * 8 * 128 * 32 * 2 / 50e9
    cold = np.arange(20_001, 20_101) - 4000
    usual = alone(None)["tpot_s"]["mean"]
    moved = cold.mean() * token
    expected = max(usual, moved) if overlap else usual + moved
    assert row["tpot_s"]["mean"] == pytest.approx(expected + 500e-6, rel=0.001)
    components = row["step_s"]["components"]
    assert sum(components.values()) == pytest.approx(expected + 500e-6, rel=0.01)
    assert components["fetch"] > 0


def test_acceptance_that_is_lost_is_lost_in_the_run():
    asked = scenario(40_000)
    tau = run(json.dumps(asked))[-1].row["tau"]
    always = {**POLICIES[2], "budget_tokens": 1, "acceptance_loss": 0.5}
    asked["engine"]["kv_policy"] = always
    thinned = run(json.dumps(asked))[-1].row["tau"]
    assert 1 + 0.35 * (tau - 1) < thinned < 1 + 0.5 * (tau - 1)
    asked["engine"]["kv_policy"] = {**POLICIES[1], "acceptance_loss": 0.5}
    assert thinned < run(json.dumps(asked))[-1].row["tau"] < tau


def test_losses_of_quantised_and_of_cut_kv_come_together():
    asked = scenario(40_000)
    asked["model"] |= {"kv": "int4", "kv_loss": {"acceptance_loss": 0.2, "quality_loss": 0.25}}
    quantised = run(json.dumps(asked))[-1].row
    assert quantised["quality_loss"] == 0.25
    asked["engine"]["kv_policy"] = {**POLICIES[2], "budget_tokens": 1, "acceptance_loss": 0.5}
    both = run(json.dumps(asked))[-1].row
    assert both["quality_loss"] == pytest.approx(0.27)
    del asked["model"]["kv_loss"]
    asked["model"]["kv"] = "fp8"
    asked["engine"]["kv_policy"]["acceptance_loss"] = 0.6
    assert both["tau"] == run(json.dumps(asked))[-1].row["tau"] < quantised["tau"]


def test_which_blocks_go_back_is_drawn_by_seed_and_replica(monkeypatch):
    made: list[random.Random] = []
    pool = AddressPool.__init__

    def noted(self: AddressPool, n_blocks: int, draws: random.Random) -> None:
        made.append(random.Random())
        made[-1].setstate(draws.getstate())
        pool(self, n_blocks, draws)

    monkeypatch.setattr(AddressPool, "__init__", noted)
    asked = scenario(4500, tree_kv="contiguous")
    asked["model"]["replicas"] = 2
    for seed in (1, 1, 2):
        asked["run"]["seed"] = seed
        run(json.dumps(asked))
    first = [draws.random() for draws in made]
    assert first[:2] == first[2:4]
    assert len({*first}) == 4
