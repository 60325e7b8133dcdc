"""How wide a band is, and what the word beside it rests on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from models.schema import Basis
from models.strict_yaml import load_yaml
from sim.band import Scale, gain_band, latency_band, step_scale
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.setup import Setup, prepare

SCENARIO = """
hardware: {{gpu: {gpu}}}
model: {{transformer: {target}, tp: {tp}}}
engine: {{name: {engine}}}
workload:
  arrivals: {{kind: closed_loop, users: 4}}
  streams:
    - name: only
      prompt_tokens: {{kind: fixed, value: 300}}
      output_tokens: {{kind: fixed, value: 120}}
strategies: [{strategy}]
"""


USUAL = {"engine": "vllm_0.10", "gpu": "h100_sxm", "target": "llama-3.1-8b", "tp": 1}


def prepared(strategy: str, engine: str = "vllm_0.10", **more: Any) -> Setup:
    text = SCENARIO.format(**{**USUAL, "strategy": strategy, "engine": engine, **more})
    scenario = parse_scenario(load_yaml(text, "band.yaml"), []).points[0].scenario
    return prepare(build(scenario), scenario.strategies[-1], ("",))


def eagle(acceptance: str = "tau: 2.4", engine: str = "vllm_0.10", **more: Any) -> Setup:
    return prepared(f"{{kind: eagle, k: 3, acceptance: {{{acceptance}}}}}", engine, **more)


PLAIN = "{kind: autoregressive}"


def test_plain_decoding_has_the_residuals_of_its_runs():
    # 84 load stages of vLLM 0.15.1: step error p90 5.6 %
    scale = step_scale(prepared(PLAIN, "vllm_0.15"), 64)
    assert scale == Scale(pytest.approx(0.944), pytest.approx(1.056), 0.9, "validated")


@pytest.mark.parametrize(
    ("query_tokens", "mape"), [(4, 4.6), (16, 4.6), (17, 3.3), (128, 3.3), (384, 2.5), (640, 4.8)]
)
def test_residuals_of_speculation_follow_the_tokens_of_a_step(query_tokens, mape):
    # normal errors: a mean absolute error of x % has its 90 % interval at 2.06 x
    half = 2.06 * mape / 100
    scale = step_scale(eagle("tau: 2.4, uncertainty: 0"), query_tokens)
    assert (scale.lo, scale.hi) == pytest.approx((1 - half, 1 + half), abs=6e-4)
    assert scale.basis == "validated"


@pytest.mark.parametrize("uncertainty", [0.0, 0.01, 0.05, 0.2])
def test_the_error_of_tau_is_independent_of_that_of_the_step(uncertainty):
    scale = step_scale(eagle(f"tau: 2.4, uncertainty: {uncertainty}"), 64)
    spread = 1.645 * uncertainty
    assert math.log(scale.hi) == pytest.approx(math.hypot(math.log(1.068), spread))
    assert math.log(scale.lo) == pytest.approx(-math.hypot(math.log(0.932), spread))


def test_the_two_ends_are_a_ninety_percent_interval_of_tau():
    # with the residuals small beside it, +-1.645 standard errors of a relative error
    scale = step_scale(eagle("tau: 2.4, uncertainty: 0.3"), 64)
    assert scale.level == 0.9
    assert math.log(scale.hi) == pytest.approx(1.645 * 0.3, rel=0.02)
    assert math.log(scale.lo) == pytest.approx(-1.645 * 0.3, rel=0.02)


def test_plain_decoding_knows_its_tau():
    narrow = step_scale(prepared(PLAIN), 1)
    assert (narrow.lo, narrow.hi) == pytest.approx((0.944, 1.056))


def test_sync_points_of_asynchronous_speculation_only_lengthen_steps():
    # 6 % until vLLM 0.19
    sync, early, late = (
        step_scale(eagle(engine=engine), 64) for engine in ("vllm_0.10", "vllm_0.15", "vllm_0.19")
    )
    assert early.hi == pytest.approx(1.06 * sync.hi)
    assert late.hi == pytest.approx(sync.hi)
    assert early.lo == late.lo == pytest.approx(sync.lo)
    plain = step_scale(prepared(PLAIN, "vllm_0.15"), 64)
    assert plain.hi == pytest.approx(1.056)


def test_drafted_trees_have_residuals_of_their_own():
    tree = prepared("{kind: eagle2, acceptance: {tau: 3.4, uncertainty: 0}}", "sglang_0.5")
    scale = step_scale(tree, 960)
    assert (scale.lo, scale.hi) == pytest.approx((0.75, 1.13))
    static = "{kind: eagle, tree: eagle_25, acceptance: {tau: 3.0, uncertainty: 0}}"
    assert step_scale(prepared(static, "sglang_0.5"), 960)[:2] == pytest.approx((0.75, 1.13))


# The basis is that of the weakest part

ORDER: list[Basis] = ["validated", "extrapolated", "assumed"]


def test_each_input_alone_weakens_the_basis():
    good = eagle()
    assert step_scale(good, 64).basis == "validated"
    assert step_scale(eagle("catalog: eagle_llama31_8b"), 64).basis == "validated"
    weaker = [
        (eagle(gpu="h200_sxm"), 64, "extrapolated"),
        (eagle("tau: 2.4, basis: extrapolated"), 64, "extrapolated"),
        (eagle("tau: 2.4, basis: assumed"), 64, "assumed"),
        # solved at one K for another
        (eagle("tau_at_k: 2.4, at_k: 2"), 64, "extrapolated"),
        # rates of one target on another
        (eagle("catalog: eagle_llama31_8b", target="llama-3.1-70b", tp=4), 64, "extrapolated"),
        # no runs beyond a batch of 128
        (eagle(), 4000, "extrapolated"),
        # scored on synchronous engines only
        (eagle(engine="vllm_0.15"), 64, "extrapolated"),
        # the cost of a pass in full graphs was never measured
        (eagle(engine="vllm_0.24"), 64, "assumed"),
        (prepared("{kind: eagle2, hypothetical: true, acceptance: {tau: 3.4}}"), 960, "assumed"),
    ]
    assert [step_scale(setup, m).basis for setup, m, _ in weaker] == [b for *_, b in weaker]


@pytest.mark.parametrize("of_law", ORDER)
@pytest.mark.parametrize("of_profile", ORDER)
@pytest.mark.parametrize("of_drafts", ORDER)
def test_the_basis_is_the_worst_of_its_inputs(of_law, of_profile, of_drafts):
    good = eagle()
    engine = good.deployment.engine.model_copy(update={"draft_basis": of_drafts})
    deployment = replace(good.deployment, profile_basis=of_profile, engine=engine)
    setup = replace(good, deployment=deployment, law=replace(good.law, basis=of_law))
    worst = max((of_law, of_profile, of_drafts), key=ORDER.index)
    assert step_scale(setup, 64).basis == worst


def test_plain_decoding_does_not_rest_on_drafts():
    setup = prepared(PLAIN, "vllm_0.24")
    assert setup.deployment.engine.draft_basis == "assumed"
    assert step_scale(setup, 64).basis == "validated"


# Bands of one number


SCALE = Scale(0.9, 1.1, 0.9, "extrapolated")


def test_a_latency_lies_between_its_re_runs():
    assert latency_band(2.0, 1.8, 2.3, SCALE) == {
        "lo": 1.8,
        "hi": 2.3,
        "level": 0.9,
        "basis": "extrapolated",
    }
    # a slower step can mean an earlier first token: the band spans all three
    assert latency_band(2.0, 2.1, 1.9, SCALE)["lo"] == 1.9
    assert latency_band(2.0, 2.1, 1.9, SCALE)["hi"] == 2.1


def test_a_saturated_re_run_leaves_one_end_open():
    assert latency_band(2.0, 1.8, None, SCALE)["hi"] is None
    assert latency_band(2.0, 1.8, None, SCALE)["lo"] == 1.8
    assert gain_band(2.0, 2.2, None, SCALE)["lo"] is None
    assert gain_band(2.0, 2.2, None, SCALE)["hi"] == 2.2
    assert gain_band(2.0, 2.2, 1.7, SCALE)["lo"] == 1.7
    assert latency_band(None, 1.8, 2.3, SCALE) is None
    assert gain_band(None, 2.2, 1.7, SCALE) is None
