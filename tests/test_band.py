"""How wide a band is, and what the word beside it rests on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from models import catalog
from models.residuals import Residual, Residuals
from models.schema import Basis
from models.strict_yaml import load_yaml
from sim.band import Scale, interval, step_scale, with_prefill
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.setup import Setup, prepare

SCENARIO = """
hardware: {{gpu: {gpu}}}
model: {{transformer: {target}, tp: {tp}, weights: {weights}}}
engine: {{name: {engine}}}
workload:
  arrivals: {{kind: closed_loop, users: 4}}
  streams:
    - name: only
      prompt_tokens: {{kind: fixed, value: 300}}
      output_tokens: {{kind: fixed, value: 120}}
strategies: [{strategy}]
"""


USUAL = {
    "engine": "vllm_0.10",
    "gpu": "h100_sxm",
    "target": "llama-3.1-8b",
    "tp": 1,
    "weights": "bf16",
}


TRACED = (("eagle", "ngram"), "vllm_v1", ())
ENDS = {
    (("plain",), "vllm_v1", (), None): (0.944, 1.056),
    (("plain",), "vllm_v1", ("fp8",), None): (0.92, 1.23),
    (*TRACED, 16): (0.905, 1.095),
    (*TRACED, 128): (0.932, 1.068),
    (*TRACED, 384): (0.948, 1.052),
    (*TRACED, 640): (0.901, 1.099),
    (("eagle3",), "vllm_v1", (), None): (0.89, 1.11),
    (("tree",), "sglang", (), 1408): (0.75, 1.13),
    (("*",), "*", ("fp8",), None): (0.79, 1.05),
}
"""Ends of residual rows that stay as they are here, whatever the catalogue's come to."""


def fixed(row: Residual) -> Residual:
    ends = ENDS.get((row.family, row.engine, row.weights, row.m_max))
    return (
        row if ends is None else row.model_copy(update=dict(zip(("lo", "hi"), ends, strict=True)))
    )


def residuals() -> Residuals:
    shipped = catalog.residuals()
    return Residuals(
        steps=tuple(map(fixed, shipped.steps)), prefill=tuple(map(fixed, shipped.prefill))
    )


def prepared(strategy: str, engine: str = "vllm_0.10", **more: Any) -> Setup:
    text = SCENARIO.format(**{**USUAL, "strategy": strategy, "engine": engine, **more})
    scenario = parse_scenario(load_yaml(text, "band.yaml"), []).points[0].scenario
    deployment = replace(build(scenario), residuals=residuals())
    return prepare(deployment, scenario.strategies[-1], ("",))


def eagle(acceptance: str = "tau: 2.4", engine: str = "vllm_0.10", **more: Any) -> Setup:
    return prepared(f"{{kind: eagle, k: 3, acceptance: {{{acceptance}}}}}", engine, **more)


PLAIN = "{kind: autoregressive}"


def test_plain_decoding_has_the_residuals_of_its_runs():
    scale = step_scale(prepared(PLAIN, "vllm_0.15"), 64)
    assert scale == Scale(pytest.approx(0.944), pytest.approx(1.056), 1.0, 1.0, 0.9, "validated")


@pytest.mark.parametrize(
    ("changes", "lo", "hi", "basis"),
    [
        # other engine versions than the one scored, other kinds of weights
        ({"engine": "vllm_0.33"}, 0.944, 1.056, "extrapolated"),
        ({"engine": "vllm_0.10"}, 0.944, 1.056, "extrapolated"),
        ({"weights": "fp8"}, 0.92, 1.23, "extrapolated"),
        ({"weights": "int8"}, 0.8, 1.25, "assumed"),
        ({"weights": "int4"}, 0.8, 1.25, "assumed"),
        # mixtures of experts were among the runs, at TP 2 and 4
        ({"target": "mixtral-8x7b", "tp": 2}, 0.944, 1.056, "validated"),
    ],
)
def test_plain_decoding_is_validated_only_where_it_was_scored(changes, lo, hi, basis):
    scale = step_scale(prepared(PLAIN, **{"engine": "vllm_0.15", **changes}), 64)
    assert (scale.lo, scale.hi) == pytest.approx((lo, hi))
    assert scale.basis == basis


@pytest.mark.parametrize(
    ("query_tokens", "mape"), [(4, 4.6), (16, 4.6), (17, 3.3), (128, 3.3), (384, 2.5), (640, 4.8)]
)
def test_residuals_of_speculation_follow_the_tokens_of_a_step(query_tokens, mape):
    # normal errors: a mean absolute error of x % has its 90 % interval at 2.06 x
    half = 2.06 * mape / 100
    scale = step_scale(eagle("tau: 2.4, uncertainty: 0"), query_tokens)
    assert (scale.gain_lo, scale.gain_hi) == pytest.approx((1 - half, 1 + half), abs=6e-4)
    assert scale.basis == "validated"


def test_latencies_of_speculation_carry_the_error_of_plain_decoding_too():
    # the residuals of speculation are those of a speedup, in which common errors cancel
    scale = step_scale(eagle("tau: 2.4, uncertainty: 0"), 64)
    assert math.log(scale.hi) == pytest.approx(math.hypot(math.log(1.056), math.log(1.068)))
    assert math.log(scale.lo) == pytest.approx(-math.hypot(math.log(0.944), math.log(0.932)))


@pytest.mark.parametrize(
    ("strategy", "half"),
    [
        ("{kind: eagle3, k: 3, acceptance: {tau: 2.4, uncertainty: 0}}", 0.11),
        (
            "{kind: draft_model, draft: llama-3.2-1b, k: 3, acceptance: {tau: 2, uncertainty: 0}}",
            0.122,
        ),
    ],
)
def test_only_eagle_and_ngram_were_scored_from_traces(strategy, half):
    scale = step_scale(prepared(strategy), 64)
    assert (scale.gain_lo, scale.gain_hi) == pytest.approx((1 - half, 1 + half))
    assert scale.basis == "extrapolated"


@pytest.mark.parametrize("uncertainty", [0.0, 0.01, 0.05, 0.2])
def test_the_error_of_tau_is_independent_of_that_of_the_step(uncertainty):
    scale = step_scale(eagle(f"tau: 2.4, uncertainty: {uncertainty}"), 64)
    spread = 1.645 * uncertainty
    assert math.log(scale.gain_hi) == pytest.approx(math.hypot(math.log(1.068), spread))
    assert math.log(scale.gain_lo) == pytest.approx(-math.hypot(math.log(0.932), spread))


def test_the_two_ends_are_a_ninety_percent_interval_of_tau():
    # with the residuals small beside it, +-1.645 standard errors of a relative error
    scale = step_scale(eagle("tau: 2.4, uncertainty: 0.3"), 64)
    assert scale.level == 0.9
    assert math.log(scale.hi) == pytest.approx(1.645 * 0.3, rel=0.03)
    assert math.log(scale.lo) == pytest.approx(-1.645 * 0.3, rel=0.03)


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
    assert (scale.gain_lo, scale.gain_hi) == pytest.approx((0.75, 1.13))
    static = "{kind: eagle, tree: eagle_25, acceptance: {tau: 3.0, uncertainty: 0}}"
    scale = step_scale(prepared(static, "sglang_0.5"), 960)
    assert (scale.gain_lo, scale.gain_hi) == pytest.approx((0.75, 1.13))


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
        (eagle(weights="fp8"), 64, "extrapolated"),
        (eagle(target="qwen3-30b-a3b"), 64, "extrapolated"),
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
    assert step_scale(setup, 64).basis == "extrapolated"


# Bands of one number


SCALE = Scale(0.9, 1.1, 0.95, 1.05, 0.9, "extrapolated")


def latency(*values: float | None) -> dict[str, Any]:
    found = interval(*values, scale=SCALE, open_above=True)
    assert found is not None
    return found


def test_a_latency_lies_between_its_re_runs():
    assert latency(2.0, 1.8, 2.3) == {
        "lo": 1.8,
        "hi": 2.3,
        "level": 0.9,
        "basis": "extrapolated",
    }
    # a slower step can mean an earlier first token: the band spans all three
    assert (latency(2.0, 2.1, 1.9)["lo"], latency(2.0, 2.1, 1.9)["hi"]) == (1.9, 2.1)


def test_a_saturated_re_run_leaves_one_end_open():
    assert (latency(2.0, 1.8, None)["lo"], latency(2.0, 1.8, None)["hi"]) == (1.8, None)
    gain = interval(2.0, 2.2, None, scale=SCALE, open_above=False)
    assert gain is not None
    assert (gain["lo"], gain["hi"]) == (None, 2.2)
    assert interval(None, 1.8, 2.3, scale=SCALE, open_above=True) is None


def test_a_first_token_carries_the_residual_of_the_prompt_computed():
    fp8 = prepared(PLAIN, "vllm_0.15", weights="fp8")
    none = with_prefill(latency(2.0, 1.8, 2.2), fp8, 0.0)
    assert none == latency(2.0, 1.8, 2.2)
    # fp8 prompts were predicted 5 to 28 % late
    whole = with_prefill(latency(2.0, 1.8, 2.2), fp8, 1.0)
    assert whole is not None
    assert (whole["lo"], whole["hi"]) == pytest.approx((1.8 * 0.79, 2.2 * 1.05))
    half = with_prefill(latency(2.0, 1.8, None), fp8, 0.5)
    assert half is not None
    assert half["lo"] == pytest.approx(1.8 * 0.895)
    assert half["hi"] is None
    int4 = with_prefill(latency(2.0, 1.8, 2.2), prepared(PLAIN, weights="int4"), 1.0)
    assert int4 is not None
    assert int4["basis"] == "assumed"
