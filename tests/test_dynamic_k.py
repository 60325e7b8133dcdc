"""The number of draft tokens: what pays most, by a schedule, by a signal; and the oracle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.strategies.dynamic_k import Goodput, Schedule
from sim.engine.control import Outcome
from sim.engine.control.dynamic_k import ByGoodput, BySchedule
from sim.engine.control.foresight import ByProxy
from sim.engine.mode_log import FIELDS, ModeLog
from tests.switching import EAGLE, PLAIN, Served, chain, dynamic, gate, scheduled, serve


def chosen(control: Any, batch: Any) -> int:
    mode, limit = control.choose(batch)
    assert limit is None
    assert len(set(mode.tolist())) == 1
    return int(mode[0])


# Goodput


def priced(step_s: list[float], n: int = 4) -> Any:
    """A batch whose step with K draft tokens takes ``step_s[K]``."""
    return SimpleNamespace(n=n, priced_s=lambda mode, width=None: step_s[int(mode[0])])


def observed(control: ByGoodput, batch: Any, rng: np.random.Generator, alpha: float) -> None:
    k = chosen(control, batch)
    accepted = np.cumprod(rng.random((batch.n, k)) < alpha, axis=1).sum(axis=1)
    offered = np.full(batch.n, k)
    control.observe(batch, Outcome(offered, accepted, offered, offered), 0.0, 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_goodput_takes_the_k_of_most_tokens_a_second(seed: int) -> None:
    rng = np.random.default_rng(seed)
    alpha, step_s = rng.uniform(0.3, 0.95), np.cumsum(rng.uniform(0.1, 0.6, 7)) + 0.3
    log = ModeLog(tuple("0123456"))
    control, batch = ByGoodput(Goodput(window_tokens=10**6), 6, log), priced(step_s.tolist())
    taken = reached = 0
    for _ in range(60):
        before = chosen(control, batch)
        entries = len(control._entries)
        observed(control, batch, rng, alpha)
        if len(control._entries) > entries:
            taken += control._entries[-1][1]
            reached += control._entries[-1][2]
        chance = taken / reached
        rates = [sum(chance**j for j in range(k + 1)) / step_s[k] for k in range(7)]
        now = chosen(control, batch)
        assert now == int(np.argmax(rates)) or (now == 1 and before == 0)
    if reached > 200:
        assert chance == pytest.approx(alpha, abs=0.15)


def test_goodput_is_never_stuck_without_drafts() -> None:
    """Where nothing pays a token is drafted after so many plain steps; then acceptance rises."""
    rng, log = np.random.default_rng(1), ModeLog(tuple("0123"))
    control = ByGoodput(Goodput(window_tokens=50, every_steps=10), 3, log)
    batch, ks = priced([1.0, 1.3, 1.6, 1.9]), []
    for step in range(400):
        ks.append(chosen(control, batch))
        observed(control, batch, rng, 0.02 if step < 200 else 0.95)
    early = ks[50:200]
    drafting = np.flatnonzero(np.array(early) > 0)
    assert set(np.diff(drafting)) == {11}
    assert {early[place] for place in drafting} == {1}
    assert np.mean(ks[350:]) > 2.5


# Schedules


def test_a_dead_band_holds_k_on_both_sides_of_a_bound() -> None:
    rule = Schedule.model_validate(scheduled([1, 5], [16, 3], [64, 0], dead_band=2))
    control = BySchedule(rule, ModeLog(tuple("012345")))
    counts = [1, 16, 17, 18, 16, 15, 14, 13, 66, 64, 62, 61, 14, 13, 100, 1]
    want = [5, 5, 5, 3, 3, 3, 3, 5, 0, 0, 0, 3, 3, 5, 0, 5]
    assert [chosen(control, SimpleNamespace(n=n)) for n in counts] == want


def test_without_a_dead_band_k_is_that_of_the_count() -> None:
    control = BySchedule(
        Schedule.model_validate(scheduled([1, 5], [16, 3], [64, 0])), ModeLog(tuple("012345"))
    )
    counts = np.random.default_rng(1).integers(1, 100, 200)
    want = [5 if n < 16 else 3 if n < 64 else 0 for n in counts]
    assert [chosen(control, SimpleNamespace(n=int(n))) for n in counts] == want


def test_a_k_by_the_running_count_oscillates_and_a_dead_band_stops_it() -> None:
    """About 16 sequences run: the bound is crossed again and again."""
    busy = {"arrivals": {"kind": "poisson", "rate_per_s": 18}, "requests": 300, "output": 150}
    switched = []
    for band in (0, 12):
        served = serve(dynamic(scheduled([1, 5], [16, 0], dead_band=band)), **busy)
        (log,) = served.recorder.modes.values()
        assert log.switched == len(log.switches)
        switched.append(log.switched)
    assert switched[0] > 30
    assert switched[1] <= switched[0] / 5


# A perfect signal


def decode_s(served: Served, users: int) -> float:
    """Tokens a second of the steps with every user decoding beside no prefill."""
    steps = served.steps
    whole = (steps["prefill_tokens"] == 0) & (steps["n_decode"] == users)
    return float(steps["emitted"][whole].sum() / steps["duration_s"][whole].sum())


LAWS = [
    (1, "eagle3", {"alpha": 0.6}, {}),
    (4, "eagle3", {"alpha": 0.4}, {}),
    (32, "eagle3", {"alpha": 0.7}, {}),
    (128, "eagle3", {"alpha": 0.6}, {"output": 200}),
    (8, "draft_model", {"alpha": 0.8}, {}),
    (8, "eagle3", {"alpha_by_pos": [0.9, 0.7, 0.5, 0.3, 0.1]}, {}),
    (32, "eagle3", {"alpha": 0.6}, {"prompt": 3000, "output": 60}),
]


@pytest.mark.parametrize(("users", "kind", "law", "changes"), LAWS, ids=str)
def test_a_perfect_signal_is_never_worse_than_the_best_fixed_k(
    users: int, kind: str, law: dict[str, Any], changes: dict[str, Any]
) -> None:
    """At a fixed batch and equal slots, by tokens over the time of steps.

    The rate a step has to beat is learnt in some steps, so the first of them may be worse.
    """
    asked = {"users": users, "requests": max(2 * users, 12), "output": 400, **changes}
    fixed = []
    for k in range(6):
        rule = scheduled([1, k])
        fixed.append(decode_s(serve(dynamic(rule, chain(kind, 5, **law)), **asked), users))
    rates = []
    for power in (1.0, 0.5, 0.0):
        rule = {"kind": "proxy", "power": power}
        rates.append(decode_s(serve(dynamic(rule, chain(kind, 5, **law)), **asked), users))
    assert rates[0] >= 0.995 * max(fixed)
    assert rates[0] > rates[1] > rates[2]
    assert rates[2] <= max(fixed)


def test_what_a_step_has_to_beat_is_priced_beside_no_prefill() -> None:
    """A second of prompts in a step changes no choice after it."""
    batch = priced([1.0, 1.5, 2.0, 2.5], n=2)
    batch.reading = lambda k, power: np.array([3, 0])
    chosen = []
    for end_s in (2.5, 1000.0):
        control = ByProxy(3, 1.0)
        mode, limit = control.choose(batch)
        counts = np.array([3, 0])
        assert limit is not None
        control.observe(batch, Outcome(mode, counts, mode, limit), 0.0, end_s)
        chosen.append(control._rate.per_s)
    assert chosen[0] == chosen[1] > 0


# The oracle


def spread_out(alpha: float = 0.6) -> list[dict[str, Any]]:
    return [PLAIN, chain("eagle3", 3, alpha=alpha), chain("ngram", 4, alpha=0.8, match_rate=0.3)]


@pytest.mark.parametrize(("users", "engine"), [(2, "vllm_0.15"), (64, "vllm_0.33")])
def test_no_policy_beats_the_oracle(users: int, engine: str) -> None:
    modes = spread_out()
    requests = max(16, 3 * users // 2)
    asked = {"users": users, "requests": requests, "output": 200, "engine": {"name": engine}}
    best = serve({"kind": "oracle", "among": modes}, **asked).makespan_s()
    for policy in (*modes, *policies(modes)):
        assert best <= serve(policy, **asked).makespan_s()


def policies(modes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    back = {"kind": "proxy", "power": 1}
    return [
        gate(modes[1], fallback=modes[2], leave_below=0.5, dwell_steps=4),
        gate(modes[1], fallback=modes[0], leave_below=0.6, **{"return": back}),
        gate(modes[2], fallback=modes[1], leave_below=0.4, window_of="engine"),
    ]


# Accounts


SWITCHING = [
    gate(EAGLE, leave_below=0.55, window_tokens=10, dwell_steps=4),
    gate(EAGLE, leave_below=0.6, window_tokens=20, dwell_steps=4, window_of="engine"),
    dynamic({"kind": "goodput", "window_tokens": 50}),
    dynamic({"kind": "proxy", "power": 0.7}, reserve="active"),
    dynamic(scheduled([1, 5], [10, 2], [20, 0]), reserve="active"),
    {"kind": "oracle", "among": spread_out()},
]
TIGHT = {
    "hardware": {"gpu": "h100_sxm"},
    "engine": {"name": "vllm_0.15", "gpu_memory_utilization": 0.24},
    "users": 40,
    "requests": 60,
    "prompt": {"kind": "lognormal", "mean": 700, "cv": 0.5},
    "output": {"kind": "lognormal", "mean": 300, "cv": 0.5},
}


@pytest.mark.parametrize("strategy", SWITCHING, ids=lambda one: str(one.get("rule", one))[:60])
def test_steps_requests_and_modes_agree_while_sequences_are_preempted(
    strategy: dict[str, Any],
) -> None:
    """Blocks are conserved as well: every replica checks them when its run ends."""
    served = serve(strategy, **TIGHT)
    log, steps, modes = served.log, served.steps, served.modes()
    assert sum(log.preemptions) > 0
    assert set(log.status) == {"finished"}
    fields = dict(zip(FIELDS, modes.T, strict=True))
    assert fields["steps"].sum() == sum(log.n_steps) == steps["n_decode"].sum()
    assert fields["accepted"].sum() == sum(log.accepted)
    assert fields["drafted"].sum() == sum(log.drafted)
    assert fields["emitted"].sum() == sum(log.n_steps) + sum(log.accepted)
    output = served.requests.output_tokens
    assert steps["emitted"].sum() == output.sum()
    assert (steps["verify_tokens"] >= steps["n_decode"]).all()
    seconds = (steps["duration_s"] * steps["n_decode"]).sum()
    assert fields["sequence_s"].sum() == pytest.approx(seconds, rel=1e-9)
    assert (fields["accepted"] <= fields["reached"]).all()
    assert (fields["reached"] <= fields["offered"]).all()
    assert (steps["blocks_used"] <= served.setup.rules.n_blocks).all()
    again = serve(strategy, **TIGHT)
    assert again.recorder.rows == served.recorder.rows
    assert again.log == log
    assert again.switches() == served.switches()
