"""Predictions of the measured runs, made once in a process; the tests of one group share one."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import pandas as pd
import pytest

from calibration.validation.case import Case
from calibration.validation.predict import Outcome
from calibration.validation.score import table
from calibration.validation.side_by_side import predict_all

GROUPS = {
    "serving": ("inference_sim",),
    "prefill": ("inferencemax", "tensorrt_llm", "gpustack"),
    "chains": ("specdecode_bench_vllm", "vllm_draft_length", "step_breakdown"),
    "trees": ("specdecode_bench_sglang",),
    "v0_and_streams": ("vllm_blog", "medusa_vllm_v0", "single_stream"),
    "kernels": ("verify_attention",),
}
"""Publications whose tests run in the same process."""


def group(name: str) -> pytest.MarkDecorator:
    """Keep tests of these publications in one process."""
    assert name in GROUPS
    return pytest.mark.xdist_group(name)


def cases(publication: str) -> list[Case]:
    """Cases of a publication that count, with those that fix an acceptance."""
    module = import_module(f"calibration.validation.suites.{publication}")
    return [case for case in module.cases() if not case.unscored]


@cache
def outcomes(publication: str) -> list[Outcome]:
    return predict_all(cases(publication), jobs=1)


def frame(publication: str) -> pd.DataFrame:
    return table(outcomes(publication))
