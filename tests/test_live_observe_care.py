"""What an observation guards against: other servers than stated, other writers, other hosts."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from live_server import LiveServer
from test_live_observe import kept, statuses

from calibration.live import recording
from calibration.live.imports.requests import Load
from calibration.live.imports.served import strategy_of
from calibration.live.observe import observer
from calibration.live.observe.journal import Measured
from calibration.live.observe.load import Loader, Part, Sent
from calibration.live.observe.observer import Observer
from calibration.live.observe.prompts import Prompts
from calibration.live.observe.pulse import Patience
from calibration.live.observe.remarks import cached_share
from calibration.live.observe.rows import Row
from calibration.live.observe.schedule import Planned
from calibration.live.stated import Drafts, contradiction, drafts_told
from models.strict_yaml import InputError
from sim import verbs

KEY = "sk-very-secret-0123456789"
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    verb = EntryPoint("observe", "calibration.live.observe.cli:observe", verbs.GROUP)
    monkeypatch.setattr(verbs, "entry_points", lambda group, name=None: [verb])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def observe(speccast, tmp_path):
    def call(server: LiveServer, *more: object) -> tuple[int, str, str]:
        return speccast(
            *("observe", "--base-url", server.url, "--model", "m", "--out", tmp_path / "live"),
            *("--tokens", 4, *more),
        )

    return call


def speculating(server: LiveServer) -> str:
    """Counters of a server that drafts three tokens a step."""
    drafts, name = server.tokens, "vllm:spec_decode_num"
    by_place = [drafts, drafts // 2, 0]
    lines = [f"{name}_drafts_total {drafts}", f"{name}_draft_tokens_total {3 * drafts}"]
    lines += [
        f'{name}_accepted_tokens_per_pos_total{{position="{place}"}} {count}'
        for place, count in enumerate(by_place)
    ]
    return "\n".join([*lines, f"{name}_accepted_tokens_total {sum(by_place)}", ""])


def journal(tmp_path: Path) -> Path:
    return tmp_path / "live/journal.jsonl"


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ((), "drafts 3 tokens a step, but is stated as autoregressive"),
        (
            ("--strategy", "{kind: eagle3, k: 5}"),
            "drafts 3 tokens a step, but is stated to draft 5",
        ),
    ],
)
def test_a_server_that_speculates_otherwise_ends_it_after_a_stage(
    observe, tmp_path, stated, message
):
    options = ("--concurrency", "1,2", "--requests", 3, *stated)
    with LiveServer(metrics=True, counted=speculating).running() as server:
        status, out, err = observe(server, *options)
        last = err.splitlines()[-1]
        assert (status, out, len(server.seen)) == (1, "", 1 + 3), "one stage"
        assert message in last and "--strategy '{kind: eagle3, k: 3}'" in last
        assert "a fresh --out" in last and "3 requests are kept" in last and "goes on" not in last
        assert statuses(kept(tmp_path)) == [["FINISHED"] * 3]
        assert f"the server {message}" in kept(tmp_path).about["notes"][0]
        assert observe(server, *options)[0] == 1 and len(server.seen) == 4, "nor does it go on"


def test_a_server_that_speculates_as_stated_is_measured(observe):
    with LiveServer(metrics=True, counted=speculating).running() as server:
        options = ("--concurrency", "1", "--requests", 3, "--strategy", "{kind: eagle3, k: 3}")
        status, _, err = observe(server, *options)
    assert status == 0, err


def test_requests_too_tell_how_many_tokens_are_drafted(observe):
    told = {"num_spec_steps": 2, "num_draft_tokens": 4, "num_accepted_draft_tokens": 1}
    with LiveServer(told={**told, "num_spec_tokens": 4}).running() as server:
        options = ("--concurrency", "1", "--requests", 2, "--strategy", "{kind: ngram, k: 2}")
        status, _, err = observe(server, *options)
    assert status == 1
    assert "drafts 4 tokens a step, but is stated to draft 2" in err.splitlines()[-1]


def test_what_a_server_told_is_held_against_what_is_stated():
    counters = {"spec_drafts": 9.0, "spec_accepted_at_0": 5.0, "spec_accepted_at_1": 0.0}
    assert drafts_told(counters) == Drafts(True, None, 2)
    every = drafts_told(counters, every_position=True)
    assert every == Drafts(True, 2, 2)
    assert drafts_told({}, {"tau_gauge": {"mean": 1.4, "max": 1.6}}).seen
    assert not drafts_told({"spec_drafts": 0.0, "spec_accepted_at_0": 0.0}).seen
    deep = {"kind": "eagle3", "k": 3}
    assert contradiction(deep, drafts_told(counters)) == "", "it may count a position once it can"
    assert "--strategy '{kind: eagle3, k: 2}'" in contradiction(deep, every)
    assert contradiction({"kind": "eagle3", "k": 2}, every) == ""
    assert "heads: 2" in contradiction({"kind": "medusa", "heads": 4}, every)
    switching = {"kind": "dynamic_k", "primary": {"kind": "eagle3", "k": 5}}
    assert contradiction(switching, every) == ""
    assert contradiction({"kind": "autoregressive"}, Drafts(False, 4)) == ""


HOLDING = """
import sys
from pathlib import Path
from calibration.live.observe.folder import Folder
with Folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused(observe, tmp_path):
    line = [sys.executable, "-c", HOLDING, str(tmp_path / "new/live")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    into = ("--concurrency", 1, "--requests", 2, "--out", tmp_path / "new/live")
    with LiveServer().running() as server:
        with subprocess.Popen(line, cwd=ROOT, text=True, **pipes) as other:
            assert other.stdout is not None and other.stdin is not None
            assert other.stdout.readline() == "held\n"
            status, out, err = observe(server, *into)
            other.stdin.close()
        assert (status, out, len(server.seen), len(err.splitlines())) == (2, "", 0, 1)
        assert "is written by another `speccast observe`" in err
        assert not (tmp_path / "new").exists(), "what held nothing leaves nothing"
        assert observe(server, *into)[0] == 0


@pytest.mark.parametrize("user", ["", "me:s%65cret@"])
def test_a_key_goes_to_no_other_server(observe, tmp_path, monkeypatch, user):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with LiveServer(metrics=True).running() as server, LiveServer(metrics=True).running() as other:
        url = f"http://{user}127.0.0.1:{other.port}/metrics?t=t0ken"
        options = ("--concurrency", 1, "--requests", 2, "--metrics-url", url)
        status, out, err = observe(server, *options)
        assert status == 0, err
        assert kept(tmp_path).stages[0].counters["generation_tokens"] == 0, "of the other server"
        keys = {headers.get("authorization", "")[:6] for _, headers in other.asked}
        assert keys == {"Basic " if user else ""}
        models = [headers for path, headers in server.asked if path == "/v1/models"]
        assert models[-1]["authorization"] == f"Bearer {KEY}"
    files = [path.read_text("latin-1") for path in (tmp_path / "live").rglob("*.*")]
    assert not any(word in text for word in ("s%65", "secret-", "t0ken") for text in files)
    assert not any(word in out + err for word in ("s%65", "secret-", "t0ken"))


def test_an_address_of_metrics_is_printed_without_its_password(observe, tmp_path):
    with LiveServer().running() as server:
        url = f"http://me:s%65cret@127.0.0.1:{server.port}/none?t=t0ken"
        _, out, err = observe(server, "--concurrency", 1, "--requests", 1, "--metrics-url", url)
    assert f"the server's metrics are absent: http://127.0.0.1:{server.port}/none: status" in err
    assert "cret" not in out + err and "t0ken" not in out + err


def test_a_key_and_a_password_cannot_both_be_sent(speccast, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    url = ("--base-url", "http://me:pw@127.0.0.1:9/v1", "--api-key-env", "MY_KEY")
    status, _, err = speccast("observe", *url, "--model", "m", "--out", tmp_path / "live")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "--base-url: has a user and a password while MY_KEY holds a key" in err
    assert "pw" not in err.replace("password", "")


def test_a_server_that_does_not_say_who_it_is_is_asked_again(observe, tmp_path, monkeypatch):
    """The first run is stopped by a server that dies in its first stage."""
    with LiveServer(lambda number, body: "stop" if number == 3 else "ok").running() as server:
        port = server.port
        options = ("--concurrency", "1,2", "--requests", 6)
        assert observe(server, *options)[0] == 1
    assert kept(tmp_path).about["server"]["engine"] == "vllm", "asked before it died"
    lines = journal(tmp_path).read_text().splitlines(keepends=True)
    unknown = [line for line in lines if not line.startswith('{"server"')]
    with LiveServer().running() as again:
        changed = "".join(unknown).replace(f":{port}/", f":{again.port}/")
        journal(tmp_path).write_text(changed)
        status, _, err = observe(again, *options)
    assert status == 0, err
    assert kept(tmp_path).about["server"]["engine"] == "vllm"
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 6] * 2


def test_an_unknown_server_is_asked_again_by_the_next_run(observe, tmp_path):
    with LiveServer().running() as server:
        server.fingerprint = ""
        observe(server, "--concurrency", 1, "--requests", 2)
        assert kept(tmp_path).about["server"]["engine"] == "unknown"
        assert '{"server"' not in journal(tmp_path).read_text()
        server.fingerprint = "vllm-0.32.0-1234abcd"
        observe(server, "--concurrency", 1, "--requests", 2, "--repeats", 2)
    assert kept(tmp_path).about["server"]["engine"] == "vllm"


def interrupted(tmp_path: Path, at: int) -> int:
    """Cut the journal behind so many requests of its only stage; how many lines were cut."""
    lines = journal(tmp_path).read_text().splitlines(keepends=True)
    rows = [place for place, line in enumerate(lines) if line.startswith('{"row"')]
    (end,) = (line for line in lines if line.startswith('{"end"'))
    journal(tmp_path).write_text("".join(lines[: rows[at]]) + end)
    return len(rows) - at


def test_what_is_sent_again_has_another_first_line_and_the_break_is_noted(observe, tmp_path):
    options = ("--concurrency", 2, "--requests", 8, "--warm-up", 0)
    with LiveServer(metrics=True, gap_s=0.02).running() as server:
        observe(server, *options)
        before = json.loads((tmp_path / "live/run.json").read_text())
        duration_s = kept(tmp_path).stages[0].duration_s
        text = (tmp_path / "live/metrics/concurrency=2.0.before.txt").read_text()
        assert interrupted(tmp_path, 3) == 5
        status, out, err = observe(server, *options)
    assert (status, before["notes"]) == (0, [])
    note = "concurrency=2, repeat 0 was interrupted after 3 of 8 requests"
    assert any(note in one for one in kept(tmp_path).about["notes"]) and note in err
    assert note in " ".join(out.split()), "beside the table too"
    assert len(set(server.prompts)) == len(server.seen), "no prompt is sent twice"
    metrics = tmp_path / "live/metrics"
    assert (metrics / "concurrency=2.0.before.txt").read_text() == text
    assert (metrics / "concurrency=2.0.part2.before.txt").read_text() != text
    assert kept(tmp_path).stages[0].duration_s > duration_s, "time goes on"


def test_samples_of_a_later_part_go_on_with_the_clock(observe, tmp_path):
    options = ("--concurrency", 1, "--requests", 4)
    with LiveServer(metrics=True).running() as server:
        observe(server, *options)
        lines = [json.loads(line) for line in journal(tmp_path).read_text().splitlines()]
        head, begin, _, *rows, end = lines
        end["end"]["samples"] = [[0.5, "running", 1.0]]
        # The first part was killed 7 s after it began, the second sampled after half a second.
        rows[1]["row"][5] = 7.0
        later = {**begin, "after_s": 7.0}
        parts = [head, begin, *rows[:2], later, *rows[2:], end]
        journal(tmp_path).write_text("".join(json.dumps(one) + "\n" for one in parts))
        assert observe(server, *options)[0] == 0
    assert pq.read_table(tmp_path / "live/server.parquet")["at_s"].to_pylist() == [7.5]


def test_the_gaps_of_an_open_loop_stay_when_it_goes_on():
    sent: list[Sent] = []

    async def send(ready):
        return _Answered()

    async def go() -> Part:
        loader = Loader(
            lambda number: number, send, lambda one, _: sent.append(one), asyncio.Event()
        )
        planned = Planned({"rate_per_s": 10.0}, 0, 4, 0, due_s=np.array([0.0, 0.1, 0.15, 0.25]))
        return await loader.run(planned, [2, 3], 5.0)

    began_s = time.perf_counter()
    part = asyncio.run(go())
    took_s = time.perf_counter() - began_s
    assert [one.arrival_s for one in sent] == pytest.approx([5.0, 5.1])
    assert part.whole and 0.1 <= took_s < 1.0, "neither at once nor after five seconds"


class _Answered:
    unreachable, message = False, ""


def test_a_prompt_is_made_once_and_before_its_request_arrives(observe, tmp_path, monkeypatch):
    made: list[int] = []
    plain = Prompts.of

    def slow(self: Prompts, number: int):
        made.append(number)
        time.sleep(0.05)
        return plain(self, number)

    monkeypatch.setattr(Prompts, "of", slow)
    with LiveServer().running() as server:
        observe(server, "--concurrency", 1, "--requests", 3, "--warm-up", 1)
        table = kept(tmp_path).runs[0].columns
        assert made == [0, 0, 1, 2]
        assert (table["first_token_s"] - table["arrival_s"]).max() < 0.05
        other = ("--out", tmp_path / "open", "--rate", 5, "--requests", 2, "--warm-up", 1)
        observe(server, *other)
    (stage,) = recording.read(tmp_path / "open").stages
    assert stage.latest_s < 0.05


def test_tokens_that_the_prefix_cache_answered_are_noted(observe, tmp_path):
    def half(server: LiveServer) -> str:
        cache = "vllm:prefix_cache"
        return f"{cache}_queries_total {7 * server.tokens}\n{cache}_hits_total {server.tokens}\n"

    options = ("--concurrency", 1, "--requests", 2)
    with LiveServer(metrics=True, counted=half).running() as server:
        status, _, err = observe(server, *options)
        same = ("--out", tmp_path / "same", "--same-prompts")
        assert "prefix cache" not in observe(server, *options, *same)[2], "it is asked for"
    assert status == 0
    note = "concurrency=1, repeat 0: 14 % of the prompt tokens were answered by the prefix cache"
    assert f"{note}: use another --seed" in err
    assert note in kept(tmp_path).about["notes"][0]


def test_without_counters_the_usage_tells_of_the_prefix_cache():
    rows = {i: Row(i, "text", 0, 0.0, prompt_tokens=50, cached_tokens=i) for i in range(2)}
    assert cached_share(Measured(rows)) == 0.01
    assert cached_share(Measured()) is None


def test_a_probe_that_timed_out_leaves_the_usage_to_the_next_answer(observe, tmp_path):
    with LiveServer(lambda number, body: "ok" if number else "hang").running() as server:
        options = ("--concurrency", 1, "--requests", 3, "--timeout-s", 0.3)
        assert observe(server, *options)[0] == 0
    for warm_up, asked in ((1, 2), (2, 2)):
        out = tmp_path / f"bare{warm_up}"
        with LiveServer(lambda number, body: "no usage" if number else "429").running() as server:
            more = ("--requests", 3, "--warm-up", warm_up, "--out", out)
            status, _, err = observe(server, "--concurrency", 1, *more)
        assert (status, len(server.seen)) == (1, asked)
        assert "sends no usage: tokens cannot be counted" in err.splitlines()[-1]
        assert "nothing was measured" in err


def test_only_what_is_left_to_send_needs_a_yes(observe, tmp_path, monkeypatch):
    options = ("--concurrency", 1, "--requests", 6, "--warm-up", 0)
    with LiveServer().running() as server:
        assert observe(server, *options)[0] == 0
        interrupted(tmp_path, 3)
        monkeypatch.setattr("calibration.live.observe.schedule.MOST_REQUESTS", 3)
        assert observe(server, *options)[0] == 0
        status, _, err = observe(server, *options, "--repeats", 2)
        assert status == 2 and "6 requests, warm-up included, are to be sent" in err


def test_newer_names_and_no_temperature(observe):
    with LiveServer().running() as server:
        names = ("--max-tokens-key", "max_completion_tokens", "--temperature", "none")
        assert observe(server, "--concurrency", 1, "--requests", 1, *names)[0] == 0
    assert server.seen[0]["max_completion_tokens"] == 4
    assert not {"max_tokens", "temperature"} & server.seen[0].keys()


def test_tokens_beside_a_trace_are_said_to_be_unused(observe, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,40,3\n0.1,60,2\n")
    with LiveServer().running() as server:
        _, _, err = observe(server, "--prompts", trace, "--replay")
        assert "--tokens 4 is not used: the trace says how long each answer is" in err
        assert [body["max_tokens"] for body in server.seen[-2:]] == [3, 2]


@pytest.mark.parametrize("fault", ["huge", "none"])
def test_counts_that_cannot_be_do_not_stand_in_the_way_of_going_on(observe, tmp_path, fault):
    options = ("--concurrency", 1, "--requests", 3)
    with LiveServer(lambda number, body: fault if number == 2 else "ok").running() as server:
        assert observe(server, *options)[0] == 0
        assert observe(server, *options, "--repeats", 2)[0] == 0
    assert statuses(kept(tmp_path)) == [["FINISHED", "FAILED", "FINISHED"], ["FINISHED"] * 3]


def test_results_of_other_clients_are_held_against_what_is_stated_too():
    counters = {"spec_drafts": 9.0, "spec_accepted_at_0": 5.0, "spec_accepted_at_1": 0.0}
    load = Load("r.json", "vllm", "closed_loop", {"concurrency": 1}, (), counters=counters)
    assert strategy_of([load], "{kind: ngram, k: 2}", None)[1]["k"] == 2
    with pytest.raises(InputError, match=r"--strategy: the server drafts 2 tokens .*\(r.json\)"):
        strategy_of([load], "{kind: ngram, k: 4}", None)


def test_a_folder_of_something_else_is_left_alone(observe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "live").mkdir()
    (tmp_path / "live/.hidden").touch()
    with LiveServer().running() as server:
        options = ("--concurrency", 1, "--requests", 1)
        assert observe(server, *options)[0] == 0, "hidden files are nobody's result"
        assert observe(server, *options)[0] == 0
        (tmp_path / "notes.txt").write_text("mine")
        before = sorted(tmp_path.iterdir())
        for out, message in (
            ("", "--out: needs a folder, got ''"),
            (".", "--out: is not empty and holds no observation; choose another"),
        ):
            status, text, err = observe(server, *options, "--out", out)
            assert (status, text, len(err.splitlines())) == (2, "", 1)
            assert message in err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("at", [4, 1], ids=["stage", "warm-up"])
def test_a_silent_server_that_takes_no_connection_is_gone(observe, tmp_path, monkeypatch, at):
    hasty = functools.partial(Observer, patience=Patience(0.3, 0.1))
    monkeypatch.setattr(observer, "Observer", hasty)
    options = ("--concurrency", 2, "--requests", 5)
    fault = lambda number, body: ("deaf" if number == at else "hang") if number >= at else "ok"  # noqa: E731
    began_s = time.perf_counter()
    with LiveServer(fault).running() as server:
        status, out, err = observe(server, *options)
    assert time.perf_counter() - began_s < 5
    last = err.splitlines()[-1]
    assert status == 1 and "is gone: silent for 0.3 s" in last and "takes no connection" in last
    if at == 1:
        assert out == "" and "nothing was measured" in last
        return
    assert "2 requests are kept" in last and "goes on" in last
    assert "concurrency=2         4       2" in out
    assert statuses(kept(tmp_path)) == [["FINISHED"] * 2 + ["FAILED"] * 2]


def test_a_silent_server_that_takes_connections_is_waited_for(observe, tmp_path, monkeypatch):
    hasty = functools.partial(Observer, patience=Patience(0.1, 0.05))
    monkeypatch.setattr(observer, "Observer", hasty)
    with LiveServer(lambda number, body: "hang" if number == 2 else "ok").running() as server:
        options = ("--concurrency", 1, "--requests", 3, "--timeout-s", 1)
        assert observe(server, *options)[0] == 0
    assert statuses(kept(tmp_path)) == [["FINISHED", "TIMED_OUT", "FINISHED"]]


@pytest.mark.parametrize("end", ["", "/", "/v1"])
def test_an_address_without_its_version_is_told_what_it_lacks(observe, tmp_path, end):
    class Astray(LiveServer):
        @property
        def url(self) -> str:
            return f"http://127.0.0.1:{self.port}{end}"

    with Astray(lambda number, body: "404").running() as server:
        status, _, err = observe(server)
    assert (status, len(err.splitlines())) == (1, 1)
    assert ("the address should end in /v1" in err) == (end != "/v1")
