"""TensorRT-LLM's own tables: whole runs of Llama-3.1-8B, first tokens, and serving under Triton."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.validation.case import Case
from calibration.validation.suites.rows import read
from models import catalog

GPU = "h100_sxm"
WHOLE_RUNS = "prefill/tensorrt_llm.csv"
ENGINES = {"0.14": "tensorrt_llm_trt", "0.17": "tensorrt_llm_trt", "1.0": "tensorrt_llm"}

KV_SHARES = {"0.14": 0.90}
"""Share of free memory for KV: the default of trtllm-bench, which 0.14 ran with; later 0.95."""

LIMITS = {"0.14": (2048, 8192)}
"""Sequences and tokens a step by ``benchmark_config.yml``; later versions reckon them."""

NAMELESS_MIX = "lengths are means of a mix that is not named, times are rounded to 1 ms"


class Limits(NamedTuple):
    """Most sequences and tokens of a step."""

    max_num_seqs: int
    max_num_batched_tokens: int


def cases() -> list[Case]:
    """Whole runs with all requests queued, single first tokens, and open loops under Triton."""
    return [
        *map(_whole_run, read(WHOLE_RUNS)),
        *map(_first_token, read("prefill/tensorrt_llm_first_token.csv")),
        *map(_online, read("prefill/triton.csv")),
    ]


def bench_limits(held: float, prompt: int, output: int) -> Limits:
    """Limits trtllm-bench sets, a little above what it reckons to be needed.

    As ``tensorrt_llm/bench/build/tuning.py`` does: as many sequences as KV memory holds at full
    length, up to 4096, and tokens in proportion to the lengths, up to 32768.

    Parameters
    ----------
    held : float
        Sequences of full length that KV memory holds.
    prompt, output : int
        Lengths [tokens].
    """
    sequences = min(held, 4096)
    tokens = min(sequences * (1 + prompt / output), 32768)
    if sequences < 256:
        limit = max(64, _up(sequences, 32))
    else:
        limit = _up(sequences, 128 if sequences < 1024 else 256)
    if tokens < 4096:
        return Limits(limit, max(2048, _up(tokens, 256)))
    return Limits(limit, _up(tokens, 512 if tokens < 8192 else 1024))


def _up(value: float, step: int) -> int:
    return step * math.ceil(value / step)


def _whole_run(row: Mapping[str, str]) -> Case:
    version, precision = row["version"], row["precision"]
    prompt, output = int(row["prompt_tokens"]), int(row["output_tokens"])
    scenario = _scenario(ENGINES[version], row["transformer"], row["weights"], row["kv"])
    scenario["workload"] = _workload(prompt, output, int(row["requests"]))
    scenario["engine"] |= _memory_and_limits(scenario, version, prompt, output)
    lengths = f"{prompt}-{output}"
    return _case(
        f"tensorrt-llm/{row['transformer']}-{precision}-{lengths}-v{version}",
        row,
        scenario,
        {"tok_per_s": float(row["tok_per_s"])},
        {"workload": lengths, "precision": precision, "version": version},
    )


def _memory_and_limits(
    scenario: Mapping[str, Any], version: str, prompt: int, output: int
) -> dict[str, Any]:
    """TensorRT-LLM takes a share of what is free with the weights loaded, vLLM one of the whole."""
    model, memory = scenario["model"], catalog.hardware(GPU).memory_bytes
    net = catalog.transformer(model["transformer"])
    reserve = catalog.engine(scenario["engine"]["name"]).memory_reserve_bytes.value
    weights = net.weight_bytes(model["weights"])
    share = KV_SHARES.get(version, 0.95)
    used = share * (memory - reserve) + (1 - share) * weights + reserve
    cached = net.kv_bytes_per_token(model["kv"], 1) * (prompt + output)
    limits = LIMITS.get(version) or bench_limits(0.95 * (memory - weights) / cached, prompt, output)
    return {
        "gpu_memory_utilization": round(used / memory, 4),
        "max_num_seqs": limits[0],
        "max_num_batched_tokens": limits[1],
    }


def _first_token(row: Mapping[str, str]) -> Case:
    prompt, tp = int(row["prompt_tokens"]), int(row["tp"])
    scenario = _scenario("tensorrt_llm_trt", row["transformer"], "fp8", "fp8", tp)
    scenario["engine"]["constants"] = {"request_us": 0}
    scenario["workload"] = _workload(prompt, 1, 1)
    return _case(
        f"tensorrt-llm/{row['transformer']}-fp8-tp{tp}-first-token-{prompt}-v{row['version']}",
        row,
        scenario,
        {"ttft_s.mean": float(row["ttft_ms"]) / 1e3},
        {"workload": f"first token of {prompt}", "precision": "fp8", "version": row["version"]},
    )


def _online(row: Mapping[str, str]) -> Case:
    prompt, output, rate = int(row["prompt_mean"]), int(row["output_mean"]), row["rate_per_s"]
    scenario = _scenario("tensorrt_llm_trt", "llama-3.1-8b", "bf16", "bf16")
    scenario["workload"] = _workload(prompt, output, int(row["requests"]))
    if rate != "inf":
        scenario["workload"]["arrivals"] = {"kind": "poisson", "rate_per_s": float(rate)}
    measured = {
        "ttft_s.mean": float(row["ttft_ms"]) / 1e3,
        "tpot_s.mean": float(row["itl_ms"]) / 1e3,
        "tok_per_s": float(row["tok_per_s"]),
    }
    labels = {"workload": f"online {prompt}-{output}", "precision": "bf16", "version": "0.14"}
    name = f"tensorrt-llm/llama-3.1-8b-triton-{prompt}-{output}-rate-{rate}"
    return _case(name, row, scenario, measured, labels, unscored=NAMELESS_MIX)


def _workload(prompt: int, output: int, requests: int) -> dict[str, Any]:
    """All requests queued at once, random token ids of fixed lengths."""
    lengths = {"prompt_tokens": prompt, "output_tokens": output}
    return {
        "arrivals": {"kind": "closed_loop", "users": requests},
        "requests": requests,
        "sampling": "greedy",
        "streams": [{key: {"kind": "fixed", "value": n} for key, n in lengths.items()}],
    }


def _scenario(engine: str, transformer: str, weights: str, kv: str, tp: int = 1) -> dict[str, Any]:
    return {
        "hardware": {"gpu": GPU},
        "model": {"transformer": transformer, "weights": weights, "kv": kv, "tp": tp},
        "engine": {"name": engine},
        "strategies": [{"kind": "autoregressive"}],
    }


def _case(
    name: str,
    row: Mapping[str, str],
    scenario: Mapping[str, Any],
    measured: Mapping[str, float],
    labels: Mapping[str, str],
    unscored: str = "",
) -> Case:
    model = scenario["model"]
    return Case(
        name=name,
        suite="prefill",
        origin="TensorRT-LLM",
        source=row["source"],
        labels={
            "model": model["transformer"],
            "tp": str(model["tp"]),
            "engine": scenario["engine"]["name"],
            "strategy": "autoregressive",
            **labels,
        },
        scenario=scenario,
        measured=measured,
        unscored=unscored,
    )
