"""Which measured figures make up each residual row of the catalogue."""

from __future__ import annotations

import pandas as pd

from calibration.validation import open_loop
from calibration.validation.groups import with_groups
from calibration.validation.residuals import Rule

PLAIN = ("autoregressive",)
CHAINS = ("draft_model", "eagle", "eagle3", "ngram")
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
    )


RULES = (
    Rule("vllm_v1", ("plain",), "inference-sim", "step_s", PLAIN, "model"),
    Rule("vllm_v1", ("plain",), "InferenceMAX", "tpot_s.mean", PLAIN, "workload", weights=("fp8",)),
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
        group="workload",
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
    ),
    Rule("vllm_v0", ("medusa",), "vLLM PR 4978", "speedup", ("medusa",), "model"),
    Rule("tensorrt_llm", ("plain",), "TensorRT-LLM", "tok_per_s", PLAIN, "workload"),
)
"""Rows no rule names are assumed; they stay as they are written."""

PREFILL = (Rule("*", (), "InferenceMAX", "ttft_s.mean", PLAIN, "workload", weights=("fp8",)),)
"""Of computing prompts, on top of the step."""


def figures(frame: pd.DataFrame) -> pd.DataFrame:
    """Outcomes with the step times of the load stages, which no queue multiplies, put beside them.

    Parameters
    ----------
    frame : DataFrame
        As ``score.table`` makes it of all suites.
    """
    together: list[pd.DataFrame] = [frame, open_loop.outcomes()]
    return with_groups(pd.concat(together, ignore_index=True))
