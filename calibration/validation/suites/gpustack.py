"""GPUStack's logs of Qwen3-14B on one H100: all requests at once."""

from __future__ import annotations

from calibration.validation.case import Case
from calibration.validation.suites.rows import read

ENGINES = {"vllm": "vllm_0.10", "sglang": "sglang_0.5", "tensorrt_llm": "tensorrt_llm"}


def cases():
    return [_case(row) for row in read("prefill/gpustack.csv")]


def _case(row):
    n = int(row["requests"])
    pr, ou = int(row["prompt_tokens_total"]) / n, int(row["output_tokens_total"]) / n
    random = row["dataset"] == "random"
    L = lambda m: {"kind": "fixed", "value": round(m)} if random else {"kind": "lognormal", "mean": m, "cv": 1.0, "max": 1024}
    sc = {
        "hardware": {"gpu": "h100_pcie"},
        "model": {"transformer": "qwen3-14b"},
        "engine": {"name": ENGINES[row["engine"]], "max_model_len": 40960},
        "workload": {"arrivals": {"kind": "closed_loop", "users": n}, "requests": n, "streams": [{"prompt_tokens": L(pr), "output_tokens": L(ou)}]},
        "strategies": [{"kind": "autoregressive"}],
    }
    m = {"duration_s": float(row["duration_s"]), "ttft_s.mean": float(row["ttft_ms_mean"]) / 1e3, "tpot_s.p50": float(row["tpot_ms_p50"]) / 1e3, "tpot_s.mean": float(row["tpot_ms_mean"]) / 1e3}
    return Case(name=f"gpustack/qwen3-14b-{row['engine']}-{row['dataset']}-{pr:.0f}-{ou:.0f}", suite="prefill", origin="GPUStack", source=row["source"], labels={"model": "qwen3-14b", "tp": "1", "engine": ENGINES[row["engine"]], "strategy": "autoregressive", "workload": f"{row['dataset']} {pr:.0f}-{ou:.0f}"}, scenario=sc, measured=m)
