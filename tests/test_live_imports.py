"""Results of other load generators become the observation their own numbers describe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.live import recording
from calibration.live.imports import command
from calibration.live.imports.command import Given
from calibration.live.imports.requests import public
from models.strict_yaml import InputError
from sim.analysis import metrics
from sim.tables import Status, read_parquet

DATA = Path(__file__).parent / "measured" / "live" / "imports"
NGRAM = "{kind: ngram, k: 4}"
CSV = "arrival_s,ttft_ms,e2e_s,prompt_tokens,output_tokens,concurrency\n"


def imported(*names: str | Path, **given: Any) -> command.Imported:
    return command.read_results([DATA / name for name in names], Given(**given))


def changed(tmp_path: Path, name: str, **values: Any) -> Path:
    """A copy of a measured result with other values; None takes a key out."""
    data = json.loads((DATA / name).read_text()) | values
    path = tmp_path / "changed.json"
    kept = {key: value for key, value in data.items() if value is not None}
    path.write_text(json.dumps(kept))
    return path


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "requests.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["vllm_users_1.json", "vllm_users_2.json", "vllm_failed.json"])
def test_a_vllm_result_says_what_vllm_says_of_it(name: str) -> None:
    said = json.loads((DATA / name).read_text())
    seen = imported(name)
    columns = seen.runs[0].columns
    for of, key in ((metrics.ttft_s, "ttft"), (metrics.tpot_s, "tpot")):
        summary = metrics.summary(of(columns))
        assert summary.mean == pytest.approx(said[f"mean_{key}_ms"] / 1e3, rel=1e-9)
        assert summary.p99 == pytest.approx(said[f"p99_{key}_ms"] / 1e3, rel=1e-9)
    done = metrics.finished(columns)
    assert int(done.sum()) == said["completed"]
    assert int(columns["output_tokens"][done].sum()) == said["total_output_tokens"]
    assert metrics.e2e_s(columns)[done] == pytest.approx(np.array(said["latencies"])[done])
    assert seen.stages[0].itl["mean"] == pytest.approx(said["mean_itl_ms"] / 1e3, rel=1e-9)
    assert seen.stages[0].point == {"concurrency": said["max_concurrency"]}
    assert (seen.about["target"], seen.about["date"]) == ("smol", "2026-11-30")


def test_at_a_rate_the_wait_in_the_client_counts_and_among_users_it_does_not(
    tmp_path: Path,
) -> None:
    said = json.loads((DATA / "vllm_rate.json").read_text())
    seen = imported("vllm_rate.json")
    waited = np.array(said["ttfts"]) + np.array(said["queue_times"])
    assert sorted(metrics.ttft_s(seen.runs[0].columns)) == pytest.approx(sorted(waited))
    stage = seen.stages[0]
    assert stage.point == {"rate_per_s": 8.0}
    assert (stage.late, stage.latest_s) == (4, pytest.approx(max(said["queue_times"])))
    assert any("at most 2" in note for note in seen.notes)
    users = imported(changed(tmp_path, "vllm_rate.json", request_rate="inf"))
    assert sorted(metrics.ttft_s(users.runs[0].columns)) == pytest.approx(sorted(said["ttfts"]))


def test_a_request_vllm_could_not_serve_failed(tmp_path: Path) -> None:
    seen = imported("vllm_failed.json")
    assert seen.runs[0].columns["status"].tolist() == [0, 0, int(Status.FAILED)]
    assert [(row["id"], row["message"]) for row in seen.errors] == [(2, "Bad Request")]
    busy = changed(tmp_path, "vllm_failed.json", errors=["", "", "Too Many Requests"])
    assert imported(busy).errors[0]["status"] == "rejected"
    late = changed(tmp_path, "vllm_failed.json", errors=["", "", "a\nb\nTimeoutError\n"])
    assert imported(late).errors[0] == {
        **seen.errors[0],
        "status": "timed_out",
        "message": "TimeoutError",
    }


def test_counts_are_read_and_not_the_percentage(tmp_path: Path) -> None:
    spec = {
        "spec_decode_acceptance_rate": 25.0,
        "spec_decode_acceptance_length": 2.0,
        "spec_decode_num_drafts": 10,
        "spec_decode_draft_tokens": 40,
        "spec_decode_accepted_tokens": 10,
        "spec_decode_per_position_acceptance_rates": [0.6, 0.3, 0.1, 0.0],
    }
    path = changed(tmp_path, "vllm_users_1.json", **spec)
    with pytest.raises(InputError, match="the server drafted: give --strategy"):
        imported(path)
    with pytest.raises(InputError, match="is autoregressive, but the server drafted"):
        imported(path, strategy="{kind: autoregressive}")
    counters = imported(path, strategy=NGRAM).stages[0].counters
    assert [counters[f"spec_{n}"] for n in ("drafts", "drafted", "accepted")] == [10, 40, 10]
    assert [counters[f"spec_accepted_at_{i}"] for i in range(4)] == [6, 3, 1, 0]


@pytest.mark.parametrize("key", ["ttfts", "start_times"])
def test_a_summary_is_refused_with_what_is_needed(tmp_path: Path, key: str) -> None:
    needed = {"ttfts": "--save-detailed", "start_times": "a newer one does"}[key]
    with pytest.raises(InputError, match=f"{key}: is missing.*{needed}"):
        imported(changed(tmp_path, "vllm_users_1.json", **{key: None}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ttfts": [0.1]}, "ttfts: must be as long"),
        ({"ttfts": [0.1, -1, 0.1, 0.1]}, r"ttfts\[1\]: must be finite and not negative"),
        ({"output_lens": [1, 2.5, 1, 1]}, r"output_lens\[1\]: must be a whole number"),
        ({"output_lens": [1, True, 1, 1]}, r"output_lens\[1\]: must be a number"),
        ({"input_lens": [0, 1, 1, 1]}, "request 1: finished and must have tokens"),
        ({"itls": 3}, "itls: must be a list"),
        ({"max_concurrency": "many"}, "max_concurrency: must be a number"),
        ({"completed": None}, "is no result of vllm, guidellm, aiperf or csv"),
    ],
)
def test_values_that_cannot_be_are_named(tmp_path: Path, values: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        imported(changed(tmp_path, "vllm_users_1.json", **values))


def test_requests_sent_all_at_once_are_so_many_users_and_timed_ones_a_trace(
    tmp_path: Path,
) -> None:
    at_once = {"max_concurrency": None, "start_times": [5.0, 5.001, 5.002, 5.003]}
    assert imported(changed(tmp_path, "vllm_users_1.json", **at_once)).stages[0].point == {
        "concurrency": 4
    }
    timed = changed(tmp_path, "vllm_users_1.json", max_concurrency=None)
    assert imported(timed).about["mode"] == "trace"


def test_equal_points_are_repeats_and_stages_stand_by_their_load(tmp_path: Path) -> None:
    lines = [(DATA / f"vllm_users_{n}.json").read_text().strip() for n in (2, 1)]
    appended = tmp_path / "appended.json"
    appended.write_text("\n".join(lines) + "\n")
    seen = imported(appended, "vllm_users_2.json")
    stages = [(stage.name, stage.replication) for stage in seen.stages]
    assert stages == [("concurrency=1", 0), ("concurrency=2", 0), ("concurrency=2", 1)]
    broken = tmp_path / "broken.json"
    broken.write_text("\n".join([lines[0], lines[1][:100]]))
    with pytest.raises(InputError, match=r"broken.json:2: is not JSON"):
        imported(broken)


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


def test_the_folder_is_read_back_and_fits_acceptance(speccast, tmp_path: Path) -> None:
    out = tmp_path / "theirs"
    options = ("--strategy", NGRAM, "--label", "lookup", "--out", out)
    status, text, err = speccast("calibrate", "import", DATA / "profile_export.jsonl", *options)
    assert (status, "1 request was left out: of the warm-up" in " ".join(text.split())) == (0, True)
    assert f"wrote {out / 'run.json'}" in err
    seen = recording.read(out)
    assert (seen.label, seen.block) == ("lookup", {"kind": "ngram", "k": 4})
    assert seen.about["options"]["files"][0]["file"] == "profile_export.jsonl"
    assert seen.runs[0].columns["point"].tolist() == ["concurrency=2"] * 5
    assert read_parquet(out / "acceptance.parquet")["request"].tolist() == [1, 1]
    fit = tmp_path / "acceptance.yaml"
    assert speccast("calibrate", "acceptance", out, "--out", fit)[0] == 0
    again, text, _ = speccast(
        "calibrate", "import", DATA / "vllm_rate.json", "--json", "--out", out
    )
    assert (again, json.loads(text)["stages"][0]["requests"]) == (0, 6)
    assert not (out / "acceptance.parquet").exists()


def test_nothing_is_written_where_it_cannot_be_imported(speccast, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for given in ([tmp_path / "none.json"], [DATA / "vllm_rate.json", DATA / "vllm_failed.json"]):
        status, text, err = speccast("calibrate", "import", *given, "--out", out)
        assert (status, text, err.count("\n")) == (2, "", 1)
    status, _, err = speccast(
        *("calibrate", "import", DATA / "vllm_rate.json", "--strategy", "{kind: nrgam}"),
        *("--out", out),
    )
    assert (status, "got nrgam" in err) == (2, True)
    assert not out.exists()
    out.mkdir()
    (out / "journal.jsonl").touch()
    status, _, err = speccast("calibrate", "import", DATA / "vllm_rate.json", "--out", out)
    assert (status, "holds a recording of `speccast observe`" in err) == (2, True)


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_no_password_of_a_url_is_kept(scheme: str) -> None:
    assert public(f"{scheme}me:secret@host:8000/v1?key=x#y") == f"{scheme}host:8000/v1"


def test_a_folder_stands_for_the_file_its_tool_left(tmp_path: Path) -> None:
    shutil.copy(DATA / "benchmarks.json", tmp_path)
    assert len(imported(tmp_path, mode="open_loop").stages) == 1
    (tmp_path / "benchmarks.json").rename(tmp_path / "other.json")
    with pytest.raises(InputError, match=r"is a folder without benchmarks.json"):
        imported(tmp_path)
    with pytest.raises(InputError, match="is no result of vllm but of guidellm"):
        imported(tmp_path / "other.json", format="vllm")


@pytest.mark.parametrize("there", ["summary.json", "requests.parquet"])
def test_what_an_import_did_not_write_it_does_not_replace(
    speccast, tmp_path: Path, there: str
) -> None:
    (tmp_path / there).touch()
    status, _, err = speccast("calibrate", "import", DATA / "vllm_rate.json", "--out", tmp_path)
    assert (status, "--out: " in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == [there]
