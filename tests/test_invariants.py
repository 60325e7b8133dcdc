"""Nothing is lost or made up: requests, tokens, KV blocks and time, above all under preemption."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, event, given, settings
from hypothesis import strategies as st
from invariants import Ran, blocks_held, check, check_little, run

from models.strict_yaml import load_yaml
from sim.analysis.steady import little, window, without_warmup
from sim.engine.scheduler import Scheduler
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.setup import prepare
from sim.tables import Columns

TIGHT = """\
hardware: {{gpu: h100_sxm}}
model: {{transformer: llama-3.1-8b}}
engine: {{name: {engine}, gpu_memory_utilization: {memory}, max_num_seqs: 128}}
workload:
  arrivals: {arrivals}
  requests: {requests}
  streams:
    - prompt_tokens: {{kind: lognormal, mean: 300, cv: 0.6}}
      output_tokens: {{kind: lognormal, mean: 400, cv: 0.6}}
      {prefix}
strategies:
  - {{kind: autoregressive}}
  - {{kind: eagle3, k: 3, hypothetical: true, acceptance: {{tau: {tau}}}}}
run: {{band: false}}
"""
OPEN = "{kind: poisson, rate_per_s: 14}"
CLOSED = "{kind: closed_loop, users: 80}"


def tight(**changes: Any) -> str:
    asked = {"engine": "vllm_0.15", "memory": 0.27, "arrivals": OPEN, "requests": 3000}
    return TIGHT.format(**{**asked, "prefix": "", "tau": 2.0, **changes})


@pytest.mark.parametrize("engine", ["vllm_0.10", "vllm_0.15", "vllm_v0_swap", "sglang_0.5"])
@pytest.mark.parametrize("prefix", ["", "prefix: {tokens: 100, groups: 5}"], ids=["", "shared"])
def test_free_and_held_blocks_make_the_total_at_every_step(engine, prefix, monkeypatch):
    schedule, steps, victims = Scheduler.schedule, 0, 0

    def checked(self: Scheduler, known_s: float) -> Any:
        nonlocal steps, victims
        before = set(self.running)
        plan = schedule(self, known_s)
        steps += 1
        victims += len(before.difference(self.running))
        if steps % 7 == 0 or self.preempted:
            self.pool.check()
            held = blocks_held(self, plan[0])
            assert self.pool.free + held == self.pool.total, (self.pool.free, held)
        return plan

    monkeypatch.setattr(Scheduler, "schedule", checked)
    scenario = tight(engine=engine, prefix=prefix, arrivals=CLOSED, requests=300, memory=0.265)
    made = run(scenario)
    for ran in made:
        check(ran)
        assert ran.row["preemptions"] > 0
    assert steps > 1000
    assert victims == sum(ran.row["preemptions"] for ran in made)


def preempted(ran: Ran) -> float:
    return float((ran.requests["preemptions"] > 0).mean())


@pytest.mark.parametrize(
    "scenario",
    [tight(memory=0.2665, tau=1.9), tight(arrivals=CLOSED, memory=0.28, tau=2.4)],
    ids=["open", "closed"],
)
def test_speculation_preempts_more_than_plain_decoding_at_equal_load(scenario):
    plain, speculative = run(scenario)
    for ran in (plain, speculative):
        check(ran)
        assert len(ran.requests["id"]) == ran.row["finished"] == 3000
        assert not ran.row["saturated"]
        assert preempted(ran) >= 0.05
        assert ran.row["preemptions"] == ran.requests["preemptions"].sum()
    assert preempted(speculative) > 2 * preempted(plain)
    # Faster at the same load all the same: it is the memory that is short.
    assert speculative.row["speedup"] > 1
    assert speculative.setup.rules.n_blocks < plain.setup.rules.n_blocks
    assert speculative.setup.rules.slots > plain.setup.rules.slots


def test_littles_law_on_stable_runs():
    """The number in the system is the rate times the time in it, preempted or not."""
    for scenario in (tight(), tight(arrivals="{kind: poisson, rate_per_s: 8}")):
        for ran in run(scenario):
            kept = without_warmup(ran.requests, 0.1)
            law = little(ran.requests, window(kept))
            assert law.in_system == pytest.approx(law.expected_in_system, rel=0.03)
            check_little(ran)


ONE = 100
"""A request of the runs below, and a step, that are changed by one."""


def lost(requests: Columns, steps: Columns) -> None:
    for name in requests:
        requests[name] = np.delete(requests[name], ONE)


def scheduled_a_step_late(requests: Columns, steps: Columns) -> None:
    later = np.searchsorted(steps["start_s"], requests["schedule_s"][ONE], side="right")
    requests["schedule_s"][ONE] = steps["start_s"][later]


def finished_as_its_last_step_began(requests: Columns, steps: Columns) -> None:
    own = np.searchsorted(steps["start_s"], requests["finish_s"][ONE] - 1e-9) - 1
    requests["finish_s"][ONE] = steps["start_s"][own]


def sent_a_second_earlier(requests: Columns, steps: Columns) -> None:
    requests["arrival_s"][ONE] -= 1.0


def one_sequence_less(requests: Columns, steps: Columns) -> None:
    steps["n_decode"][ONE] -= 1


def one_more_waiting(requests: Columns, steps: Columns) -> None:
    steps["waiting"][ONE] += 1


@pytest.mark.parametrize(
    "changed",
    [
        lost,
        scheduled_a_step_late,
        finished_as_its_last_step_began,
        sent_a_second_earlier,
        one_sequence_less,
        one_more_waiting,
    ],
)
@pytest.mark.parametrize("engine", ["vllm_0.15", "sglang_0.5"])
def test_littles_law_notices_one_request_out_of_place(engine, changed):
    scenario = tight(engine=engine, memory=0.9, requests=200)
    for ran in run(scenario):
        assert ran.row["preemptions"] == 0
        check_little(ran)
        requests, steps = (
            {name: column.copy() for name, column in table.items()}
            for table in (ran.requests, ran.steps)
        )
        changed(requests, steps)
        with pytest.raises(AssertionError):
            check_little(ran._replace(requests=requests, steps=steps))


def test_littles_law_notices_a_tenth_of_the_requests_lost_under_preemption():
    for ran in run(tight(requests=1000)):
        assert ran.row["preemptions"] > 0
        kept = np.arange(1000) % 100 < 90
        some = {name: column[kept] for name, column in ran.requests.items()}
        with pytest.raises(AssertionError):
            check_little(ran._replace(requests=some))


LENGTHS = st.one_of(
    st.builds(lambda n: {"kind": "fixed", "value": n}, st.integers(1, 400)),
    st.builds(
        lambda mean, cv: {"kind": "lognormal", "mean": mean, "cv": cv, "max": 1500},
        st.integers(2, 300),
        st.sampled_from([0.3, 1.0, 2.0]),
    ),
)
STRATEGIES = st.sampled_from(
    [
        {"kind": "autoregressive"},
        {"kind": "draft_model", "k": 4, "draft": "llama-3.2-1b", "acceptance": {"tau": 2.6}},
        {"kind": "eagle", "k": 3, "acceptance": {"alpha": 0.6}},
        {"kind": "eagle2", "acceptance": {"tau": 3.1}},
        {"kind": "eagle3", "k": 5, "acceptance": {"tau": 2.9}},
        {"kind": "ngram", "k": 3, "acceptance": {"match_rate": 0.3, "alpha": 0.7}},
        {"kind": "lookahead", "acceptance": {"tau": 1.5}},
        {"kind": "medusa", "acceptance": {"tau": 2.2}},
    ]
)
ARRIVALS = st.one_of(
    st.builds(lambda r: {"kind": "poisson", "rate_per_s": r}, st.sampled_from([0.5, 5, 40, 500])),
    st.builds(lambda r: {"kind": "constant", "rate_per_s": r}, st.sampled_from([1, 30])),
    st.builds(lambda r: {"kind": "gamma", "rate_per_s": r, "cv": 3}, st.sampled_from([5, 60])),
    st.builds(
        lambda users, think_s: {"kind": "closed_loop", "users": users, "think_s": think_s},
        st.integers(1, 40),
        st.sampled_from([0, 0.5]),
    ),
)
PREFIXES = st.sampled_from(
    [
        {},
        {"prefix": {"tokens": "all", "groups": 3, "order": "cycle"}},
        {"prefix": {"tokens": 64, "groups": 4, "order": "random"}},
    ]
)


def scenario_of(strategy: dict[str, Any], **blocks: Any) -> dict[str, Any]:
    listed = [{**strategy, "hypothetical": True}]
    model = {"transformer": "llama-3.1-8b", "replicas": blocks.pop("replicas")}
    return {
        "hardware": {"gpu": "h100_sxm"},
        "model": model,
        "strategies": listed,
        "run": {"band": False, "seed": blocks.pop("seed")},
        **blocks,
    }


def tightened(scenario: dict[str, Any], kv_tokens: int, seqs: int, tokens: int) -> dict[str, Any]:
    """Limits that leave the strategy a KV pool and let a full batch of it fit into a step."""
    (point,) = parse_scenario(load_yaml(json.dumps(scenario), "scenario.yaml")).points
    strategy = point.scenario.strategies[-1]
    deployment = build(point.scenario)
    budget = prepare(deployment, strategy, ("general",)).budget
    n_blocks = kv_tokens // deployment.engine.block_tokens
    needed = budget.weights_bytes + budget.draft_bytes + budget.reserve_bytes
    memory = needed + (n_blocks + 0.5) * budget.block_bytes
    limits = {
        "max_num_seqs": min(seqs, tokens // strategy.verify_tokens),
        "max_num_batched_tokens": tokens,
        "max_model_len": 1600,
        "gpu_memory_utilization": memory / budget.memory_bytes,
    }
    return {**scenario, "engine": {**scenario["engine"], **limits}}


@settings(max_examples=120, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    strategy=STRATEGIES,
    engine=st.sampled_from(["vllm_v0", "vllm_v0_swap", "vllm_0.10", "vllm_0.15", "sglang_0.5"]),
    kv_tokens=st.sampled_from([900, 1800, 3000, 300_000]),
    limits=st.sampled_from([(4, 256), (16, 512), (64, 4096)]),
    replicas=st.integers(1, 2),
    arrivals=ARRIVALS,
    prompt=LENGTHS,
    output=LENGTHS,
    prefix=PREFIXES,
    seed=st.integers(0, 2**32),
)
def test_any_small_scenario_keeps_the_invariants(
    strategy, engine, kv_tokens, limits, replicas, arrivals, prompt, output, prefix, seed
):
    shared = prefix.get("prefix", {}).get("tokens")
    assume(shared in (None, "all") or prompt.get("value", shared) >= shared)
    stream = {"prompt_tokens": prompt, "output_tokens": output, **prefix}
    if prompt.get("value", 64) < 64:
        stream.pop("prefix", None)
    workload = {"arrivals": arrivals, "requests": 40, "streams": [stream]}
    scenario = scenario_of(
        strategy, replicas=replicas, seed=seed, engine={"name": engine}, workload=workload
    )
    for ran in run(json.dumps(tightened(scenario, kv_tokens, *limits))):
        event(f"preempted: {ran.row['preemptions'] > 0}, rejected: {ran.row['rejected'] > 0}")
        check(ran)
