"""Launch lines: what a shell hands to the engine is what was simulated."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from models import catalog
from models.strict_yaml import load_yaml
from sim.planning.launch import launch_line
from sim.scenario.load import parse_scenario

SCENARIO = """\
hardware: {{gpu: {gpu}}}
model: {{transformer: {model}, tp: {tp}, weights: {weights}, kv: {kv}, replicas: {replicas}}}
engine: {{name: {engine}, max_num_seqs: 64, max_num_batched_tokens: 4096, max_model_len: 8192}}
workload: {{arrivals: {{kind: poisson, rate_per_s: 1}}}}
strategies: [{{kind: autoregressive, label: plain}}, {strategy}]
"""
DEFAULTS = {
    "gpu": "h100_sxm",
    "model": "llama-3.1-70b",
    "tp": 4,
    "weights": "fp8",
    "kv": "fp8",
    "replicas": 1,
    "engine": "vllm_0.15",
}


def line(strategy: str, **changes: Any) -> str | None:
    text = SCENARIO.format(strategy=strategy, **{**DEFAULTS, **changes})
    scenario = parse_scenario(load_yaml(text, "case"), []).points[0].scenario
    return launch_line(scenario, scenario.strategies[1])


def options(text: str | None) -> dict[str, str]:
    """Options of the last line as the program is given them; the model under ''."""
    assert text is not None
    words = shlex.split(text.splitlines()[-1].split(" && ")[-1])
    found = {"": words[2] if words[:2] == ["vllm", "serve"] else words[1]}
    names = [i for i, word in enumerate(words) if word.startswith("--")]
    for i in names:
        plain = i + 1 < len(words) and not words[i + 1].startswith("--")
        found[words[i][2:]] = words[i + 1] if plain else ""
    return found


def speculative(text: str | None) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(options(text)["speculative-config"])
    return config


def test_a_vllm_line_states_every_limit_and_type_of_the_scenario() -> None:
    assert options(line("{kind: autoregressive}")) == {
        "": "meta-llama/Llama-3.1-70B-Instruct",
        "tensor-parallel-size": "4",
        "quantization": "fp8",
        "kv-cache-dtype": "fp8",
        "max-num-seqs": "64",
        "max-num-batched-tokens": "4096",
        "max-model-len": "8192",
        "gpu-memory-utilization": "0.9",
    }


def test_bf16_needs_no_option_for_types() -> None:
    given = options(line("{kind: autoregressive}", weights="bf16", kv="bf16"))
    assert not {"quantization", "kv-cache-dtype"} & given.keys()


def test_weights_vllm_cannot_quantise_by_itself_need_another_checkpoint() -> None:
    given = options(line("{kind: autoregressive}", weights="int4", kv="bf16"))
    assert given[""] == "<int4 checkpoint of meta-llama/Llama-3.1-70B-Instruct>"
    assert "quantization" not in given


@pytest.mark.parametrize(
    ("strategy", "config"),
    [
        (
            "{kind: eagle3, k: 3}",
            {"method": "eagle3", "model": "<EAGLE-3 head for llama-3.1-70b>"},
        ),
        (
            "{kind: draft_model, draft: llama-3.2-1b, k: 3, draft_weights: fp8}",
            {
                "method": "draft_model",
                "model": "meta-llama/Llama-3.2-1B",
                "draft_tensor_parallel_size": 1,
                "quantization": "fp8",
            },
        ),
        (
            "{kind: medusa, heads: 3}",
            {"method": "medusa", "model": "<3 Medusa heads for llama-3.1-70b>"},
        ),
        (
            "{kind: ngram, k: 3}",
            {"method": "ngram", "prompt_lookup_max": 7, "prompt_lookup_min": 3},
        ),
    ],
)
def test_speculative_config_of_vllm_is_json_with_its_own_keys(
    strategy: str, config: dict[str, Any]
) -> None:
    assert speculative(line(strategy)) == {"num_speculative_tokens": 3, **config}


def test_published_drafts_are_named() -> None:
    config = speculative(line("{kind: eagle3}", model="llama-3.1-8b", tp=1))
    assert config["model"] == "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"


def test_mtp_has_one_name_only_since_vllm_0_11() -> None:
    of = {"model": "glm-4.5-air", "weights": "bf16", "kv": "bf16"}
    assert speculative(line("{kind: mtp, k: 2}", **of))["method"] == "mtp"
    assert line("{kind: mtp, k: 2}", engine="vllm_0.10", **of) is None


def test_vllm_v0_takes_flags_of_its_time() -> None:
    given = options(line("{kind: ngram, k: 5}", engine="vllm_v0"))
    assert given["model"] == "meta-llama/Llama-3.1-70B-Instruct"
    assert given["speculative-model"] == "[ngram]"
    assert given["num-speculative-tokens"] == "5"
    assert given["use-v2-block-manager"] == ""


def test_only_the_asynchronous_0_10_is_told_to_be() -> None:
    asked = options(line("{kind: autoregressive}", engine="vllm_async_0.10"))
    assert asked["async-scheduling"] == ""
    assert "async-scheduling" not in options(line("{kind: autoregressive}"))


def test_sglang_drafts_trees_and_chains_with_the_same_flags() -> None:
    def drafting(strategy: str) -> tuple[str, str, str, str]:
        given = options(line(strategy, engine="sglang_0.5.23"))
        flags = ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens")
        algorithm, steps, topk, tokens = (given[f"speculative-{flag}"] for flag in flags)
        return algorithm, steps, topk, tokens

    assert drafting("{kind: eagle3, k: 4}") == ("EAGLE3", "4", "1", "5")
    tree = "{kind: eagle3, tree: {total_tokens: 60, passes: 8, topk: 10}}"
    assert drafting(tree) == ("EAGLE3", "8", "10", "60")
    draft = "{kind: draft_model, draft: llama-3.2-1b, k: 2}"
    assert drafting(draft) == ("STANDALONE", "2", "1", "3")
    given = options(line(draft, engine="sglang_0.5.23"))
    assert given["speculative-draft-model-quantization"] == "unquant"
    assert given["max-running-requests"] == "64"


def test_tensorrt_llm_gets_its_speculation_in_a_file() -> None:
    text = line("{kind: eagle3, k: 3}", engine="tensorrt_llm")
    assert text is not None
    written, _ = text.split(" && ")
    config = json.loads(shlex.split(written)[2])
    assert config["speculative_config"]["decoding_type"] == "Eagle3"
    assert config["speculative_config"]["max_draft_len"] == 3
    assert config["kv_cache_config"] == {"dtype": "fp8"}
    given = options(text)
    assert given[""] == "<fp8 checkpoint of meta-llama/Llama-3.1-70B-Instruct>"
    assert (given["tp_size"], given["max_batch_size"]) == ("4", "64")


def test_what_no_engine_runs_has_no_line() -> None:
    assert (
        line("{kind: lookahead, w: 5, n: 3, g: 5, acceptance: {alpha: 0.3}, hypothetical: true}")
        is None
    )
    assert line("{kind: adaptive, primary: {kind: eagle3}, hypothetical: true}") is None
    assert line("{kind: autoregressive}", engine="transformers") is None
    assert line("{kind: eagle, k: 2}", engine="tensorrt_llm_trt") is None


def test_several_replicas_are_told_in_a_comment_above_one_of_them() -> None:
    one, three = line("{kind: ngram}"), line("{kind: ngram}", replicas=3)
    assert one is not None and three is not None
    note, command = three.splitlines()
    assert command == one
    assert (
        note == "# 3 such replicas, each on 4 GPUs of its own, behind a router (least_outstanding)"
    )


@pytest.mark.parametrize("engine", catalog.names("engines"))
def test_a_line_of_any_engine_can_be_read_by_a_shell(engine: str) -> None:
    supported = "eagle3" in catalog.engine(engine).supports
    asked = f"{{kind: eagle3, hypothetical: {str(not supported).lower()}}}"
    text = line(asked, engine=engine, weights="bf16", kv="bf16")
    assert supported or text is None
    if text is not None:
        assert "Llama-3.1-70B-Instruct" in " ".join(shlex.split(text))


def test_every_catalogued_model_names_its_repository() -> None:
    for name in catalog.names("transformers"):
        model = catalog.transformer(name)
        assert model.repository is not None and model.repository in model.source, name
