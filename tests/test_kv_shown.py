"""What a report says of KV layouts, policies and launches: figures, and what they rest on."""

from __future__ import annotations

import json

import pytest
from test_kv_runs_of_engines import POLICIES, scenario

from models.strict_yaml import InputError, load_yaml
from sim import experiment
from sim.analysis.assumptions import assumptions
from sim.analysis.report import run_report
from sim.scenario.build import build
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import parse_scenario


def document(asked):
    return experiment.run(parse_scenario(load_yaml(json.dumps(asked), "scenario.yaml"))).document


def test_a_report_shows_blocks_of_no_use_only_where_there_are_any():
    assert "unusable %" in run_report(document(scenario(4500, tree_kv="contiguous")), 100)
    assert "unusable %" not in run_report(document(scenario(4500)), 100)


def test_what_was_stated_and_assumed_is_listed():
    asked = scenario(4500, tree_kv="copy_on_write", launches={"per_step_us": 180})
    asked["engine"]["kv_policy"] = POLICIES[1]
    asked["model"] |= {"kv": "int4", "kv_loss": {"acceptance_loss": 0.1, "quality_loss": 0}}
    listed = {one.what: one for one in assumptions(document(asked))}
    for what in ("KV cache", "loss by int4 KV", "KV of trees", "KV policy", "launch overhead"):
        assert listed[what].basis == "assumed"
    assert "acceptance_loss 0.1" in listed["KV policy"].value
    assert "acceptance_loss 0.1" in listed["loss by int4 KV"].value
    assert "prefix caching is off" in listed["KV policy"].value
    assert "per_step_us 180" in listed["launch overhead"].value
    usual = [one.what for one in assumptions(document(scenario(40_000, requests=24)))]
    assert not {"KV cache", "KV of trees", "KV policy", "launch overhead"} & set(usual)
    assert not [what for what in usual if what.startswith("loss by")]


def test_fp8_that_nobody_says_costs_anything_is_assumed_to_cost_nothing():
    asked = scenario(40_000, requests=24)
    asked["model"]["kv"] = "fp8"
    listed = {one.what: one for one in assumptions(document(asked))}
    assert "no acceptance and no quality" in listed["loss by fp8 KV"].value
    asked["model"]["kv_loss"] = {"acceptance_loss": 0, "quality_loss": 0.02}
    listed = {one.what: one for one in assumptions(document(asked))}
    assert "quality_loss 0.02" in listed["loss by fp8 KV"].value


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"kv": "int4"}, "model.kv_loss"),
        ({"kv_loss": {"acceptance_loss": 0, "quality_loss": 0}}, "model.kv_loss"),
        ({"kv": "int4", "kv_loss": {"acceptance_loss": 0}}, "model.kv_loss.quality_loss"),
    ],
)
def test_losses_of_quantised_kv_are_stated_and_of_no_other(model, key):
    asked = scenario(4500)
    asked["model"] |= model
    with pytest.raises(InputError) as refused:
        parse_scenario(load_yaml(json.dumps(asked), "scenario.yaml"))
    assert refused.value.key == key
    assert "\n" not in refused.value.message


def test_bf16_may_be_compared_with_int4():
    asked = scenario(4500)
    asked["model"]["kv_loss"] = {"acceptance_loss": 0.5, "quality_loss": 0}
    asked["vary"] = {"model.kv": ["bf16", "int4"]}
    points = parse_scenario(load_yaml(json.dumps(asked), "scenario.yaml")).points
    assert [build(point.scenario).kv_loss is None for point in points] == [True, False]


@pytest.mark.parametrize("policy", POLICIES[1:], ids=lambda policy: policy["kind"])
def test_a_policy_loads_again_as_it_was_written(policy):
    asked = scenario(4500, launches={"per_pass_us": 3})
    asked["engine"]["kv_policy"] = policy
    resolved = parse_scenario(load_yaml(json.dumps(asked), "scenario.yaml")).resolved
    again = parse_scenario(load_yaml(resolved_yaml(resolved), "scenario.yaml")).resolved
    assert again == resolved
    assert again.engine.kv_policy.model_dump(exclude_defaults=True) == policy


@pytest.mark.parametrize(
    ("engine", "key"),
    [
        ({"tree_kv": "copies"}, "engine.tree_kv"),
        (
            {"kv_policy": {"kind": "snapkv", "budget_tokens": 9, "acceptance_loss": 0}},
            "engine.kv_policy.quality_loss",
        ),
        (
            {"kv_policy": {**POLICIES[1], "acceptance_loss": 1.5}},
            "engine.kv_policy.acceptance_loss",
        ),
        ({"kv_policy": {**POLICIES[3], "gb_per_s": 0}}, "engine.kv_policy.gb_per_s"),
        ({"launches": {"per_step_us": -1}}, "engine.launches.per_step_us"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(engine, key):
    asked = scenario(4500, **engine)
    with pytest.raises(InputError) as refused:
        parse_scenario(load_yaml(json.dumps(asked), "scenario.yaml"))
    assert refused.value.key == key
    assert "\n" not in refused.value.message
