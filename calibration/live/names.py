"""What a server's metrics are called, by engine and version, and the one name they get here.

Sources, read in November 2026: vLLM v1/metrics/loggers.py and v1/spec_decode/metrics.py of 0.32,
and the older names of 0.8 to 0.11; SGLang srt/observability/metrics_collector.py and its
predecessor srt/metrics/collector.py; llama.cpp tools/server/README.md and server-task.cpp, with
speculative counters since pull request 26389 of August 2026; TensorRT-LLM metrics/collector.py.

Neutral names. Counters: ``requests`` (finished), ``prompt_tokens``, ``generation_tokens``,
``prefix_queries`` and ``prefix_hits`` (tokens), ``preemptions``, ``spec_drafts`` (steps with a
draft), ``spec_drafted``, ``spec_accepted``, ``spec_accepted_at_0`` .., ``spec_drafted_at_0`` ..,
``iterations`` and ``iteration_tokens``, and ``*_count`` and ``*_sum`` of the histograms ``ttft_s``,
``itl_s``, ``tpot_s``, ``e2e_s``, ``queue_s``, ``prefill_s``, ``decode_s``. Gauges: ``kv_use`` (0 to
1), ``running``, ``waiting``, ``tau_gauge``, ``acceptance_gauge``. What a server lacks is absent.

What the same name does not mean everywhere:

* ``itl_s`` is a gap between chunks in vLLM, of one speculative step each; SGLang divides the gap by
  the tokens it brought, so its count is tokens. TensorRT-LLM and llama.cpp have none.
* ``tpot_s`` is (last - first) / (tokens - 1), one a request, in vLLM (0 for a single token) and
  TensorRT-LLM. Old SGLang (``time_per_output_token_seconds``) observed the running mean after every
  chunk, and for requests that do not stream the whole time, TTFT in it, over the tokens.
* ``iterations`` of vLLM are batches of outputs, so a step that only prefills part of a prompt is
  none; a prompt counts whole, cached tokens in it, at its first token.
* ``prefix_queries`` of old vLLM (``gpu_prefix_cache_queries``) are blocks, not tokens: only the
  ratio to ``prefix_hits`` compares.
* ``prompt_tokens`` of llama.cpp leave out cached tokens. Its counters, like those of SGLang, move
  when a request finishes; vLLM's move with every step.
* ``spec_drafts`` of vLLM leave out steps without a draft, as n-gram lookup has them. SGLang counts
  its verifications; it tells neither drafted nor accepted tokens but as gauges of its last steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge"]
Fold = Literal["sum", "mean"]

ENGINES = {
    "vllm:": "vllm",
    "sglang:": "sglang",
    "llamacpp:": "llama.cpp",
    "trtllm_": "tensorrt-llm",
}
"""Engine by the prefix of its metrics."""

UNKNOWN = "unknown"
INFO = "_info"
"""Ending of metrics whose labels tell a configuration."""

STARTED = "process_start_time_seconds"
"""Exposed by every server that uses the Python client of Prometheus in one process."""


class Known(NamedTuple):
    """A metric of one engine.

    Attributes
    ----------
    neutral : str
        Its name here; one with a ``label`` gets the label's value appended.
    kind : str
        counter | gauge.
    fold : str
        How the series of several replicas become one: sum | mean.
    rank : int
        Of several given names of one neutral name the lowest rank present counts.
    label : str
        Label that holds a draft position, from 0; empty for none.
    """

    neutral: str
    kind: Kind
    fold: Fold = "sum"
    rank: int = 0
    label: str = ""


COUNTERS: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm:": {
        "requests": ("request_success",),
        "prompt_tokens": ("prompt_tokens",),
        "generation_tokens": ("generation_tokens",),
        "prefix_queries": ("prefix_cache_queries", "gpu_prefix_cache_queries"),
        "prefix_hits": ("prefix_cache_hits", "gpu_prefix_cache_hits"),
        "preemptions": ("num_preemptions",),
        "spec_drafts": ("spec_decode_num_drafts",),
        "spec_drafted": ("spec_decode_num_draft_tokens",),
        "spec_accepted": ("spec_decode_num_accepted_tokens",),
    },
    "sglang:": {
        "requests": ("num_requests",),
        "prompt_tokens": ("prompt_tokens",),
        "generation_tokens": ("generation_tokens",),
        "prefix_hits": ("cached_tokens",),
        "preemptions": ("num_retracted_requests",),
        "spec_drafts": ("spec_verify_calls",),
    },
    "llamacpp:": {
        "prompt_tokens": ("prompt_tokens",),
        "generation_tokens": ("tokens_predicted",),
        "prefix_hits": ("prompt_tokens_cached",),
        "spec_drafts": ("spec_decode_num_drafts",),
        "spec_drafted": ("spec_decode_num_draft_tokens",),
        "spec_accepted": ("spec_decode_num_accepted_tokens",),
    },
    "trtllm_": {
        "requests": ("request_success",),
        "prompt_tokens": ("prompt_tokens",),
        "generation_tokens": ("generation_tokens",),
        "prefix_hits": ("prompt_cached_tokens",),
        "spec_drafted": ("spec_decode_num_draft_tokens",),
        "spec_accepted": ("spec_decode_num_accepted_tokens",),
    },
}
"""Neutral counter to given names, newest first, by prefix; ``_total`` may follow or not."""

POSITIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "vllm:": (("spec_accepted_at_", "spec_decode_num_accepted_tokens_per_pos", "position"),),
    "llamacpp:": (("spec_accepted_at_", "spec_decode_num_accepted_tokens_per_pos", "position"),),
    "trtllm_": (
        ("spec_accepted_at_", "spec_decode_accepted_tokens", "token_position"),
        ("spec_drafted_at_", "spec_decode_drafted_tokens", "token_position"),
    ),
}
"""Counters by draft position: neutral name, given name, label."""

HISTOGRAMS: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm:": {
        "ttft_s": ("time_to_first_token_seconds",),
        # Before 0.11 the gaps between steps went by the second name.
        "itl_s": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "tpot_s": ("request_time_per_output_token_seconds",),
        "e2e_s": ("e2e_request_latency_seconds",),
        "queue_s": ("request_queue_time_seconds",),
        "prefill_s": ("request_prefill_time_seconds",),
        "decode_s": ("request_decode_time_seconds",),
    },
    "sglang:": {
        "ttft_s": ("time_to_first_token_seconds",),
        "itl_s": ("inter_token_latency_seconds",),
        "tpot_s": ("time_per_output_token_seconds",),
        "e2e_s": ("e2e_request_latency_seconds",),
        "queue_s": ("queue_time_seconds",),
    },
    "trtllm_": {
        "ttft_s": ("time_to_first_token_seconds",),
        "tpot_s": ("time_per_output_token_seconds",),
        "e2e_s": ("e2e_request_latency_seconds",),
        "queue_s": ("request_queue_time_seconds",),
        "prefill_s": ("request_prefill_time_seconds",),
        "decode_s": ("request_decode_time_seconds",),
    },
}
"""Neutral histogram to given names, newest first, by prefix."""

GAUGES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm:": {
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "kv_use": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    },
    "sglang:": {
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "kv_use": ("token_usage",),
        "tau_gauge": ("spec_accept_length",),
        "acceptance_gauge": ("spec_accept_rate",),
    },
    "llamacpp:": {
        "running": ("requests_processing",),
        "waiting": ("requests_deferred",),
        # Gone from current builds.
        "kv_use": ("kv_cache_usage_ratio",),
    },
    "trtllm_": {
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "kv_use": ("kv_cache_utilization",),
        "tau_gauge": ("spec_decode_acceptance_length",),
    },
}
"""Neutral gauge to given names, newest first, by prefix; all are fractions, "perc" or not."""

SUMMED_GAUGES = ("running", "waiting")
"""Gauges of several replicas that add up; the others average."""


def known() -> dict[str, Known]:
    """Every metric known, by its whole given name."""
    return dict(_known())


def _known() -> Iterator[tuple[str, Known]]:
    for prefix in ENGINES:
        for neutral, given in COUNTERS[prefix].items():
            for rank, name in enumerate(given):
                yield from _counter(prefix + name, Known(neutral, "counter", rank=rank))
        for neutral, name, label in POSITIONS.get(prefix, ()):
            yield from _counter(prefix + name, Known(neutral, "counter", label=label))
        for neutral, given in HISTOGRAMS.get(prefix, {}).items():
            for rank, name in enumerate(given):
                for part in ("_sum", "_count"):
                    yield prefix + name + part, Known(neutral + part, "counter", rank=rank)
        for neutral, given in GAUGES[prefix].items():
            fold: Fold = "sum" if neutral in SUMMED_GAUGES else "mean"
            for rank, name in enumerate(given):
                yield prefix + name, Known(neutral, "gauge", fold, rank)
    # A histogram whose name ends in _total: count of iterations, sum of their tokens.
    yield "vllm:iteration_tokens_total_count", Known("iterations", "counter")
    yield "vllm:iteration_tokens_total_sum", Known("iteration_tokens", "counter")


def _counter(name: str, known: Known) -> Iterator[tuple[str, Known]]:
    yield name, known
    yield name + "_total", known
