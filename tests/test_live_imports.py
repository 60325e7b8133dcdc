"""Results of ``vllm bench serve`` become the observation their own numbers describe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from imported_results import DATA, NGRAM, changed, imported

from calibration.live import recording
from calibration.live.address import public
from models.strict_yaml import InputError
from sim.analysis import metrics
from sim.tables import Status, read_parquet


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


def test_the_folder_is_read_back_and_fits_acceptance(speccast, tmp_path: Path) -> None:
    out = tmp_path / "theirs"
    options = ("--strategy", NGRAM, "--label", "lookup", "--out", out)
    status, text, err = speccast("calibrate", "import", DATA / "profile_export.jsonl", *options)
    assert (status, "1 request was left out: of the warm-up" in " ".join(text.split())) == (0, True)
    assert f"wrote {out / 'run.json'}" in err
    seen = recording.read(out)
    assert (seen.label, seen.block) == ("lookup", {"kind": "ngram", "k": 4})
    assert seen.about["options"]["files"][0]["file"] == "profile_export.jsonl"
    assert seen.about["notes"][0] == (
        "profile_export.jsonl: 1 request was left out: of the warm-up"
    )
    assert seen.runs[0].columns["point"].tolist() == ["concurrency=2"] * 5
    assert read_parquet(out / "acceptance.parquet")["request"].tolist() == [1, 1]
    fit = tmp_path / "acceptance.yaml"
    assert speccast("calibrate", "acceptance", out, "--out", fit)[0] == 0


def test_an_import_replaces_no_observation(speccast, tmp_path: Path) -> None:
    out = tmp_path / "theirs"
    line = ("calibrate", "import", DATA / "vllm_rate.json", "--json", "--out", out)
    status, text, _ = speccast(*line)
    assert (status, json.loads(text)["stages"][0]["requests"]) == (0, 6)
    files = {path: path.read_bytes() for path in out.iterdir()}
    status, text, err = speccast(*line)
    assert (status, text, err.count("\n")) == (2, "", 1)
    assert "--out: holds an observation; choose another folder" in err
    assert {path: path.read_bytes() for path in out.iterdir()} == files


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
    assert (status, "holds an observation; choose another folder" in err) == (2, True)


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_no_password_of_a_url_is_kept(scheme: str) -> None:
    assert public(f"{scheme}me:secret@host:8000/v1?key=x#y") == f"{scheme}host:8000/v1"


def test_a_folder_stands_for_the_file_its_tool_left(tmp_path: Path) -> None:
    shutil.copy(DATA / "benchmarks.json", tmp_path)
    assert len(imported(tmp_path, mode="open_loop").stages) == 1
    shutil.copy(DATA / "profile_export.jsonl", tmp_path)
    both = "is a folder with benchmarks.json and profile_export.jsonl: name one of them"
    with pytest.raises(InputError, match=both):
        imported(tmp_path)
    (tmp_path / "profile_export.jsonl").unlink()
    (tmp_path / "benchmarks.json").rename(tmp_path / "other.json")
    with pytest.raises(InputError, match=r"is a folder without benchmarks.json"):
        imported(tmp_path)
    with pytest.raises(InputError, match="is no result of vllm but of guidellm"):
        imported(tmp_path / "other.json", format="vllm")


def test_a_file_where_a_folder_must_be_is_refused_early(speccast, tmp_path: Path) -> None:
    (tmp_path / "metrics").touch()
    status, _, err = speccast("calibrate", "import", DATA / "vllm_rate.json", "--out", tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    assert "--out: needs a folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["metrics"]


@pytest.mark.parametrize("there", ["summary.json", "requests.parquet"])
def test_what_an_import_did_not_write_it_does_not_replace(
    speccast, tmp_path: Path, there: str
) -> None:
    (tmp_path / there).touch()
    status, _, err = speccast("calibrate", "import", DATA / "vllm_rate.json", "--out", tmp_path)
    assert (status, "--out: " in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == [there]
