"""Metrics of servers: recorded from vLLM, made by hand from the sources of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "measured" / "live" / "metrics"
BEFORE = (RECORDED / "vllm_ngram_before.txt").read_text("utf-8")
AFTER = (RECORDED / "vllm_ngram_after.txt").read_text("utf-8")
REQUESTS: list[dict[str, Any]] = json.loads((RECORDED / "vllm_ngram_requests.json").read_text())

# Made by hand after srt/observability/metrics_collector.py.
SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="1",tp_rank="0"} 2.0
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="5",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",priority="",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="m",tp_rank="0"} 0.28
sglang:spec_accept_length{engine_type="unified",model_name="m",tp_rank="0"} 2.75
sglang:spec_accept_rate{engine_type="unified",model_name="m",tp_rank="0"} 0.44
sglang:num_retracted_requests_total{engine_type="unified",model_name="m",tp_rank="0"} 2.0
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 900.0
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 100.0
sglang:generation_tokens_total{is_streaming="true",model_name="m"} 510.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 30.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 10.0
sglang:num_requests_total{is_streaming="true",model_name="m"} 10.0
sglang:spec_verify_calls_total{model_name="m"} 200.0
sglang:time_to_first_token_seconds_sum{is_streaming="true",model_name="m"} 1.5
sglang:time_to_first_token_seconds_count{is_streaming="true",model_name="m"} 10.0
sglang:time_to_first_token_seconds_bucket{is_streaming="true",le="0.1",model_name="m"} 3.0
"""

# Made by hand after server_task_result_metrics of tools/server/server-task.cpp.
LLAMA_CPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 6886
llamacpp:prompt_tokens_cached_total 120
llamacpp:tokens_predicted_total 3469
llamacpp:spec_decode_num_draft_tokens_total 400
llamacpp:spec_decode_num_accepted_tokens_total 150
llamacpp:spec_decode_num_drafts_total 100
llamacpp:requests_processing 4
llamacpp:requests_deferred 46
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 80
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 40
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 20
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="3"} 10
"""

# Made by hand after metrics/collector.py of TensorRT-LLM.
TRTLLM = """\
trtllm_request_success_total{engine_type="trtllm",finished_reason="stop",model_name="m"} 3.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="length",model_name="m"} 4.0
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 2.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.5
trtllm_spec_decode_num_draft_tokens_total{engine_type="trtllm",model_name="m"} 250.0
trtllm_spec_decode_num_accepted_tokens_total{engine_type="trtllm",model_name="m"} 90.0
trtllm_spec_decode_drafted_tokens_total{model_name="m",token_position="0"} 100.0
trtllm_spec_decode_drafted_tokens_total{model_name="m",token_position="1"} 100.0
trtllm_spec_decode_drafted_tokens_total{model_name="m",token_position="2"} 50.0
trtllm_spec_decode_accepted_tokens_total{model_name="m",token_position="0"} 60.0
trtllm_spec_decode_accepted_tokens_total{model_name="m",token_position="1"} 20.0
trtllm_spec_decode_accepted_tokens_total{model_name="m",token_position="2"} 10.0
"""


def vllm(running: float = 0.0, started: float = 1.0, engine: int = 0, **counters: float) -> str:
    """A few metrics of vLLM; ``counters`` by their names without prefix and ``_total``."""
    labels = f'{{engine="{engine}",model_name="m"}}'
    lines = [f"vllm:{name}_total{labels} {value}" for name, value in counters.items()]
    lines += [f"vllm:num_requests_running{labels} {running}"]
    return "\n".join([f"process_start_time_seconds {started}", *lines]) + "\n"
