"""Loading a scenario: defaults, grids, overrides, resolution, and writing it back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from models.strategies import strategy_types
from models.strict_yaml import InputError, load_yaml
from sim.scenario.build import build
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import ScenarioFile, load_scenario, parse_scenario
from sim.scenario.schema import Scenario
from sim.scenario.service_level import Slo
from sim.scenario.template import commented_scenario, json_schema
from sim.scenario.workload import generate

SIX_LINES = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-70b, tp: 4}
workload:
  arrivals: {kind: poisson, rate_per_s: 4}
strategies:
  - {kind: eagle3, k: 3}
"""


def parse(text: str, *overrides: str) -> ScenarioFile:
    return parse_scenario(load_yaml(text, "what-if.yaml"), overrides)


def one(*overrides: str, text: str = SIX_LINES) -> Scenario:
    (point,) = parse(text, *overrides).points
    return point.scenario


# Defaults


def test_six_lines_are_a_scenario() -> None:
    scenario = one()
    assert [s.kind for s in scenario.strategies] == ["autoregressive", "eagle3"]
    assert scenario.baseline == 0
    assert len(generate(scenario.workload, scenario.run.seed)) == 1000


def test_listed_plain_decoding_keeps_its_place() -> None:
    scenario = one("strategies=[{kind: eagle3}, {kind: autoregressive}]")
    assert [s.kind for s in scenario.strategies] == ["eagle3", "autoregressive"]
    assert scenario.baseline == 1


def test_a_scenario_is_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        one().run.seed = 2  # type: ignore[misc]


# Grid and overrides


def test_vary_is_a_grid_with_the_last_key_fastest() -> None:
    text = SIX_LINES + "vary:\n  model.tp: [2, 4]\n  strategies[0].k: [1, 3, 5]\n"
    file = parse(text)
    assert [tuple(p.values.values()) for p in file.points] == [
        (tp, k) for tp in (2, 4) for k in (1, 3, 5)
    ]
    assert [p.scenario.strategies[1].depth for p in file.points] == [1, 3, 5] * 2
    assert file.points[0].values == {"model.tp": 2, "strategies[0].k": 1}
    assert not file.points[0].scenario.vary


@pytest.mark.parametrize("key", ["strategies[0].k", "strategies.0.k"])
def test_a_list_item_is_addressed_either_way(key: str) -> None:
    assert one(f"{key}=5").strategies[1].depth == 5


def test_an_override_is_typed_by_strict_yaml() -> None:
    scenario = one("workload.arrivals.rate_per_s=1.2e1", "slo.ttft_s={p95: 0.5}", "run.band=false")
    assert scenario.workload.arrivals.rate_per_s == 12.0
    assert scenario.slo.ttft_s is not None
    assert scenario.slo.ttft_s.p95 == 0.5
    assert scenario.run.band is False


def test_an_override_wins_over_the_file_and_over_vary() -> None:
    text = SIX_LINES + "vary: {strategies.0.k: [1, 3], model.tp: [2, 4]}\n"
    file = parse(text, "strategies[0].k=7", "model.tp=8", "model.tp=2")
    (point,) = file.points
    assert (point.scenario.model.tp, point.scenario.strategies[1].depth) == (2, 7)
    assert point.values == {}


@pytest.mark.parametrize("key", ["strategies[0].k", "strategies.0.k", "strategies[00].k"])
def test_an_override_fixes_a_varied_key_however_it_is_written(key: str) -> None:
    file = parse(SIX_LINES + "vary: {strategies.0.k: [1, 3]}\n", f"{key}=7")
    assert [(p.values, p.scenario.strategies[1].depth) for p in file.points] == [({}, 7)]


def test_overriding_a_block_stops_the_variation_inside_it() -> None:
    text = SIX_LINES + "vary: {workload.arrivals.rate_per_s: [1, 2]}\n"
    file = parse(text, "workload.arrivals={kind: constant, rate_per_s: 9}")
    assert [p.scenario.workload.arrivals.kind for p in file.points] == ["constant"]


# Writing back


def again(scenario: Scenario) -> Scenario:
    return one(text=resolved_yaml(scenario))


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("workload.arrivals={kind: closed_loop, users: 3}", "run.warmup=0.1", "slo.e2e_s={p99: 9}"),
        ("workload.streams=[{name: '3e1', prefix: {tokens: all, groups: 4}, domain: 'no'}]",),
        ("strategies=[{kind: medusa, tree: [[0], [0, 0], [1]], hypothetical: true}]",),
        ("strategies=[{kind: eagle3, tree: {topk: 4}, hypothetical: true, label: 'a: # é'}]",),
        ("strategies=[{kind: ngram, acceptance: {tau: 1.5}}]",),
        ("workload.arrivals.rate_per_s=1.5e-5", "hardware.price_per_gpu_hour=0"),
        (
            "slo={tpot_s: {p95: 1}, classes: {'1': {ttft_s: {p95: 0.5}, attainment: 0.9}}}",
            "workload.streams=[{share: 0.5, slo_class: '1'}, {name: b, share: 0.5}]",
        ),
        (
            "workload.arrivals={kind: diurnal, mean_rate_per_s: 4, peak_factor: 3}",
            "workload.duration_s=86400",
        ),
        ("workload.arrivals={kind: on_off, rate_per_s: 4, on_s: 20, off_s: 60}",),
        ("workload.arrivals={kind: ramp, from_per_s: 0, to_per_s: 8, over_s: 60}",),
        ("workload.streams=[{session: {turns: {kind: fixed, value: 4}, max_tokens: 4000}}]",),
    ],
)
def test_a_resolved_scenario_loads_to_an_equal_one(overrides: tuple[str, ...]) -> None:
    scenario = one(*overrides)
    assert again(scenario) == scenario


def test_a_resolved_grid_loads_to_the_same_points() -> None:
    text = SIX_LINES + "vary: {'strategies[0].k': [1, 3], workload.arrivals.rate_per_s: [2, 4]}\n"
    file = parse(text, "run.seed=7")
    points = parse(resolved_yaml(file.resolved)).points
    assert [p.scenario for p in points] == [p.scenario for p in file.points]
    assert list(points[0].values) == ["strategies[1].k", "workload.arrivals.rate_per_s"]


# Paths


HF_CONFIG = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def test_file_names_are_relative_to_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(HF_CONFIG))
    text = SIX_LINES.replace("llama-3.1-70b", "mine/config.json")
    text += "  - {kind: draft_model, draft: ./mine/config.json, k: 2}\n"
    (tmp_path / "what-if.yaml").write_text(text)
    monkeypatch.chdir(tmp_path.parent)
    (point,) = load_scenario(f"{tmp_path.name}/what-if.yaml").points
    assert build(point.scenario).target.layers == 16
    monkeypatch.chdir("/")
    assert build(again(point.scenario)).target.name == "mine"


# Template and schema


def test_the_template_loads_and_runs_for_the_model_asked() -> None:
    text = commented_scenario("llama-3.1-8b", "h200_sxm", 1)
    scenario = one(text=text)
    assert scenario.model.transformer == "llama-3.1-8b"
    assert scenario.hardware.gpu == "h200_sxm"
    assert len(generate(scenario.workload, 1)) == scenario.workload.requests


def test_the_template_shows_every_key() -> None:
    text = commented_scenario()
    for model in _blocks(Scenario):
        for name in model.model_fields:
            assert f"{name}:" in text or name in ("label", "p50", "p90"), (model, name)
    for kind in strategy_types():
        assert f"kind: {kind}" in text


def test_every_alternative_in_the_template_can_be_chosen() -> None:
    text = commented_scenario("llama-3.1-8b", "h100_sxm", 1)
    alternatives = re.findall(r"# (arrivals|session): (\{(?:.|\n *# )*?\})(?= *$| *#)", text, re.M)
    kinds = set()
    for key, value in alternatives:
        value = re.sub(r"\n *#", " ", value)
        place = "workload.arrivals" if key == "arrivals" else "workload.streams[0].session"
        scenario = one(f"{place}={value}", text=text)
        kinds.add(scenario.workload.arrivals.kind)
        assert key == "arrivals" or scenario.workload.streams[0].session is not None
    assert kinds >= {"poisson", "constant", "gamma", "on_off", "ramp", "diurnal", "closed_loop"}
    longer = one("workload.requests=null", "workload.duration_s=3600", text=text)
    assert longer.workload.expected_requests == 4 * 3600


def test_a_template_that_cannot_run_is_refused() -> None:
    with pytest.raises(InputError, match=r"model.transformer: unknown .* did you mean"):
        commented_scenario("llama-3.1-80b")
    with pytest.raises(InputError, match=r"model\.tp: must divide"):
        commented_scenario(tp=7)


def _blocks(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Every model of the scenario but the strategies."""
    yield model
    for name, info in model.model_fields.items():
        if name != "strategies":
            for inner in _models_in(info.annotation):
                yield from _blocks(inner)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def test_every_key_is_described() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    for name, definition in {"Scenario": schema, **definitions}.items():
        for key, field in definition.get("properties", {}).items():
            if key == "kind":  # its values are explained by the block they choose
                continue
            block = definitions.get(field.get("$ref", "").removeprefix("#/$defs/"), {})
            assert field.get("description") or block.get("description"), f"{name}.{key}"


def test_the_json_schema_lists_every_strategy() -> None:
    tags = json_schema()["properties"]["strategies"]["items"]["discriminator"]["mapping"]
    assert set(tags) == set(strategy_types())


# Packages


def test_a_foreign_models_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").touch()
    root = Path(__file__).resolve().parent.parent
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(root)!r}]; import sim"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: speccast needs its own package 'models'" in run.stderr
    assert str(tmp_path) in run.stderr


@pytest.mark.parametrize(
    ("slo", "shares"),
    [
        ("{ttft_s: {p95: 0.5}, tpot_s: {p50: 0.02, p90: 0.03}}", [0.95]),
        ("{ttft_s: {p95: 0.5}, attainment: 0.8, classes: {a: {e2e_s: {p50: 9}}}}", [0.8, None]),
        (
            "{classes: {a: {e2e_s: {p50: 9}}, b: {ttft_s: {p99: 1}, attainment: 0.9}}}",
            [0.99, 0.5, 0.9],
        ),
        ("{}", [0.99]),
    ],
)
def test_attainment_is_as_strict_as_the_strictest_percentile_where_none_is_stated(slo, shares):
    level = Slo.model_validate(load_yaml(slo, "x").data)
    assert [level.attainment, *(own.attainment for own in level.classes.values())] == shares
