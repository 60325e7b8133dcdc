"""The catalogue: every entry loads, every number has a source, totals match published sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models import catalog
from models.catalog.facts import facts
from models.schema import ModelError
from models.strategies import strategy_types
from models.strict_yaml import InputError
from models.transformer import Transformer

LOADERS = {
    "hardware": catalog.hardware,
    "transformers": catalog.transformer,
    "engines": catalog.engine,
    "profiles": catalog.profile,
}

# Parameters as published on the model cards, in billions, MTP layers left out.
PUBLISHED = {
    "llama-2-7b": 6.738,
    "llama-2-70b": 68.98,
    "llama-3.1-8b": 8.030,
    "llama-3.1-70b": 70.55,
    "llama-3.1-405b": 405.85,
    "llama-3.2-1b": 1.236,
    "vicuna-7b": 6.738,
    "vicuna-13b": 13.02,
    "vicuna-33b": 32.53,
    "llama-4-scout": 109,
    "llama-68m": 0.068,
    "llama-160m": 0.162,
    "smollm2-135m": 0.1345,
    # Qwen2-0.5B has 0.494, 151936 - 128256 rows of its vocabulary more
    "qwama-0.5b": 0.494 - 23680 * 896 / 1e9,
    "qwen2.5-7b": 7.62,
    "qwen3-0.6b": 0.596,
    "qwen3-8b": 8.19,
    "qwen3-14b": 14.77,
    "qwen3-32b": 32.76,
    "qwen3-30b-a3b": 30.53,
    "mistral-7b": 7.242,
    "mistral-nemo": 12.25,
    "codellama-34b": 33.74,
    "yi-34b": 34.39,
    "mixtral-8x7b": 46.70,
    "mixtral-8x22b": 140.6,
    "mimo-7b": 7.62,
    "glm-4.5-air": 106.0,
}

# Model type and the keys of a config.json that each model writes in its own way.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {"model_type": "llama"},
    "qwen3-30b-a3b": {"model_type": "qwen3_moe", "experts_key": "num_experts"},
    "mixtral-8x7b": {"model_type": "mixtral", "experts_key": "num_local_experts"},
    "glm-4.5-air": {
        "model_type": "glm4_moe",
        "experts_key": "n_routed_experts",
        "use_qk_norm": False,
    },
    "mimo-7b": {"model_type": "mimo"},
}


def hf_config(model: Transformer, extra: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab,
        "max_position_embeddings": model.max_position,
        "tie_word_embeddings": model.tied_embeddings,
        "num_nextn_predict_layers": model.mtp_layers,
        **extra,
    }
    if model.experts:
        config[config.pop("experts_key")] = model.experts
        config["num_experts_per_tok"] = model.experts_per_token
        config["n_shared_experts"] = model.shared_experts
        config["first_k_dense_replace"] = model.dense_layers
        if model.expert_intermediate != model.intermediate:
            config["moe_intermediate_size"] = model.expert_intermediate
    return config


def constants(data: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(data, dict):
        if "value" in data:
            yield where, data
        for key, value in data.items():
            yield from constants(value, f"{where}.{key}")
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from constants(value, f"{where}[{index}]")


@pytest.mark.parametrize("section", sorted(LOADERS))
def test_every_entry_loads_and_is_named_like_its_file(section: str) -> None:
    names = catalog.names(section)
    assert names
    for name in names:
        assert LOADERS[section](name).name == name


@pytest.mark.parametrize("section", sorted(LOADERS))
def test_every_number_has_a_source(section: str) -> None:
    for name in catalog.names(section):
        data = catalog.entry(section, name)
        assert len(data["source"]) > 10
        for where, constant in constants(data, name):
            assert len(constant["source"]) > 6, where
            assert not {"/", "TODO"} & set(constant["source"].split()), where
    for row in (*catalog.residuals().steps, *catalog.residuals().prefill):
        assert len(row.source) > 6, row


def test_parameter_totals_match_the_published_sizes() -> None:
    assert sorted(PUBLISHED) == catalog.names("transformers")
    for name, billions in PUBLISHED.items():
        assert catalog.transformer(name).params() / 1e9 == pytest.approx(billions, rel=0.02), name


def test_active_parameters_of_a_mixture_match_the_published_12_billion() -> None:
    glm = catalog.transformer("glm-4.5-air")
    idle = (glm.experts - glm.experts_per_token) * 3 * glm.hidden * glm.expert_intermediate
    active = glm.layer_params() - glm.moe_layers * idle
    assert active / 1e9 == pytest.approx(12.0, rel=0.02)
    assert (glm.moe_layers, glm.mtp_layers) == (45, 1)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_config_json_reads_as_the_catalogue_entry(name: str, tmp_path: Path) -> None:
    known = catalog.transformer(name)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(hf_config(known, dict(CONFIGS[name]))), encoding="utf-8")
    asked = ("name", "title", "repository", "source", "top_p_default")
    for path in (str(file), str(tmp_path)):
        read = catalog.transformer(path)
        assert read.model_dump(exclude=set(asked)) == known.model_dump(exclude=set(asked))


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"unknown hardware 'h100_sxn'; did you mean 'h100_sxm'\?"):
        catalog.hardware("h100_sxn")
    with pytest.raises(ModelError, match=r"did you mean 'llama-3\.1-70b'\?"):
        catalog.transformer("llama-3.1-70")
    with pytest.raises(ModelError, match="unknown profile 'zzz'; must be one of a100_80g_sxm, "):
        catalog.profile("zzz")
    with pytest.raises(ModelError, match="unknown engine"):
        catalog.engine("vllm")
    with pytest.raises(ModelError, match=r"cannot read nowhere/config\.json"):
        catalog.transformer("nowhere/config.json")
    with pytest.raises(ModelError, match="unknown catalogue section 'engine'; did you mean"):
        catalog.names("engine")


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("vllm_0.16", "vllm_0.15"),
        ("vllm_0.12", "vllm_0.11"),
        ("vllm_0.18", "vllm_0.17"),
        ("vLLM-0.26.1", "vllm_0.24"),
        ("vllm_0.30", "vllm_0.28"),
        ("vllm_0.11.1", "vllm_0.10"),
        ("vllm_0.9", "vllm_v0"),
        ("vllm_1.0", "vllm_0.33"),
        ("vllm", "vllm_0.33"),
        ("vllm_v0_swp", "vllm_v0_swap"),
        ("sglang_0.5.10", "sglang_0.5"),
        ("sglang", "sglang_0.5.23"),
        ("tensorrt_llm_1.2", "tensorrt_llm"),
        ("tensorrt-llm", "tensorrt_llm"),
    ],
)
def test_an_unknown_engine_version_suggests_the_entry_before_it(asked: str, near: str) -> None:
    with pytest.raises(ModelError) as caught:
        catalog.engine(asked)
    assert str(caught.value) == f"unknown engine '{asked}'; did you mean '{near}'?"


@pytest.mark.parametrize("name", ["", "it's", "a" * 5000, "\0", "\x1b[31m", "x: y", "#"])
def test_odd_names_are_unknown_in_one_short_line(name: str) -> None:
    with pytest.raises(ModelError, match=r"^unknown transformer ") as caught:
        catalog.transformer(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_a_profile_of_the_users_own_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ndevise: h100\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        catalog.profile(str(file))
    assert str(caught.value) == f"{file}:2: devise: unknown key; did you mean 'device'?"


def test_entries_are_copies() -> None:
    catalog.entry("hardware", "l40s")["name"] = "changed"
    assert catalog.entry("hardware", "l40s")["name"] == "l40s"


def test_hardware_names_a_profile_that_exists_and_only_the_measured_one_is_validated() -> None:
    for name in catalog.names("hardware"):
        device = catalog.hardware(name)
        measured = catalog.profile(device.profile).device
        said = facts("hardware", name)
        assert said.endswith("(validated)" if measured == name else "(extrapolated)")
    with pytest.raises(ModelError, match="no fp8 tensor cores"):
        catalog.hardware("a100_80g_sxm").compute_dtype("fp8")


def test_engines_speak_of_known_strategies_only() -> None:
    kinds = set(strategy_types())
    for name in catalog.names("engines"):
        engine = catalog.engine(name)
        assert set(engine.supports) <= kinds
        assert set(engine.async_kinds) <= set(engine.supports)
        assert set(engine.full_graph_kinds) <= set(engine.supports)
        assert (engine.full_graph_pass_us is None) == (not engine.full_graph_kinds)


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("autoregressive", "vllm_0.14"),
        ("eagle3", "vllm_0.14"),
        ("draft_model", "vllm_0.28"),
        ("ngram", "vllm_0.33"),
    ],
)
def test_vllm_schedules_each_kind_ahead_from_one_version_on(kind: str, first: str) -> None:
    names = [n for n in catalog.names("engines") if n.startswith("vllm_0.")]
    names.sort(key=lambda name: int(name.rpartition(".")[2]))
    ahead = [n for n in names if catalog.engine(n).is_async(kind)]
    assert ahead == names[names.index(first) :]


def test_known_differences_between_vllm_versions() -> None:
    old, new = catalog.engine("vllm_0.32"), catalog.engine("vllm_0.33")
    assert "medusa" in old.supports
    assert "medusa" not in new.supports
    assert old.drop_matched_block
    assert not new.drop_matched_block
    assert catalog.engine("vllm_0.24").draft_us("eagle3") == (20.0, 0.0)
    assert catalog.engine("vllm_0.24").draft_us("draft_model") == (250.0, 80.0)
    assert catalog.engine("vllm_0.15").draft_us("eagle3") == (250.0, 80.0)
    assert catalog.engine("tgi_2023").host_step_by_tp_us[8].value == 21100


def test_residual_rows_prefer_the_specific_and_cover_everything() -> None:
    residuals = catalog.residuals()
    assert residuals.of_step("plain", "vllm_v1", "bf16", 64).weights == ()
    assert residuals.of_step("plain", "vllm_v1", "fp8", 64).weights == ("fp8",)
    assert residuals.of_step("eagle", "vllm_v1", "bf16", 256).m_max == 384
    assert residuals.of_step("eagle", "vllm_v1", "bf16", 5000).basis == "extrapolated"
    families = {strategy.family for strategy in strategy_types().values()}
    for name in catalog.names("engines"):
        engine = catalog.engine(name)
        for family in families:
            row = residuals.of_step(family, engine.family, "bf16", 64)
            assert row.lo < 1 < row.hi
            if engine.family == "transformers" or row.source.startswith("assumed"):
                assert row.basis == "assumed"


def test_describe_lists_name_title_and_source() -> None:
    rows = {row.name: row for row in catalog.describe("hardware")}
    assert rows["h100_sxm"].title == "NVIDIA H100 SXM5 80 GB"
    assert "datasheet" in rows["h100_sxm"].source
