"""Metrics of servers by neutral names, and what changed between two readings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calibration.live.server.exposition import Sample, parse
from calibration.live.server.names import COUNTERS, ENGINES, GAUGES, HISTOGRAMS, POSITIONS, known
from calibration.live.server.readings import gist, increase, read, summarise
from tests.live_texts import AFTER, BEFORE, LLAMA_CPP, REQUESTS, SGLANG, TRTLLM, vllm


def test_a_line_that_is_no_metric_costs_only_itself() -> None:
    text = (
        'a_total{x="1, \\"2\\"}"} 3 1700000000000\n<html>\nb{x="1} 2\nc 1e3\nd NaN\ne{x="1"\n\n# no'
    )
    found = parse(text)
    assert found.samples == (Sample("a_total", {"x": '1, "2"}'}, 3.0), Sample("c", {}, 1000.0))
    assert found.skipped == 4


def test_only_the_names_asked_for_are_read() -> None:
    assert [s.name for s in parse('a 1\nb{l="2"} 2\nbad{ 3', lambda name: name == "b").samples] == [
        "b"
    ]
    assert parse("a 1\nbad{ 3", lambda name: name == "a").skipped == 0


def test_a_recorded_vllm_tells_everything_by_neutral_names() -> None:
    found = read(AFTER)
    assert (found.engine, found.skipped) == ("vllm", 0)
    assert found.started_s == pytest.approx(1796044634.25)
    assert set(found.gauges) == {"running", "waiting", "kv_use"}
    assert found.info["num_gpu_blocks"] == "728"
    assert "sliding_window" not in found.info, "None is not told"
    histograms = ("ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s", "prefill_s", "decode_s")
    parts = {f"{name}_{part}" for name in histograms for part in ("sum", "count")}
    positions = {f"spec_accepted_at_{i}" for i in range(4)}
    others = {"iterations", "iteration_tokens"}
    assert set(found.counters) == {*COUNTERS["vllm:"], *parts, *positions, *others}


def test_recorded_counters_gain_what_the_requests_say() -> None:
    gained = increase(read(BEFORE), [read(AFTER)])
    assert gained.notes == ()
    counters = gained.counters
    usage = [request["usage"] for request in REQUESTS]
    assert counters["requests"] == len(REQUESTS)
    assert counters["prompt_tokens"] == sum(one["prompt_tokens"] for one in usage)
    assert counters["generation_tokens"] == sum(one["completion_tokens"] for one in usage)
    told = [r["metrics"]["speculative_decoding"] for r in REQUESTS if r["metrics"]]
    assert counters["spec_drafts"] == sum(one["num_spec_steps"] for one in told)
    assert counters["spec_drafted"] == sum(one["num_draft_tokens"] for one in told)
    assert counters["spec_accepted"] == sum(one["num_accepted_draft_tokens"] for one in told)
    assert counters["spec_accepted"] == sum(counters[f"spec_accepted_at_{i}"] for i in range(4))
    # Its gaps are between steps: prefills apart, every iteration of these lone requests gave one.
    assert counters["itl_s_count"] == counters["iterations"] - counters["requests"]


def test_replicas_add_up_and_their_shares_average() -> None:
    lines = [
        'vllm:kv_cache_usage_perc{engine="0"} 0.2',
        'vllm:kv_cache_usage_perc{engine="1"} 0.6',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 4',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="1"} 5',
    ]
    text = vllm(3.0, engine=0, generation_tokens=10) + vllm(4.0, engine=1, generation_tokens=32)
    found = read(text + "\n".join(lines))
    assert found.gauges == {"running": 7.0, "kv_use": pytest.approx(0.4)}
    assert found.counters == {"generation_tokens": 42.0, "spec_accepted_at_1": 9.0}


def test_older_names_stand_in_and_never_add_to_newer_ones() -> None:
    old = (
        "vllm:gpu_cache_usage_perc 0.3\nvllm:time_per_output_token_seconds_count 7\n"
        "vllm:gpu_prefix_cache_queries_total 11\nvllm:num_preemptions 2\n"
    )
    assert read(old).gauges == {"kv_use": 0.3}
    expected = {"itl_s_count": 7.0, "prefix_queries": 11.0, "preemptions": 2.0}
    assert read(old).counters == expected
    new = "vllm:kv_cache_usage_perc 0.4\nvllm:inter_token_latency_seconds_count 7\n"
    assert read(old + new).gauges == {"kv_use": 0.4}
    assert read(new + old).counters["itl_s_count"] == 7.0


def test_sglang_counts_a_priority_class_once_and_looks_up_every_prompt_token() -> None:
    found = read(SGLANG)
    assert found.engine == "sglang"
    assert found.gauges == {
        "running": 5.0,
        "waiting": 1.0,
        "kv_use": 0.28,
        "tau_gauge": 2.75,
        "acceptance_gauge": 0.44,
    }
    assert found.counters == {
        "preemptions": 2.0,
        "prompt_tokens": 1000.0,
        "generation_tokens": 510.0,
        "prefix_hits": 40.0,
        "prefix_queries": 1000.0,
        "requests": 10.0,
        "spec_drafts": 200.0,
        "ttft_s_sum": 1.5,
        "ttft_s_count": 10.0,
    }


def test_llama_cpp_and_tensorrt_llm_are_read() -> None:
    llama, trt = read(LLAMA_CPP), read(TRTLLM)
    assert (llama.engine, trt.engine) == ("llama.cpp", "tensorrt-llm")
    assert llama.gauges == {"running": 4.0, "waiting": 46.0}
    assert llama.counters["spec_accepted_at_3"] == 10.0
    assert llama.counters["generation_tokens"] == 3469.0
    assert trt.counters["requests"] == 7.0
    assert trt.counters["spec_drafted_at_2"] == 50.0
    assert trt.gauges["kv_use"] == 0.5


def test_every_given_name_is_known_once() -> None:
    def given(table: dict) -> int:
        return sum(len(names) for engine in table.values() for names in engine.values())

    # A counter with and without _total, a histogram by sum and count: a name twice loses one.
    counters = given(COUNTERS) + sum(map(len, POSITIONS.values())) + given(HISTOGRAMS) + 1
    assert len(known()) == 2 * counters + given(GAUGES)


def test_the_page_says_what_is_known_of_each_engine() -> None:
    page = (Path(__file__).parents[1] / "docs" / "live.md").read_text("utf-8")
    lines = iter(page.splitlines())
    heads = next(line for line in lines if line.startswith("| ours |")).strip("| ").split(" | ")
    names = {"vLLM": "vllm", "SGLang": "sglang", "llama.cpp": "llama.cpp"}
    engines = [(names | {"TensorRT-LLM": "tensorrt-llm"})[head] for head in heads[1:]]
    next(lines)
    said: dict[str, set[str]] = {engine: set() for engine in engines}
    for line in lines:
        if not line.startswith("|"):
            break
        ours, *cells = line.strip("| ").split(" | ")
        for engine, cell in zip(engines, cells, strict=True):
            said[engine] |= set(re.findall(r"`(\w+)`", ours)) if cell != "no" else set()
    found: dict[str, set[str]] = {engine: set() for engine in engines}
    for name, one in known().items():
        engine = next(e for prefix, e in ENGINES.items() if name.startswith(prefix))
        bare = one.neutral + ("0" if one.label else "")
        found[engine].add(bare.removesuffix("_sum").removesuffix("_count"))
    found["sglang"].add("prefix_queries")
    assert said == found


def test_a_text_of_something_else_is_known_not_to_be_metrics_of_an_engine() -> None:
    assert not read("<!doctype html>\n<p>hello</p>").known
    assert not read('python_info{version="3"} 1\nprocess_start_time_seconds 5').known
    assert not read("").known


def test_the_gist_of_a_text_reads_the_same() -> None:
    for text in (BEFORE, AFTER, SGLANG, LLAMA_CPP, TRTLLM):
        assert read(gist(text)) == read(text)
    assert "_bucket" not in gist(SGLANG)


def test_a_counter_that_fell_is_left_out_with_a_note() -> None:
    before, after = (
        read(vllm(prompt_tokens=10, generation_tokens=7)),
        read(vllm(prompt_tokens=4, generation_tokens=9)),
    )
    gained = increase(before, [after])
    assert gained.counters == {"generation_tokens": 2.0}
    assert gained.notes == ("counters that fell or went away are left out: prompt_tokens",)


def test_a_counter_that_fell_in_between_and_recovered_is_left_out() -> None:
    texts = [vllm(prompt_tokens=n, generation_tokens=g) for n, g in ((10, 1), (2, 2), (15, 3))]
    gained = increase(read(texts[0]), [read(text) for text in texts[1:]])
    assert gained.counters == {"generation_tokens": 2.0}


def test_a_restart_leaves_all_counters_out_even_where_they_grew() -> None:
    before, after = read(vllm(prompt_tokens=10)), read(vllm(started=2.0, prompt_tokens=99))
    gained = increase(before, [after])
    assert gained.counters == {}
    assert "started anew" in gained.notes[0]


def test_a_counter_that_is_new_counts_from_nothing_and_one_that_went_is_noted() -> None:
    gained = increase(read(vllm(preemptions=1)), [read(vllm(generation_tokens=5))])
    assert gained.counters == {"generation_tokens": 5.0}
    gone = increase(read(vllm(num_preemptions=1)), [read(vllm(generation_tokens=5))])
    assert gone.notes == ("counters that fell or went away are left out: preemptions",)
    assert increase(read(vllm(num_preemptions=1)), []).notes == ("the server's metrics went away",)


def test_gauges_over_samples_have_mean_and_max() -> None:
    readings = [read(vllm(running)) for running in (1.0, 2.0, 6.0)]
    assert summarise(readings) == {"running": {"mean": 3.0, "max": 6.0}}
    assert summarise([]) == {}
