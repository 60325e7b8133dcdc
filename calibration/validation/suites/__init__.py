"""The measured runs, by the question they answer: one file a publication, one function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from calibration.validation.case import Case, Suite

PUBLICATIONS: dict[Suite, tuple[str, ...]] = {
    "serving": ("inference_sim",),
    "prefill": ("inferencemax", "tensorrt_llm", "gpustack"),
    "speculation": (
        "specdecode_bench_vllm",
        "vllm_draft_length",
        "step_breakdown",
        "specdecode_bench_sglang",
        "vllm_blog",
        "medusa_vllm_v0",
        "single_stream",
    ),
    "kernels": ("verify_attention",),
}
"""Modules of this package, each with ``cases() -> list[Case]``."""


def cases(suite: Suite) -> list[Case]:
    """All cases of a suite, publication by publication."""
    return [case for name in PUBLICATIONS[suite] for case in _reader(name)()]


def _reader(name: str) -> Callable[[], Sequence[Case]]:
    module = import_module(f"{__package__}.{name}")
    reader: Callable[[], Sequence[Case]] = module.cases
    return reader
