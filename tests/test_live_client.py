"""One request: what is timed and counted, and what becomes of answers that are none."""

from __future__ import annotations

import asyncio

import pytest
from live_server import LiveServer

from calibration.live.client import Asking, Client, Outcome
from calibration.live.prompts import Prompt
from sim.tables import Status

PROMPT = Prompt("Say something.")
KEY = "sk-very-secret-0123456789-very-secret-0123456789-very-secret-0123456789"


def sent(url: str, n: int = 1, tokens: int = 4, **more) -> list[Outcome]:
    async def go() -> list[Outcome]:
        async with Client(Asking(url, "m", **more)) as client:
            return [await client.send(PROMPT, tokens, "[x]\n") for _ in range(n)]

    return asyncio.run(go())


def after(fault: str, **more) -> Outcome:
    with LiveServer(lambda number, body: fault).running() as server:
        return sent(server.url, **more)[0]


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("shape", ["ok", "crlf", "split", "no newline"])
def test_an_answer_is_timed_by_chunk_and_counted_by_usage(api, shape):
    outcome = after(shape, api=api)
    assert outcome.status == Status.FINISHED, outcome.message
    assert outcome.usage == (7, 4, 0)
    assert len(outcome.gaps) == 3 and min(outcome.gaps) > 0
    assert outcome.first_s is not None
    assert outcome.sent_s < outcome.first_s < outcome.end_s
    assert sum(outcome.gaps) <= outcome.end_s - outcome.first_s
    assert (outcome.fingerprint, outcome.http_status) == ("vllm-0.32.0-1234abcd", 200)


def test_the_request_asks_for_a_stream_with_usage():
    with LiveServer().running() as server:
        sent(server.url, api="completions", body={"temperature": 0.5}, key=KEY)
        (body,), (headers,) = server.seen, server.headers
    assert body == {
        "model": "m",
        "prompt": "[x]\nSay something.",
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    }
    assert headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("cut", Status.FAILED, "was cut off after 2 chunks of text"),
        ("no end", Status.FAILED, "was cut off after 4 chunks of text"),
        ("garbage", Status.FAILED, "sent what is no JSON: {this is no JSON"),
        ("error", Status.FAILED, "broke off: out of memory"),
        ("500", Status.FAILED, "answered 500: no: nothing"),
        ("429", Status.REJECTED, "answered 429"),
        ("503", Status.REJECTED, "answered 503"),
        ("too few", Status.FAILED, "counts 1 tokens in 4 chunks of text"),
        ("too many", Status.FAILED, "counts 10000 tokens where at most 4 were asked for"),
        ("half", Status.FAILED, "completion_tokens must be a count, got 2.5"),
        ("negative", Status.FAILED, "completion_tokens must be a count, got -1"),
        ("cached", Status.FAILED, "counts 9 cached of 7 prompt tokens"),
        ("close", Status.FAILED, "cannot be reached"),
    ],
)
def test_a_fault_becomes_a_status_and_a_message(fault, status, message):
    outcome = after(fault)
    assert outcome.status == status
    assert message in outcome.message
    assert outcome.usage is None


def test_no_usage_is_no_failure_of_the_stream():
    outcome = after("no usage")
    assert (outcome.status, outcome.usage, outcome.message) == (Status.FINISHED, None, "")


@pytest.mark.parametrize(("fault", "chunks"), [("hang", 0), ("drip", 2)])
def test_the_time_limit_is_for_the_whole_answer(fault, chunks):
    outcome = after(fault, timeout_s=0.2, tokens=50)
    assert outcome.status == Status.TIMED_OUT
    assert 0.2 <= outcome.end_s - outcome.sent_s < 1
    assert (len(outcome.gaps) > 0) == (chunks > 0)


def test_only_what_cannot_be_reached_is_unreachable():
    with LiveServer().running() as server:
        url = server.url
    (refused,) = sent(url)
    assert refused.status == Status.FAILED and refused.unreachable and refused.lost
    cut = after("cut")
    assert cut.lost and not cut.unreachable
    assert not after("500").lost


def test_retries_are_counted_and_time_runs_from_the_first(monkeypatch):
    monkeypatch.setattr("calibration.live.client.RETRY_WAIT_S", 0.05)
    with LiveServer(lambda number, body: "503" if number < 2 else "ok").running() as server:
        (outcome,) = sent(server.url, retries=3)
    assert (outcome.status, outcome.attempts) == (Status.FINISHED, 3)
    assert outcome.first_s is not None and outcome.first_s - outcome.sent_s > 0.15


def test_what_the_request_itself_got_wrong_is_not_sent_again():
    with LiveServer(lambda number, body: "404").running() as server:
        (outcome,) = sent(server.url, retries=3)
    assert (outcome.attempts, len(server.seen)) == (1, 1)


def test_no_retries_unless_asked():
    assert after("503").attempts == 1


def test_a_key_that_the_server_echoes_is_not_shown():
    outcome = after("500", key=KEY)
    assert outcome.message == "answered 500: no: Bearer ***"
    assert "secret" not in repr(outcome)


def test_connections_are_used_again():
    with LiveServer().running() as server:
        outcomes = sent(server.url, n=3)
    assert [one.status for one in outcomes] == [Status.FINISHED] * 3
    assert server.broken_off <= 1
