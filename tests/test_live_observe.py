"""A whole observation: what is sent, what is kept, how it ends, and how it goes on."""

from __future__ import annotations

import json
import os
import signal
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from live_server import LiveServer

from calibration.acceptance.runs import read_traces
from calibration.live import recording
from calibration.live.observe.client import Client
from sim import verbs
from sim.tables import Status

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    verb = EntryPoint("observe", "calibration.live.observe.cli:observe", verbs.GROUP)
    monkeypatch.setattr(verbs, "entry_points", lambda group, name=None: [verb])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def observe(speccast, tmp_path):
    """Run the verb on a server, into ``tmp_path/live``."""

    def call(server: LiveServer, *more: object) -> tuple[int, str, str]:
        return speccast(
            *("observe", "--base-url", server.url, "--model", "m", "--out", tmp_path / "live"),
            *("--tokens", 4, *more),
        )

    return call


def kept(tmp_path: Path) -> recording.Observation:
    return recording.read(tmp_path / "live")


def statuses(observation: recording.Observation) -> list[list[str]]:
    return [[Status(s).name for s in run.columns["status"]] for run in observation.runs]


def test_a_ladder_with_repeats(observe, tmp_path):
    with LiveServer(metrics=True).running() as server:
        status, out, err = observe(
            *(server, "--concurrency", "1,3", "--requests", 6, "--repeats", 2, "--seed", 1)
        )
    assert status == 0, err
    seen = kept(tmp_path)
    assert [(s.name, s.replication) for s in seen.stages] == [
        ("concurrency=1", 0),
        ("concurrency=3", 0),
        ("concurrency=1", 1),
        ("concurrency=3", 1),
    ]
    assert server.most_busy == 3
    assert len(server.seen) == 4 * 6 + 2 * (1 + 3)
    assert len(set(server.prompts)) == len(server.seen), "every prompt is sent once"
    assert statuses(seen) == [["FINISHED"] * 6] * 4
    for run in seen.runs:
        table = run.columns
        assert table["id"].tolist() == list(range(6))
        assert set(table["output_tokens"]) == {4} and set(table["prompt_tokens"]) == {7}
        assert (table["arrival_s"] <= table["first_token_s"]).all()
        assert (table["first_token_s"] < table["finish_s"]).all()
        assert np.isnan(table["schedule_s"]).all()
    assert [stage.counters["generation_tokens"] for stage in seen.stages] == [24.0] * 4
    assert seen.stages[0].itl["count"] == 6 * 3
    assert (seen.about["mode"], seen.about["api"]) == ("closed_loop", "chat")
    assert seen.about["server"]["engine"] == "vllm"
    assert seen.about["server"]["version"] == "0.32.0"
    assert seen.block == {"kind": "autoregressive"}
    assert "concurrency=3        12       0" in out
    assert (tmp_path / "live/metrics/concurrency=3.1.after.txt").is_file()
    assert "wrote" in err and "wrote" not in out


def test_users_send_the_next_request_on_the_answer(observe, tmp_path):
    with LiveServer(gap_s=0.01).running() as server:
        observe(server, "--concurrency", 2, "--requests", 6, "--warm-up", 0)
    table = kept(tmp_path).runs[0].columns
    again_s = np.sort(table["arrival_s"])[2:] - np.sort(table["finish_s"])[:4]
    assert (again_s > 0).all() and (again_s < 0.5).all()


def test_an_open_loop_counts_from_when_a_request_was_due(observe, tmp_path):
    # One rate of 100/s on a server that takes 50 ms: they overlap, and nothing waits for answers.
    with LiveServer(gap_s=0.01).running() as server:
        status, *_ = observe(server, "--rate", 100, "--requests", 20)
    assert status == 0
    (run,), (stage,) = kept(tmp_path).runs, kept(tmp_path).stages
    due = np.cumsum(np.random.default_rng((0, 0)).standard_exponential(20)) / 100
    assert run.columns["arrival_s"] == pytest.approx(due, abs=1e-6)
    assert server.most_busy > 2
    assert stage.point == {"rate_per_s": 100.0}
    assert kept(tmp_path).about["mode"] == "open_loop"
    assert stage.late < 10, "half a second of answers in a fifth of one of arrivals"


def test_late_sends_are_counted_and_their_wait_is_part_of_the_latency(
    observe, tmp_path, monkeypatch
):
    """The client is held up for 0.2 s half way: what was due in between is late."""
    sent, plain = [], Client._attempt

    async def slow(self, *args):
        sent.append(1)
        if len(sent) == 10:
            time.sleep(0.2)
        return await plain(self, *args)

    monkeypatch.setattr(Client, "_attempt", slow)
    with LiveServer().running() as server:
        _, out, err = observe(server, "--rate", 100, "--requests", 20, "--warm-up", 1)
    stage, table = kept(tmp_path).stages[0], kept(tmp_path).runs[0].columns
    assert stage.late >= 5
    assert stage.latest_s > 0.1
    assert (table["first_token_s"] - table["arrival_s"]).max() > stage.latest_s
    assert "sent after they were due, by up to" in out
    assert "this client fell behind" in err


def test_a_trace_is_sent_at_its_times_with_its_lengths(observe, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n5,40,3\n5.1,60,2\n5.3,20,5\n")
    with LiveServer().running() as server:
        status, *_ = observe(
            *(server, "--prompts", trace, "--replay", "--rate-scale", 2, "--api", "completions"),
            *("--warm-up", 0),
        )
    assert status == 0
    table, stage = kept(tmp_path).runs[0].columns, kept(tmp_path).stages[0]
    assert table["arrival_s"] == pytest.approx([0, 0.05, 0.15])
    assert table["output_tokens"].tolist() == [3, 2, 5]
    assert stage.point == {"rate_scale": 2.0}
    words = [len(prompt.split()) for prompt in server.prompts[1:]]
    assert words == [33, 53, 13], "eight tokens are left to the first line, which is one word"


def test_faults_become_rows_with_a_status(observe, tmp_path):
    faults = ["ok", "ok", "cut", "500", "429", "garbage", "too few", "hang", "no usage", "ok"]
    with LiveServer(lambda number, body: faults[number]).running() as server:
        status, out, _ = observe(*(server, "--concurrency", 1, "--requests", 9, "--timeout-s", 0.3))
    assert status == 0
    seen = kept(tmp_path)
    failed = ["FAILED", "FAILED", "REJECTED", "FAILED", "FAILED", "TIMED_OUT", "FAILED"]
    assert statuses(seen) == [["FINISHED", *failed, "FINISHED"]]
    table = seen.runs[0].columns
    assert table["output_tokens"].tolist() == [4] * 9, "what failed keeps what it asked for"
    assert np.isnan(table["finish_s"][1:8]).all()
    errors = (tmp_path / "live/errors.csv").read_text().splitlines()
    assert errors[0] == ",".join(recording.ERROR_COLUMNS)
    assert "concurrency=1,0,2,failed,500,answered 500: no: nothing" in errors
    assert "concurrency=1,0,7,failed,200,sent no usage: tokens are not counted" in errors
    assert len(errors) == 8
    assert "concurrency=1         9       7" in out
    assert "7 of 9 requests failed, most often as: " in " ".join(out.split())


def test_an_answer_that_is_only_its_end_has_its_first_token_there(observe, tmp_path):
    with LiveServer(lambda number, body: "silent" if number else "ok").running() as server:
        observe(server, "--concurrency", 1, "--requests", 2)
    table = kept(tmp_path).runs[0].columns
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 2]
    assert table["output_tokens"].tolist() == [1, 1]
    assert (table["first_token_s"] == table["finish_s"]).all()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no usage", "sends no usage: tokens cannot be counted"),
        ("404", "answered 404"),
        ("401", "answered 401"),
        ("close", "cannot be reached"),
        ("too few", "counts 1 tokens in 4 chunks of text"),
        ("whole", "did not stream, it sent application/json"),
    ],
)
def test_a_server_that_cannot_be_measured_ends_it_in_one_line(observe, tmp_path, fault, message):
    with LiveServer(lambda number, body: fault).running() as server:
        status, out, err = observe(server, "--concurrency", 2, "--requests", 5)
    assert (status, out, len(server.seen)) == (1, "", 1)
    assert message in err and "nothing was measured" in err
    assert len(err.splitlines()) == 1, "nothing is said of metrics"
    assert not (tmp_path / "live").exists()


def test_a_server_that_dies_ends_it_and_the_same_command_goes_on(observe, tmp_path):
    with LiveServer(lambda number, body: "stop" if number == 6 else "ok").running() as server:
        port = server.port
        status, out, err = observe(server, "--concurrency", 1, "--requests", 8)
    assert status == 1 and "concurrency=1         8       3" in out
    last = err.splitlines()[-1]
    assert "is gone" in last and "5 requests are kept" in last and "goes on" in last
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 5 + ["FAILED"] * 3]

    with LiveServer().running() as again:
        again.__dict__["port"], real = port, again.port
        options = ("--concurrency", 1, "--requests", 8)
        assert observe(again, *options)[0] == 1, "nobody listens there"
        again.port = real
        assert "holds another observation (base_url" in observe(again, *options)[2]
        journal = tmp_path / "live/journal.jsonl"
        journal.write_text(journal.read_text().replace(f":{port}/", f":{real}/"))
        status, _, err = observe(again, *options)
    assert status == 0, err
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 8]
    assert len(again.seen) == 1 + 3, "only what is missing is sent, after a warm-up"
    assert not (tmp_path / "live/errors.csv").exists()
    arrivals = kept(tmp_path).runs[0].columns["arrival_s"]
    assert (np.diff(arrivals) > 0).all(), "time goes on where it was"


@pytest.mark.parametrize(
    ("number", "left"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_keeps_what_was_measured(observe, tmp_path, number, left):
    def behave(asked: int, body: object) -> str:
        if asked == 9:
            os.kill(os.getpid(), number)
        return "drip" if asked >= 8 else "ok"

    with LiveServer(behave).running() as server:
        options = ("--concurrency", 2, "--requests", 9, "--metrics-url", server.url + "/x")
        status, out, err = observe(server, *options)
        assert status == left
        assert "interrupted: 6 requests are kept" in err
        assert "requests  failed  cut short" in out and "not failed" in " ".join(out.split())
        assert "concurrency=2         8       0          2" in out
        assert statuses(kept(tmp_path)) == [["FINISHED"] * 6 + ["UNFINISHED"] * 2]
        before = kept(tmp_path).runs[0].columns["finish_s"][:6]
        server.behave = lambda asked, body: "ok"
        assert observe(server, *options)[0] == 0
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 9]
    assert (kept(tmp_path).runs[0].columns["finish_s"][:6] == before).all()


def test_repeats_may_be_added_and_nothing_else_changed(observe, tmp_path):
    with LiveServer().running() as server:
        options = (server, "--concurrency", "2", "--requests", 3)
        observe(*options)
        first = kept(tmp_path).runs[0].columns["finish_s"]
        sent = len(server.seen)
        assert observe(*options)[0] == 0
        assert len(server.seen) == sent, "all of it was measured"
        assert observe(*options, "--repeats", 2)[0] == 0
        assert [stage.replication for stage in kept(tmp_path).stages] == [0, 1]
        assert (kept(tmp_path).runs[0].columns["finish_s"] == first).all()
        status, _, err = observe(*options, "--temperature", 0.5)
        assert status == 2
        assert "body: {'temperature': 0.0}, now {'temperature': 0.5}" in err


def test_a_line_that_was_torn_costs_one_request(observe, tmp_path):
    with LiveServer().running() as server:
        options = (server, "--concurrency", 1, "--requests", 4)
        observe(*options)
        journal = tmp_path / "live/journal.jsonl"
        lines = journal.read_text().splitlines(keepends=True)
        at = max(i for i, line in enumerate(lines) if line.startswith('{"row"'))
        journal.write_text("".join(lines[:at]) + lines[at][:40])
        sent = len(server.seen)
        assert observe(*options)[0] == 0
    assert len(server.seen) == sent + 2, "a warm-up and the one request"
    (stage,) = kept(tmp_path).stages
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 4]
    assert stage.counters == {}, "what the server counted in the killed part is not known"


def test_a_key_goes_into_the_header_and_nowhere_else(observe, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    faults = lambda number, body: "500" if number == 2 else "ok"  # noqa: E731
    with LiveServer(faults).running() as server:
        url = server.url
        _, out, err = observe(
            server, "--concurrency", 1, "--requests", 3, "--api-key-env", "MY_KEY"
        )
    assert all(one["authorization"] == f"Bearer {KEY}" for one in server.headers)
    files = [path for path in (tmp_path / "live").rglob("*") if path.is_file()]
    assert files and url in (tmp_path / "live/run.json").read_text()
    assert not any(b"secret" in path.read_bytes() for path in files)
    assert "secret" not in out + err
    assert "Bearer ***" in (tmp_path / "live/errors.csv").read_text()


def test_steps_of_requests_become_an_acceptance_table(observe, tmp_path):
    # Prefill, then steps that emit 2 and 1 of the 4 tokens.
    told = {
        "num_spec_steps": 2,
        "num_draft_tokens": 4,
        "num_accepted_draft_tokens": 1,
        "acceptance_histogram": [1, 1, 0],
        "per_step_accepted": [1, 0],
        "per_step_drafted": [2, 2],
    }
    with LiveServer(told=told).running() as server:
        status, out, err = observe(
            *(server, "--concurrency", "1,2", "--requests", 3, "--json"),
            *("--strategy", "{kind: ngram, k: 2}", "--label", "lookup"),
        )
    assert status == 0, err
    said = json.loads(out)
    assert said["strategies"] == {"lookup": {"kind": "ngram", "k": 2}}
    assert [row["tau"] for row in said["stages"]] == [1.5, 1.5]
    run = kept(tmp_path).runs[1]
    assert run.strategy == "lookup"
    assert [run.columns[name].tolist() for name in ("n_steps", "drafted", "accepted")] == [
        [2] * 3,
        [4] * 3,
        [1] * 3,
    ]
    traces = read_traces(tmp_path / "live/acceptance.parquet")["lookup"]
    assert sum(len(trace.offsets) - 1 for trace in traces.values()) == 6, "two stages of three"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--concurrency", "600"], "2400 requests, warm-up included, are to be sent; give --yes"),
        (["--concurrency", "1,x"], "--concurrency: must be different whole numbers above 0"),
        (["--concurrency", "2,2"], "--concurrency: must be different whole numbers above 0"),
        (["--rate", "nan"], "--rate: must be different numbers above 0"),
        (["--rate", "1", "--concurrency", "2"], "--rate: cannot go with --concurrency"),
        (["--replay"], "--replay: needs a trace as --prompts"),
        (["--rate-scale", "2"], "--rate-scale: needs --replay"),
        (["--strategy", "{kind: nothing}"], "--strategy: needs a kind, one of"),
        (["--strategy", "{kind: ngram, k: 0}"], "--strategy.k: "),
        (["--extra-body", "[1]"], "--extra-body: must be a JSON object"),
        (["--extra-body", '{"stream": false}'], "--extra-body: must not set 'stream'"),
        (["--extra-body", '{"best_of": 2}'], "--extra-body: must not set 'best_of'"),
        (["--extra-body", '{"max_completion_tokens": 2}'], "must not set 'max_completion_tokens'"),
        (["--extra-body", '{"top_p": 1e999}'], "--extra-body: is not JSON"),
        (["--temperature", "-1"], "--temperature: must be a number from 0, or none, got '-1'"),
        (["--temperature", "nan"], "--temperature: must be a number from 0"),
        (["--metrics-url", "here"], "--metrics-url: must be as in http://host:8000/metrics"),
        (["--api-key-env", "NO_SUCH_KEY"], "--api-key-env NO_SUCH_KEY: is not set"),
        (["--prompts", "none.txt"], "none.txt: --prompts: cannot be read"),
    ],
)
def test_bad_options_are_refused_before_anything_is_sent(observe, tmp_path, options, message):
    server = LiveServer()
    server.port = 9
    status, out, err = observe(server, *options)
    assert (status, out) == (2, "")
    assert message in err and len(err.splitlines()) == 1
    assert not (tmp_path / "live").exists()


def test_credentials_in_the_address_are_not_shown(observe, tmp_path):
    class Named(LiveServer):
        @property
        def url(self) -> str:
            return f"http://me:s%65cret@127.0.0.1:{self.port}/v1?key=s3cret"

    with Named(lambda number, body: "500" if number == 1 else "ok").running() as server:
        status, out, err = observe(server, "--concurrency", 1, "--requests", 2)
    assert status == 0 and "the server's metrics are absent" in err
    assert all(one["authorization"].startswith("Basic ") for one in server.headers)
    files = [path.read_text("latin-1") for path in (tmp_path / "live").rglob("*.*")]
    assert not any(word in text for word in ("cret", "me:") for text in (*files, out, err))


def test_another_folder_is_left_alone(observe, tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live/run.json").write_text("{}")
    server = LiveServer()
    server.port = 9
    status, _, err = observe(server)
    assert status == 2 and "would replace" in err
    (tmp_path / "live/stages.json").write_text("{}")
    status, _, err = observe(server)
    assert status == 2 and "without its journal" in err
    assert sorted(path.name for path in (tmp_path / "live").iterdir()) == [
        "run.json",
        "stages.json",
    ]


@pytest.mark.parametrize("name", ["requests.parquet", "errors.csv", "server.parquet", "metrics"])
def test_no_file_of_somebody_else_is_replaced(observe, tmp_path, name):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / name).write_text("mine")
    # As a run leaves it that was killed before it had anything to say.
    (tmp_path / "live/journal.jsonl").touch()
    server = LiveServer()
    server.port = 9
    status, _, err = observe(server)
    assert (status, len(err.splitlines())) == (2, 1)
    assert f"would replace '{tmp_path / 'live' / name}'" in err or "needs a folder" in err
    assert (tmp_path / "live" / name).read_text() == "mine"


def test_what_a_killed_run_left_is_written_even_if_the_next_one_measures_nothing(observe, tmp_path):
    with LiveServer().running() as server:
        options = ("--concurrency", 1, "--requests", 4)
        observe(server, *options)
        journal = tmp_path / "live/journal.jsonl"
        whole = journal.read_text().splitlines(keepends=True)
        assert json.loads(whole[-1]).keys() == {"end"}
        for path in (tmp_path / "live").glob("*.*"):
            path.unlink()
        journal.write_text("".join(whole[:5]))
        server.behave = lambda number, body: "404"
        status, _, err = observe(server, *options)
    assert status == 1 and "2 requests are kept" in err
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 2]


def test_a_measurement_without_any_answer_fails_and_says_why(observe, tmp_path):
    with LiveServer(lambda number, body: "429" if number == 3 else "500").running() as server:
        options = ("--concurrency", 1, "--requests", 4)
        for _ in range(2):
            status, out, err = observe(server, *options)
            assert status == 1
            said = " ".join(out.split())
            assert "4 of 4 requests failed, most often as: answered 500: no: nothing" in said
            assert "; see errors.csv" in said
            where = tmp_path / "live/errors.csv"
            assert err.splitlines()[-1].endswith(f"no request was answered; see '{where}'")
    assert len(where.read_text().splitlines()) == 1 + 4
