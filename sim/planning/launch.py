"""The command line that starts an engine as a scenario has it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from models import catalog
from models.strategies import Strategy
from models.strategies.draft_model import DraftModel
from models.strategies.eagle import Eagle
from models.strategies.eagle2 import DynamicTree, Eagle2
from models.strategies.eagle3 import Eagle3
from models.strategies.medusa import Medusa
from models.transformer import Transformer
from sim.scenario.build import Deployment, build
from sim.scenario.schema import Scenario

DRAFTS = {
    ("eagle3", "llama-3.1-8b"): "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    ("eagle3", "qwen3-8b"): "RedHatAI/Qwen3-8B-speculator.eagle3",
    ("eagle3", "qwen3-32b"): "RedHatAI/Qwen3-32B-speculator.eagle3",
}
"""Published drafts by strategy and target: TensorRT-LLM documentation, "Speculative Decoding", and
vLLM Speculators documentation, "Eagle-3"."""

TITLES = {"eagle": "EAGLE head", "eagle2": "EAGLE-2 head", "eagle3": "EAGLE-3 head"}
TITLES["medusa"] = "Medusa heads"

LOOKUP_MAX, LOOKUP_MIN = 7, 3
"""n-gram lengths looked up when the shipped acceptance of ngram was measured."""

Options = dict[str, Any]


def launch_line(scenario: Scenario, strategy: Strategy) -> str | None:
    """Write how an engine is started so that it serves what was simulated.

    Option names are those of the engine version's documentation: `vllm serve` with a JSON
    ``--speculative-config`` (vLLM V1), ``--speculative-model`` (vLLM V0), `sglang.launch_server`
    and `trtllm-serve` with a configuration file. What no published checkpoint is known for stands
    in angle brackets.

    Parameters
    ----------
    scenario : Scenario
    strategy : Strategy
        What its replicas decode with.

    Returns
    -------
    str or None
        A shell command of one replica, and a comment where there are several. None where no
        released engine does this: a hypothetical strategy, a layout or policy of KV of one's own,
        int4 KV, or an engine without a server of its own.

    Raises
    ------
    ModelError
        If the scenario contradicts itself.
    """
    deployment = build(scenario)
    line_of = _LINES.get(deployment.engine.family)
    if line_of is None or not strategy.runs_on(deployment.engine) or strategy.switches:
        return None
    if deployment.beyond_engine(strategy) or deployment.kv == "int4":
        return None
    line = line_of(deployment, strategy)
    if line is None or deployment.replicas == 1:
        return line
    number, gpus, router = deployment.replicas, deployment.tp, deployment.router
    each = "its own GPU" if gpus == 1 else f"{gpus} GPUs of its own"
    note = f"# {number} such replicas, each on {each}, behind a router ({router})"
    return f"{note}\n{line}"


def _vllm_v1(deployment: Deployment, strategy: Strategy) -> str | None:
    options = _vllm_options(deployment, strategy)
    if deployment.engine.name == "vllm_async_0.10":
        options["async-scheduling"] = None
    if strategy.drafted:
        config = _speculative_config(deployment, strategy)
        if config is None:
            return None
        options["speculative-config"] = json.dumps(config)
    return _line(["vllm", "serve", _checkpoint(deployment)], options)


def _speculative_config(deployment: Deployment, strategy: Strategy) -> Options | None:
    """Keys of vLLM's SpeculativeConfig; None where its method has no documented name."""
    config: Options = {"method": strategy.kind, "num_speculative_tokens": strategy.depth}
    if isinstance(strategy, DraftModel):
        config["model"] = _repository(strategy.network, strategy.draft)
        config["draft_tensor_parallel_size"] = strategy.draft_tp
        if strategy.draft_weights == "fp8":
            config["quantization"] = "fp8"
    elif strategy.kind == "ngram":
        config |= {"prompt_lookup_max": LOOKUP_MAX, "prompt_lookup_min": LOOKUP_MIN}
    elif strategy.kind == "mtp":
        # Before 0.11 every family of checkpoints had a method of its own.
        return None if deployment.engine.name == "vllm_0.10" else config
    else:
        config["model"] = _draft(deployment, strategy)
    return config


def _vllm_v0(deployment: Deployment, strategy: Strategy) -> str | None:
    options = _vllm_options(deployment, strategy)
    if strategy.drafted:
        ngram = strategy.kind == "ngram"
        options["speculative-model"] = "[ngram]" if ngram else _draft(deployment, strategy)
        options["num-speculative-tokens"] = strategy.depth
        options["use-v2-block-manager"] = None
        if ngram:
            options["ngram-prompt-lookup-max"] = LOOKUP_MAX
        if isinstance(strategy, DraftModel):
            options["speculative-draft-tensor-parallel-size"] = strategy.draft_tp
    start = ["python", "-m", "vllm.entrypoints.openai.api_server"]
    return _line(start, {"model": _checkpoint(deployment), **options})


def _vllm_options(deployment: Deployment, strategy: Strategy) -> Options:
    options: Options = {"tensor-parallel-size": deployment.tp}
    if deployment.weights == "fp8":
        options["quantization"] = "fp8"
    if deployment.kv == "fp8":
        options["kv-cache-dtype"] = "fp8"
    return options | {
        "max-num-seqs": deployment.max_num_seqs_for(strategy),
        "max-num-batched-tokens": deployment.max_num_batched_tokens,
        "max-model-len": deployment.max_model_len,
        "gpu-memory-utilization": f"{deployment.gpu_memory_utilization:g}",
    }


def _sglang(deployment: Deployment, strategy: Strategy) -> str | None:
    options: Options = {"model-path": _checkpoint(deployment), "tp-size": deployment.tp}
    if deployment.weights == "fp8":
        options["quantization"] = "fp8"
    if deployment.kv == "fp8":
        options["kv-cache-dtype"] = "fp8_e4m3"
    options |= {
        "max-running-requests": deployment.max_num_seqs_for(strategy),
        "chunked-prefill-size": deployment.max_num_batched_tokens,
        "context-length": deployment.max_model_len,
        "mem-fraction-static": f"{deployment.gpu_memory_utilization:g}",
    }
    if strategy.drafted:
        algorithm = _ALGORITHMS[strategy.kind]
        if isinstance(strategy, Eagle) and strategy.tree is not None:
            return None
        options["speculative-algorithm"] = algorithm
        if strategy.kind not in ("mtp", "ngram"):
            options["speculative-draft-model-path"] = _draft(deployment, strategy)
        if strategy.kind != "ngram":
            tree = _tree(strategy)
            options["speculative-num-steps"] = tree.passes if tree else strategy.depth
            options["speculative-eagle-topk"] = tree.topk if tree else 1
        options["speculative-num-draft-tokens"] = strategy.verify_tokens
        if isinstance(strategy, DraftModel) and deployment.weights != strategy.draft_weights:
            plain = strategy.draft_weights == "bf16"
            quantization = "unquant" if plain else strategy.draft_weights
            options["speculative-draft-model-quantization"] = quantization
    return _line(["python", "-m", "sglang.launch_server"], options)


_ALGORITHMS = {
    "draft_model": "STANDALONE",
    "eagle": "EAGLE",
    "eagle2": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "EAGLE",
    "ngram": "NGRAM",
}


def _tree(strategy: Strategy) -> DynamicTree | None:
    return strategy.tree if isinstance(strategy, Eagle2 | Eagle3) else None


def _tensorrt_llm(deployment: Deployment, strategy: Strategy) -> str | None:
    """Its PyTorch backend; JSON is YAML too."""
    if "eagle3" not in deployment.engine.supports:
        return None
    config: Options = {}
    if deployment.kv == "fp8":
        config["kv_cache_config"] = {"dtype": "fp8"}
    if strategy.drafted:
        names = {"draft_model": "DraftTarget", "eagle3": "Eagle3", "mtp": "MTP", "ngram": "NGram"}
        speculative: Options = {
            "decoding_type": names[strategy.kind],
            "max_draft_len": strategy.depth,
        }
        if strategy.kind == "ngram":
            speculative["max_matching_ngram_size"] = LOOKUP_MAX
        elif strategy.kind != "mtp":
            speculative["speculative_model"] = _draft(deployment, strategy)
        config["speculative_config"] = speculative
    options: Options = {
        "backend": "pytorch",
        "tp_size": deployment.tp,
        "max_batch_size": deployment.max_num_seqs_for(strategy),
        "max_num_tokens": deployment.max_num_batched_tokens,
        "max_seq_len": deployment.max_model_len,
    }
    start = ["trtllm-serve", _checkpoint(deployment, quantises=False)]
    if not config:
        return _line(start, options)
    written = f"printf '%s' {shlex.quote(json.dumps(config))} > speculation.yaml"
    return f"{written} && {_line(start, options | {'config': 'speculation.yaml'})}"


_LINES: Mapping[str, Callable[[Deployment, Strategy], str | None]] = {
    "vllm_v1": _vllm_v1,
    "vllm_v0": _vllm_v0,
    "sglang": _sglang,
    "tensorrt_llm": _tensorrt_llm,
}


def _line(start: list[str], options: Options) -> str:
    """A shell command; an option without a value is a switch."""
    words = [shlex.quote(word) for word in start]
    for name, value in options.items():
        words.append(f"--{name}" if value is None else f"--{name} {shlex.quote(str(value))}")
    return " ".join(words)


def _checkpoint(deployment: Deployment, quantises: bool = True) -> str:
    """Repository of the target; engines turn bf16 into fp8 by themselves, but nothing else."""
    name = _repository(deployment.target, deployment.target.name)
    if deployment.weights == "bf16" or (deployment.weights == "fp8" and quantises):
        return name
    return f"<{deployment.weights} checkpoint of {name}>"


def _repository(network: Transformer, asked: str) -> str:
    if network.repository is not None:
        return network.repository
    known = asked in catalog.names("transformers")
    return f"<checkpoint of {asked if known else PurePath(asked).name}>"


def _draft(deployment: Deployment, strategy: Strategy) -> str:
    if isinstance(strategy, DraftModel):
        return _repository(strategy.network, strategy.draft)
    target = deployment.target.name
    title = TITLES[strategy.kind]
    if isinstance(strategy, Medusa):
        title = f"{strategy.heads} {title}"
    return DRAFTS.get((strategy.kind, target), f"<{title} for {target}>")
