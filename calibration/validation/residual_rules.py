"""Which measured figures make up each residual row of the catalogue."""

from __future__ import annotations

import pandas as pd

from calibration.validation import open_loop
from calibration.validation.bounds import held_out
from calibration.validation.groups import with_groups
from calibration.validation.guard import stored_held_out
from calibration.validation.residuals import Rule

PLAIN = ("autoregressive",)
CHAINS = ("draft_model", "eagle", "eagle3", "ngram")
BENCH = "SpecDecode-Bench (arXiv 2601.11580), vLLM 0.10.1 on H100, Llama-3.1-8B"
SGLANG = "SpecDecode-Bench (arXiv 2601.11580), SGLang 0.5.9 on H100, Qwen3-8B EAGLE-3"
LOADS = "public vLLM 0.15.1 load runs of inference-sim on H100, step times at the measured batch"
INFERENCEMAX = "InferenceMAX, vLLM 0.10.2 on four H100, Llama-70B fp8, 4 to 64 users"

TRACED = ("eagle", "ngram")
"""Kinds whose acceptance in SpecDecode-Bench is known from its traces."""


def _traced(batch: str, m_max: int) -> Rule:
    return Rule(
        engine="vllm_v1",
        family=TRACED,
        m_max=m_max,
        origin="SpecDecode-Bench",
        metric="speedup",
        strategies=TRACED,
        acceptance="traces",
        batches=(batch,),
        group="workload",
        runs_of=f"{BENCH}, EAGLE and n-gram with acceptance from traces, batch {batch}",
    )


RULES = (
    Rule("vllm_v1", ("plain",), "inference-sim", "step_s", PLAIN, "model", runs_of=LOADS),
    Rule(
        engine="vllm_v1",
        family=("plain",),
        weights=("fp8",),
        origin="InferenceMAX",
        metric="tpot_s.mean",
        strategies=PLAIN,
        group="workload",
        runs_of=f"{INFERENCEMAX}, TPOT",
    ),
    _traced("1", 16),
    _traced("16", 128),
    _traced("64", 384),
    _traced("128", 640),
    Rule(
        engine="vllm_v1",
        family=("eagle3",),
        origin="SpecDecode-Bench",
        metric="speedup",
        strategies=("eagle3",),
        acceptance="batch 1",
        also=(("vLLM draft length", "tpot_s.mean"),),
        group="workload",
        runs_of=f"{BENCH}, EAGLE-3 with its batch-1 speedup given, batch 16 to 128, and a build of "
        "mid-2025 (vLLM issue 20780)",
    ),
    Rule(
        engine="sglang",
        family=CHAINS,
        m_max=512,
        origin="SpecDecode-Bench, SGLang",
        metric="speedup",
        strategies=("eagle3",),
        shape="chain",
        group="workload",
        runs_of=f"{SGLANG} chains with their batch-1 speedup given, batch 16 and 64",
    ),
    Rule(
        engine="sglang",
        family=("tree",),
        m_max=1408,
        origin="SpecDecode-Bench, SGLang",
        metric="speedup",
        strategies=("eagle3",),
        shape="tree",
        group="workload",
        runs_of=f"{SGLANG} trees of 6 and 21 with their batch-1 speedup given, batch 16 and 64",
    ),
    Rule(
        engine="vllm_v0",
        family=("medusa",),
        origin="vLLM PR 4978",
        metric="speedup",
        strategies=("medusa",),
        group="model",
        runs_of="vLLM pull request 4978, H100, Mistral-7B (host times fitted) and Llama-3-8B",
    ),
    Rule(
        engine="tensorrt_llm",
        family=("plain",),
        origin="TensorRT-LLM",
        metric="tok_per_s",
        strategies=PLAIN,
        group="workload",
        runs_of="TensorRT-LLM 0.14, 0.17 and 1.0 on H100, Llama-3.1-8B, rates of whole runs",
    ),
)
"""Rows no rule names are assumed; they stay as they are written."""

PREFILL = (
    Rule(
        engine="*",
        family=(),
        weights=("fp8",),
        origin="InferenceMAX",
        metric="ttft_s.mean",
        strategies=PLAIN,
        group="workload",
        runs_of=f"{INFERENCEMAX}, TTFT with uncached prompts",
    ),
)
"""Of computing prompts, on top of the step."""


def figures(frame: pd.DataFrame) -> pd.DataFrame:
    """Outcomes, with the step times of the load stages, which no queue multiplies, beside them.

    Figures a constant was fitted to are those predicted with a constant fitted without them.

    Parameters
    ----------
    frame : DataFrame
        As ``score.table`` makes it of all suites.
    """
    honest = held_out(with_groups(frame), stored_held_out())
    together: list[pd.DataFrame] = [honest, open_loop.outcomes()]
    return with_groups(pd.concat(together, ignore_index=True))
