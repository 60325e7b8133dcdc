"""TensorRT-LLM's own tables: whole runs of Llama-3.1-8B, static batches, first tokens, Triton."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calibration.validation.case import Case
from calibration.validation.suites.rows import read
from models import catalog

ORIGIN = "TensorRT-LLM"
KV_SHARE = 0.95
"""Share of free memory given to KV, as trtllm-bench sets it."""


def limits(scenario: Mapping[str, Any], prompt: int, output: int) -> tuple[int, int]:
    """Sequences and tokens a step that trtllm-bench builds an engine for.

    Its rule (``tensorrt_llm/bench/build/tuning.py``): as many sequences as KV memory holds at full
    length, at most 4096, and tokens a step in proportion to the lengths, at most 32768, both
    rounded up.
    """
    model = scenario["model"]
    net = catalog.transformer(model["transformer"])
    memory = catalog.hardware(scenario["hardware"]["gpu"]).memory_bytes
    free = model["tp"] * memory - net.weight_bytes(model["weights"])
    per_token = model["tp"] * net.kv_bytes_per_token(model["kv"], model["tp"])
    held = KV_SHARE * free / (per_token * (prompt + output))
    sequences = min(held, 4096)
    tokens = min(sequences * (1 + prompt / output), 32768)
    return _sequences(sequences), _tokens(tokens)


def _up(value: float, to: int) -> int:
    return to * math.ceil(value / to)


def _sequences(raw: float) -> int:
    if raw < 256:
        return max(64, _up(raw, 32))
    return _up(raw, 128 if raw < 1024 else 256)


def _tokens(raw: float) -> int:
    if raw < 4096:
        return max(2048, _up(raw, 256))
    return _up(raw, 512 if raw < 8192 else 1024)


def cases() -> list[Case]:
    return [_whole_run(row) for row in read("prefill/tensorrt_llm.csv")] + [_first(row) for row in read("prefill/tensorrt_llm_first_token.csv")] + [_static(row) for row in read("prefill/tensorrt_llm_static.csv")] + [_online(row) for row in read("prefill/triton.csv")]


def _whole_run(row: dict[str, str]) -> Case:
    prompt, output = int(row["prompt_tokens"]), int(row["output_tokens"])
    requests = int(row["requests"])
    tp = int(row["tp"])
    sc = _scenario(row["transformer"], row["weights"], row["kv"], tp, prompt, output, requests)
    seqs, tokens = limits(sc, prompt, output)
    sc["engine"] = {**sc["engine"], "max_num_seqs": seqs, "max_num_batched_tokens": tokens}
    return _mk(f"tensorrt-llm/{row['transformer']}-{row['precision']}-{prompt}-{output}-v{row['version']}", row, sc, {"tok_per_s": float(row["tok_per_s"])}, {"workload": f"{prompt}-{output}", "version": row["version"], "precision": row["precision"]})


def _mk(name, row, sc, measured, labels, **k):
    m = sc["model"]
    return Case(name=name, suite="prefill", origin=ORIGIN, source=row["source"], labels={"model": m["transformer"], "tp": str(m["tp"]), "engine": sc["engine"]["name"], "strategy": "autoregressive", **labels}, scenario=sc, measured=measured, **k)


def _scenario(net, weights, kv, tp, prompt, output, requests, engine="tensorrt_llm_trt", users=None):
    return {
        "hardware": {"gpu": "h100_sxm"},
        "model": {"transformer": net, "weights": weights, "kv": kv, "tp": tp},
        "engine": {"name": engine, "gpu_memory_utilization": KV_SHARE},
        "workload": {
            "arrivals": {"kind": "closed_loop", "users": users or requests},
            "requests": requests,
            "sampling": "greedy",
            "streams": [{"prompt_tokens": {"kind": "fixed", "value": prompt}, "output_tokens": {"kind": "fixed", "value": output}}],
        },
        "strategies": [{"kind": "autoregressive"}],
    }


def _first(row):
    prompt = int(row["prompt_tokens"])
    sc = _scenario(row["transformer"], "fp8", "fp8", int(row["tp"]), prompt, 1, 1)
    sc["engine"]["constants"] = {"request_us": 0}
    return _mk(f"tensorrt-llm-first-token/{row['transformer']}-tp{row['tp']}-{prompt}-v{row['version']}", row, sc, {"ttft_s.mean": float(row["ttft_ms"]) / 1e3}, {"workload": f"first {prompt}", "version": row["version"], "precision": "fp8"})


def _static(row):
    prompt, output, b = int(row["prompt_tokens"]), int(row["output_tokens"]), int(row["batch"])
    tp = int(row["tp"])
    sc = _scenario(row["transformer"], "fp8", "fp8", tp, prompt, output, b)
    sc["engine"] |= {"constants": {"request_us": 0}, "max_num_seqs": b, "max_num_batched_tokens": min(b * prompt, 1 << 17)}
    return _mk(f"tensorrt-llm-static/{row['transformer']}-tp{row['tp']}-{prompt}-{output}-b{b}-v{row['version']}", row, sc, {"tok_per_s": tp * float(row["tok_per_s_per_gpu"])}, {"workload": f"static {prompt}-{output}", "version": row["version"], "precision": "fp8"})


def _online(row):
    prompt, output = int(row["prompt_mean"]), int(row["output_mean"])
    sc = _scenario("llama-3.1-8b", "bf16", "bf16", 1, prompt, output, 500)
    q = row["rate_per_s"]
    if q != "inf":
        sc["workload"]["arrivals"] = {"kind": "poisson", "rate_per_s": float(q)}
    return _mk(f"triton/llama-3.1-8b-{prompt}-{output}-{q}", row, sc, {"ttft_s.mean": float(row["ttft_ms"]) / 1e3, "tpot_s.mean": float(row["itl_ms"]) / 1e3, "tok_per_s": float(row["tok_per_s"])}, {"workload": f"online {prompt}-{output}", "version": "0.14", "precision": "bf16"})
