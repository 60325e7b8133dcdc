"""The closed-form estimate: what it is made of, which way it moves, how near a simulation it is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.strict_yaml import load_yaml
from sim.planning.busy_hour import Stretch
from sim.planning.estimate import OPTIMISM, Estimate, estimate
from sim.planning.guess import expected_load
from sim.planning.hour import Judge
from sim.planning.search import largest
from sim.planning.steady import Replica
from sim.planning.traffic import Traffic
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.scenario.schema import Scenario
from sim.scenario.service_level import Slo
from sim.setup import Setup, prepare

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-70b, tp: 4, weights: fp8}
engine: {max_num_seqs: 64}
workload:
  arrivals: {kind: poisson, rate_per_s: 1}
  streams:
    - prompt_tokens: {kind: lognormal, mean: 600, cv: 0.8}
      output_tokens: {kind: lognormal, mean: 120, cv: 0.6}
strategies: [{kind: autoregressive}, {kind: eagle3, k: 3}, {kind: ngram}, STRATEGY]
slo: {ttft_s: {p95: 0.5}, tpot_s: {p95: 0.025}, attainment: 0.9}
"""
GATE = "{kind: adaptive, primary: {kind: eagle3, k: 3}, hypothetical: true, label: gate}"


def scenario_of(*changes: str) -> Scenario:
    text = TEXT.replace("STRATEGY", GATE)
    return parse_scenario(load_yaml(text, "case"), list(changes)).points[0].scenario


@cache
def case(index: int = 0, *changes: str) -> tuple[Setup, Traffic, Slo]:
    scenario = scenario_of(*changes)
    traffic = Traffic.of(scenario.workload, scenario.run.seed)
    setup = prepare(build(scenario), scenario.strategies[index], traffic.domain_names)
    return setup, traffic, scenario.slo


def held(index: int = 0, *changes: str) -> Estimate:
    found = estimate(*case(index, *changes))
    assert found is not None
    return found


def test_little_s_law_holds_at_every_batch() -> None:
    setup, traffic, _ = case()
    replica = Replica(setup, traffic)
    for n in (0.1, 3.0, 40.0):
        state = replica.at(n)
        stay_s = state.work_s + np.asarray(state.held.mean)
        assert state.rate_req_s * stay_s.mean() == pytest.approx(n)


def test_without_bounds_a_replica_is_full() -> None:
    setup, traffic, _ = case()
    found = estimate(setup, traffic, Slo())
    assert found is not None
    assert (found.limited_by, found.batch) == ("max_num_seqs", 64)


def test_with_little_memory_blocks_are_short() -> None:
    found = held(0, "hardware.gpu=l40s", "slo.tpot_s.p95=9", "slo.ttft_s.p95=9")
    full = estimate(*case(0, "hardware.gpu=l40s")[:2], Slo())
    assert full is not None and found.rate_req_s <= full.rate_req_s
    assert held(0, "engine.gpu_memory_utilization=0.3", "slo.tpot_s.p95=9").batch < 64


def test_answers_of_one_token_are_bound_by_their_prompts_alone() -> None:
    stream = "{prompt_tokens: {kind: fixed, value: 2000}, output_tokens: {kind: fixed, value: 1}}"
    slo = "slo={ttft_s: {p95: 1}, attainment: 0.9}"
    found = held(0, f"workload.streams=[{stream}]", slo)
    setup, traffic, _ = case(0, f"workload.streams=[{stream}]", slo)
    service_s = Replica(setup, traffic).at(1e-3, among=False).own_s.mean()
    assert 0.3 / service_s < found.rate_req_s < 1 / service_s
    assert found.limited_by == "ttft_s p95"


def test_nothing_is_held_where_even_an_idle_replica_is_late() -> None:
    setup, traffic, _ = case()
    step_s = setup.step_time.mixed(1, 600.0, 1, 600.0)
    assert estimate(setup, traffic, Slo.model_validate({"tpot_s": {"p95": 0.9 * step_s}})) is None


def test_each_bound_limits_where_it_is_tight() -> None:
    assert held().limited_by == "tpot_s p95"
    assert held(0, "slo.tpot_s.p95=1", "slo.ttft_s.p95=0.25").limited_by == "ttft_s p95"
    assert held(0, "slo.attainment=0.9999").limited_by == "attainment"
    loose = ("slo.tpot_s.p95=1", "slo.ttft_s.p95=9", "slo.attainment=0.5")
    assert held(0, *loose, "slo.e2e_s={p90: 4}").limited_by == "e2e_s p90"


def test_the_tightest_class_limits_all() -> None:
    chat = "{name: chat, share: 0.5, slo_class: chat, output_tokens: {kind: fixed, value: 100}}"
    batch = "{name: batch, share: 0.5, output_tokens: {kind: fixed, value: 100}}"
    streams = f"workload.streams=[{chat}, {batch}]"
    loose = held(0, streams, "slo={tpot_s: {p95: 0.05}, classes: {chat: {tpot_s: {p95: 0.05}}}}")
    tight = held(0, streams, "slo={tpot_s: {p95: 0.05}, classes: {chat: {tpot_s: {p95: 0.02}}}}")
    alike = held(0, streams, "slo={tpot_s: {p95: 0.02}, classes: {chat: {tpot_s: {p95: 0.02}}}}")
    assert tight.rate_req_s < 0.8 * loose.rate_req_s
    assert tight.rate_req_s == pytest.approx(alike.rate_req_s, rel=0.1)


def test_a_gate_is_at_least_as_good_as_its_modes() -> None:
    gate, drafting, plain = (held(index).rate_req_s for index in (3, 1, 0))
    assert gate >= 0.95 * max(drafting, plain)


def test_a_fleet_gets_more_out_of_each_replica() -> None:
    arguments = case()
    alone, shared = (estimate(*arguments, replicas=replicas) for replicas in (1, 8))
    assert alone is not None and shared is not None
    assert alone.rate_req_s < shared.rate_req_s < 1.5 * alone.rate_req_s


factors = st.floats(1.0, 3.0)


@settings(max_examples=12, deadline=None)
@given(index=st.integers(0, 2), tpot=factors, ttft=factors, share=st.floats(0.5, 1.0))
def test_looser_bounds_never_lower_it(index: int, tpot: float, ttft: float, share: float) -> None:
    setup, traffic, slo = case(index)
    bounds = {"ttft_s": {"p95": 0.5 * ttft}, "tpot_s": {"p95": 0.025 * tpot}}
    looser = Slo.model_validate({**bounds, "attainment": 0.9 * share})
    before, after = estimate(setup, traffic, slo), estimate(setup, traffic, looser)
    assert before is not None and after is not None
    assert after.rate_req_s >= 0.995 * before.rate_req_s


@settings(max_examples=10, deadline=None)
@given(index=st.integers(0, 2), faster=st.floats(1.0, 3.0))
def test_more_memory_bandwidth_never_lowers_it(index: int, faster: float) -> None:
    setup, traffic, slo = case(index)
    gpu = setup.deployment.accelerator
    bandwidth = faster * gpu.memory_bandwidth_bytes_per_s
    better = gpu.model_copy(update={"memory_bandwidth_bytes_per_s": bandwidth})
    deployment = replace(setup.deployment, accelerator=better)
    improved = prepare(deployment, setup.strategy, traffic.domain_names)
    before, after = estimate(setup, traffic, slo), estimate(improved, traffic, slo)
    assert before is not None and after is not None
    assert after.rate_req_s >= 0.995 * before.rate_req_s


def test_it_is_near_what_a_simulation_finds() -> None:
    scenario = scenario_of()
    judge = Judge(scenario, scenario.strategies[0], Stretch(20.0, 240.0, 240.0))
    found = estimate(*case(), window_s=240.0)
    assert found is not None
    expected = found.rate_req_s
    root = largest(
        lambda load: judge(load).met, expected, tolerance=0.1, least=0.1, most=100, step=1.1
    )
    assert root.value is not None
    assert root.value / OPTIMISM < expected < root.value * OPTIMISM


def test_a_prefix_is_cached_from_its_second_request_on() -> None:
    stream = "{prompt_tokens: {kind: fixed, value: 500}, prefix: {tokens: 400, groups: 2}}"
    traffic = case(0, f"workload.streams=[{stream}]")[1]
    assert sorted(set(traffic.cached_tokens.tolist())) == [0, 400]
    assert (traffic.cached_tokens == 0).sum() == 2


def test_later_turns_find_all_that_was_said_before() -> None:
    lengths = "prompt_tokens: {kind: fixed, value: 100}, output_tokens: {kind: fixed, value: 50}"
    stream = f"{{{lengths}, session: {{turns: {{kind: fixed, value: 3}}}}}}"
    traffic = case(0, f"workload.streams=[{stream}]")[1]
    assert traffic.per_arrival == pytest.approx(3, rel=0.01)
    assert set(traffic.cached_tokens.tolist()) == {0, 149, 299}


def test_a_search_begins_in_the_unit_of_the_arrivals() -> None:
    def expected(arrivals: str, **more: Any) -> float:
        scenario = scenario_of(f"workload.arrivals={arrivals}", "model.replicas=2")
        setup = prepare(build(scenario), scenario.strategies[0], ("general",))
        found = expected_load(scenario, setup, 300.0)
        assert found is not None
        return found

    rate = expected("{kind: poisson, rate_per_s: 1}")
    assert rate > held().rate_req_s
    day = "{kind: diurnal, mean_rate_per_s: 1, peak_hour: 12, peak_factor: 3}"
    assert expected(day) == pytest.approx(rate / 3, rel=0.05)
    users = expected("{kind: closed_loop, users: 1, think_s: 60}")
    assert users == pytest.approx(rate * 60, rel=0.1)
