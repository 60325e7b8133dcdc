"""Rows of GuideLLM, AIPerf and CSV tables mean what they say, in the units they say it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from imported_results import DATA, NGRAM, changed, imported

from models.strict_yaml import InputError
from sim.analysis import metrics
from sim.tables import Status

CSV = "arrival_s,ttft_ms,e2e_s,prompt_tokens,output_tokens,concurrency\n"


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "requests.csv"
    path.write_text(text)
    return path


def test_guidellm_rows_outside_what_it_measured_are_left_out() -> None:
    seen = imported("benchmarks.json", mode="closed_loop", strategy=NGRAM)
    columns, stage = seen.runs[0].columns, seen.stages[0]
    assert stage.point == {"concurrency": 2}
    assert any("1 request was left out" in note for note in seen.notes)
    ended = [Status(code).name for code in columns["status"]]
    assert ended == ["FINISHED"] * 3 + ["REJECTED", "UNFINISHED"]
    # Of 7 tokens the first came after 0.1 s, and 0.04 s lie between two of them.
    assert metrics.ttft_s(columns)[0] == pytest.approx(0.1, abs=1e-6)
    assert metrics.tpot_s(columns)[0] == pytest.approx(0.04, abs=1e-6)
    assert np.isnan(metrics.tpot_s(columns)[2])
    assert columns["cached_tokens"].tolist() == [16] * 5
    told = [columns[name][0] for name in ("n_steps", "drafted", "accepted")]
    assert told == [2, 8, 4]
    assert seen.acceptance is not None
    assert seen.acceptance["context"].tolist() == [41, 43]
    assert seen.about["base_url"] == "http://127.0.0.1:8000"
    assert (seen.about["api"], seen.about["target"]) == ("chat", "smol")
    assert stage.started == "2026-11-30T12:00:02+00:00"


def test_guidellm_at_a_rate_counts_from_when_a_request_was_due() -> None:
    with pytest.raises(InputError, match=r"1 in closed_loop, 1 in open_loop.*--mode"):
        imported("benchmarks.json", strategy=NGRAM)
    seen = imported("benchmarks.json", mode="open_loop")
    columns = seen.runs[0].columns
    assert columns["arrival_s"] == pytest.approx([0, 0.5, 1.0], abs=1e-6)
    assert metrics.ttft_s(columns) == pytest.approx([0.35, 0.1, 0.101], abs=1e-6)
    assert seen.stages[0].late == 1


def test_of_a_sweep_the_stage_without_a_bound_may_be_left_out(tmp_path: Path) -> None:
    report = json.loads((DATA / "benchmarks.json").read_text())
    one = report["benchmarks"][1]
    as_fast = {"type_": "throughput", "max_concurrency": None}
    unbound = one | {"config": one["config"] | {"strategy": as_fast}}
    sweep = changed(tmp_path, "benchmarks.json", benchmarks=[unbound, one])
    with pytest.raises(InputError, match="does not say under what load"):
        imported(sweep)
    assert [stage.name for stage in imported(sweep, mode="open_loop").stages] == ["rate_per_s=2.0"]
    assert imported(sweep, mode="closed_loop", point={"concurrency": 9}).stages[0].point == {
        "concurrency": 9
    }


def test_guidellm_samples_and_summaries_are_refused(tmp_path: Path) -> None:
    report = json.loads((DATA / "benchmarks.json").read_text())
    one = report["benchmarks"][1]
    made = {**one["scheduler_metrics"], "requests_made": {"total": 9}}
    sampled = {"benchmarks": [one | {"scheduler_metrics": made}]}
    with pytest.raises(InputError, match="keeps 3 of 9 requests"):
        imported(changed(tmp_path, "benchmarks.json", **sampled))
    bare = {"benchmarks": [one | {"requests": {"successful": [], "errored": None}}]}
    with pytest.raises(InputError, match=r"benchmarks\[0\].requests: is empty"):
        imported(changed(tmp_path, "benchmarks.json", **bare))


def test_an_older_guidellm_report_keeps_times_beside_the_tokens(tmp_path: Path) -> None:
    row = {"start_time": 100.0, "first_token_time": 100.5, "last_token_time": 101.5}
    row |= {"end_time": 101.6, "prompt_tokens": 9, "output_tokens": 11}
    requests = {"completed": [row], "error": [], "incomplete": []}
    old = {"args": {"strategy": {"type_": "synchronous"}}, "requests": requests}
    seen = imported(changed(tmp_path, "benchmarks.json", benchmarks=[old]), model="m")
    assert metrics.ttft_s(seen.runs[0].columns) == pytest.approx([0.5])
    assert metrics.tpot_s(seen.runs[0].columns) == pytest.approx([0.1])
    assert seen.stages[0].point == {"concurrency": 1}


def test_aiperf_units_reasoning_and_warm_up() -> None:
    seen = imported("profile_export.jsonl", strategy=NGRAM)
    columns, stage = seen.runs[0].columns, seen.stages[0]
    # The second answer comes in microseconds, the third has three tokens of reasoning.
    assert metrics.ttft_s(columns)[:3] == pytest.approx([0.1205, 0.13, 0.09])
    assert columns["output_tokens"].tolist() == [4, 6, 5, 0, 0]
    assert metrics.tpot_s(columns)[:3] == pytest.approx([0.041, 0.028, 0.05])
    ended = [Status(code).name for code in columns["status"]]
    assert ended == ["FINISHED"] * 3 + ["UNFINISHED", "REJECTED"]
    assert stage.duration_s == pytest.approx(0.3 + 0.29)
    assert (stage.point, stage.itl["count"]) == ({"concurrency": 2}, 9)
    assert columns["n_steps"].tolist() == [0, 2, 0, 0, 0]
    assert seen.acceptance is not None
    assert seen.acceptance["accepted"].tolist() == [0, 3]
    assert seen.errors[1]["http_status"] == 429


def test_aiperf_alone_does_not_say_what_set_the_load(tmp_path: Path) -> None:
    alone = Path(shutil.copy(DATA / "profile_export.jsonl", tmp_path))
    with pytest.raises(InputError, match="give --concurrency N or --rate R"):
        imported(alone, strategy=NGRAM)
    seen = imported(alone, strategy=NGRAM, model="m", point={"concurrency": 3})
    assert seen.stages[0].name == "concurrency=3"
    with pytest.raises(InputError, match=r"summary of AIPerf: give the profile_export.jsonl"):
        imported("profile_export_aiperf.json")
    _, line = alone.read_text().split("\n", 1)
    alone.write_text(line.replace('"unit":"ms"', '"unit":"fortnights"'))
    with pytest.raises(InputError, match="must be one of ns, us, ms, sec, s, got 'fortnights'"):
        imported(alone, strategy=NGRAM, model="m", point={"concurrency": 3})


def test_a_table_of_requests_says_its_units(tmp_path: Path) -> None:
    rows = "1.0,200,1.2,10,11,1\n3.0,100,0.1,10,1,1\n0,50,0.5,10,2,4\n"
    seen = imported(table(tmp_path, CSV + rows), model="m")
    assert [stage.name for stage in seen.stages] == ["concurrency=1", "concurrency=4"]
    assert metrics.ttft_s(seen.runs[0].columns) == pytest.approx([0.2, 0.1])
    assert metrics.tpot_s(seen.runs[0].columns)[0] == pytest.approx(0.1)
    assert seen.runs[0].columns["arrival_s"].tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("ttft_ms", "ttft"), ":1: ttft: needs its unit in its name, as in ttft_ms"),
        (CSV.replace("ttft_ms", "x"), ":1: ttft_s: is missing"),
        (CSV, "has a header and nothing else"),
        (CSV + "1,2,3,4,5,6,7\n", ":2: has 7 cells, the header 6"),
        (CSV + "1,2,x,4,5,6\n", ":2: e2e_s: must be a number, got 'x'"),
        (CSV + "1,2,3,4,5.5,6\n", ":2: output_tokens: must be a whole number"),
        (CSV + "1,2,3,4,5,0\n", ":2: concurrency: must be positive"),
        (CSV + "1,,3,4,5,6\n", "request 1: has no time of its first token"),
        (CSV + "1,900,0.1,4,5,6\n", "request 1: must be sent, answer and end in turn"),
        (CSV.replace("concurrency", "status") + "1,2,3,4,5,lost\n", ":2: status: must be one of"),
        ("a,a\n1,2\n", ":1: a: is there twice"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        imported(table(tmp_path, text), model="m", point={"concurrency": 1})
