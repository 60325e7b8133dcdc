"""Runs of a trace: checked when loaded, read once, named in results; an hour of real traffic."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.strict_yaml import InputError, load_yaml
from sim import experiment, output
from sim.analysis import describe
from sim.explain import explain
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import load_scenario, parse_scenario
from sim.scenario.trace import reading
from sim.tables import Status
from tests.traces import AZURE, BURSTGPT_1

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCENARIO = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: trace, file: traces/hour.csv}
strategies: [{kind: autoregressive}, {kind: eagle3, k: 3}]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario file, and the trace it names beside it."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "hour.csv").write_text(AZURE)
    (tmp_path / "whatif.yaml").write_text(SCENARIO)
    return tmp_path / "whatif.yaml"


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load_scenario(path, overrides)
    return str(caught.value).replace(str(path.parent), "HERE")


def test_the_file_is_found_beside_the_scenario(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    rows = experiment.run(load_scenario(scenario, ["run.band=false"])).document["rows"]
    assert [row["finished"] for row in rows] == [3, 3]


def test_a_bad_trace_is_refused_before_anything_runs(scenario: Path) -> None:
    trace = scenario.parent / "traces" / "hour.csv"
    trace.write_text(AZURE + "x\n")
    assert complaint(scenario) == "HERE/traces/hour.csv:5: must have 3 fields, got 1"
    load_scenario(scenario, ["workload.arrivals.bad_lines=skip"])
    trace.unlink()
    missing = "workload.arrivals.file: cannot read it: No such file or directory"
    assert complaint(scenario).startswith(f"HERE/whatif.yaml:4: {missing}")
    other = "workload.arrivals.file=none.csv"
    assert complaint(scenario, other).startswith(f"--set {other}: {missing}")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("to_s=0", "workload.arrivals.to_s: must be greater than 0, got 0"),
        (
            "from_s=5",
            "workload.arrivals.from_s: leaves no request up to to_s: the last of all comes",
        ),
        ("rate_scale=0", "workload.arrivals.rate_scale: must be greater than 0, got 0"),
        ("rate_scale=1e7", "workload.arrivals.rate_scale: must be less than or equal to 1000"),
        ("format=csvv", "workload.arrivals.format: must be one of auto, azure, burstgpt, mooncake"),
        ("stream_from=model", "workload.arrivals.stream_from: this azure trace has no such column"),
        ("rate_per_s=3", "workload.arrivals.rate_per_s: unknown key"),
    ],
)
def test_arrivals_that_cannot_be_meant_are_refused(
    scenario: Path, override: str, expected: str
) -> None:
    assert f": {expected}" in complaint(scenario, f"workload.arrivals.{override}")


def test_the_end_comes_after_the_start(scenario: Path) -> None:
    start, end = "workload.arrivals.from_s=4", "workload.arrivals.to_s=3"
    assert "workload.arrivals.to_s: must be after from_s (4), got 3" in complaint(
        scenario, start, end
    )


def test_resolved_it_has_no_lengths_and_loads_to_the_same(scenario: Path) -> None:
    streams = "workload.streams=[{name: GPT-4, domain: hard}, {name: ChatGPT}]"
    (scenario.parent / "traces" / "hour.csv").write_text(BURSTGPT_1 + "200,GPT-4,9,1,10,x\n")
    loaded = load_scenario(scenario, [streams, "workload.arrivals.stream_from=model"])
    text = resolved_yaml(loaded.resolved)
    assert "prompt_tokens" not in text
    assert "share" not in text
    again = parse_scenario(load_yaml(text, "resolved"))
    assert again.points == loaded.points
    assert resolved_yaml(again.resolved) == text


def test_results_say_what_was_replayed(scenario: Path) -> None:
    document = experiment.run(load_scenario(scenario, ["run.band=false"])).document
    trace = document["trace"]
    assert trace == {
        "file": "traces/hour.csv",
        "format": "azure",
        "rows": 3,
        "used": 3,
        "failures": 0,
        "skipped": 0,
        "span_s": 4.541877,
        "mean_prompt_tokens": pytest.approx((374 + 396 + 14050) / 3),
        "mean_output_tokens": pytest.approx((44 + 109 + 55) / 3),
        "sha256": hashlib.sha256(AZURE.encode()).hexdigest(),
    }
    assert output.manifest(document)["trace"] == trace
    assert describe.load(document["scenario"], trace) == (
        "replay of hour.csv (azure): 3 requests over 4.5 s, mean 0.66/s, ~4940 in / ~69 out"
    )
    assert describe.load(document["scenario"]) == "replay of hour.csv"
    assert "trace" not in experiment.run(load_scenario(EXAMPLES / "six_lines.yaml")).document


def test_what_is_left_out_and_scaled_is_said() -> None:
    arrivals = {"kind": "trace", "file": "/data/x.csv", "rate_scale": 0.5, "time_scale": 2.0}
    said = {"format": "burstgpt", "used": 19366, "span_s": 3540.0, "failures": 12, "skipped": 1}
    trace = said | {"mean_prompt_tokens": 1155.2, "mean_output_tokens": 211.0}
    streams = [{"name": "a", "share": 0.25}, {"name": "b", "share": 0.75}]
    assert describe.load({"workload": {"arrivals": arrivals, "streams": streams}}, trace) == (
        "replay of x.csv (burstgpt, 0.5 x the requests, gaps x 2): 19,366 requests over 59 min, "
        "mean 5.5/s, ~1155 in / ~211 out, 12 failures left out, 1 bad line left out; "
        "25 % a, 75 % b"
    )


def test_a_grid_with_bands_and_replications_reads_the_trace_once(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    blocks = reading._blocks
    monkeypatch.setattr(reading, "_blocks", lambda *a: reads.append(a) or blocks(*a))
    scenario.write_text(SCENARIO + "vary: {workload.arrivals.rate_scale: [0.7, 1, 2]}\n")
    seen: list[tuple[int, int]] = []
    result = experiment.run(
        load_scenario(scenario, ["run.replications=2"]), lambda _, *now: seen.append(now)
    )
    assert len(result.document["rows"]) == 6
    assert len(reads) == 1
    assert seen[-1][0] == seen[-1][1]
    assert result.document["trace"]["used"] == len(result.requests[0].columns["id"])


def test_every_file_of_a_grid_is_in_the_manifest(scenario: Path) -> None:
    (scenario.parent / "other.csv").write_text(BURSTGPT_1)
    files = "vary: {workload.arrivals.file: [traces/hour.csv, other.csv]}\n"
    scenario.write_text(SCENARIO + files)
    document = experiment.run(load_scenario(scenario, ["run.band=false"])).document
    assert [row["finished"] for row in document["rows"]] == [3, 3, 2, 2]
    assert [trace["file"] for trace in output.manifest(document)["traces"]] == [
        "traces/hour.csv",
        "other.csv",
    ]


def test_explain_takes_lengths_and_rate_from_the_trace(scenario: Path) -> None:
    explained = explain(load_scenario(scenario))
    assert explained["context"] == round((374 + 396 + 14050) / 3 + (44 + 109 + 55) / 6)
    assert explained["batch"] == 1
    assert explain(load_scenario(scenario, ["workload.arrivals.time_scale=0.001"]))["batch"] > 10


# An hour of conversations with a service in Azure


def test_the_shipped_trace_is_the_published_one() -> None:
    zipped = (EXAMPLES / "traces" / "azure_llm_2023_conversation.csv.gz").read_bytes()
    assert zipped[4:8] == bytes(4)
    digest = hashlib.sha256(gzip.decompress(zipped)).hexdigest()
    assert digest in (EXAMPLES / "traces" / "README.md").read_text("utf-8")


def test_two_replicas_serve_every_request_of_the_hour() -> None:
    path = EXAMPLES / "azure_conv_2x4.yaml"
    result = experiment.run(load_scenario(path, ["run.band=false"]))
    assert [run.strategy.split()[0] for run in result.requests] == ["autoregressive", "eagle3"]
    for run, row in zip(result.requests, result.document["rows"], strict=True):
        table = run.columns
        assert len(table["id"]) == row["finished"] == 19_366
        assert (table["status"] == Status.FINISHED).all()
        assert table["prompt_tokens"].max() == 14_050
        assert (np.diff(table["arrival_s"]) >= 0).all()
        assert (table["arrival_s"] <= table["schedule_s"]).all()
        assert (table["schedule_s"] < table["first_token_s"]).all()
        assert (table["first_token_s"] <= table["finish_s"]).all()
        assert set(np.unique(table["replica"])) == {0, 1}
        emitted = table["accepted"] + table["n_steps"]
        assert (emitted >= table["output_tokens"] - 1).all()
        json.dumps(row, allow_nan=False)
