"""One request: what is timed and counted, and what becomes of answers that are none."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from contextlib import ExitStack

import pytest
from live_server import LiveServer

from calibration.live.observe.answer import Answer
from calibration.live.observe.asking import Asking
from calibration.live.observe.client import Client, Outcome
from calibration.live.observe.prompts import Prompt
from calibration.live.observe.secrets import hidden, same_origin, secrets_of
from sim.tables import Status

PROMPT = Prompt("Say something.")
KEY = "sk-very-secret-0123456789-very-secret-0123456789-very-secret-0123456789"


def sent(url: str, n: int = 1, tokens: int = 4, **more) -> list[Outcome]:
    async def go() -> list[Outcome]:
        async with Client(Asking(url, "m", **more)) as client:
            ready = client.ready(PROMPT, tokens, lambda attempt: f"[{attempt}]\n")
            return [await client.send(ready) for _ in range(n)]

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
        "prompt": "[0]\nSay something.",
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
        ("half", Status.FAILED, "completion_tokens must be a whole number from 1 to 2147483648, "),
        ("negative", Status.FAILED, "to 2147483648, got -1"),
        ("none", Status.FAILED, "to 2147483648, got 0"),
        ("huge", Status.FAILED, "to 2147483648, got 1000000000"),
        ("no prompt", Status.FAILED, "prompt_tokens must be a whole number from 1 to"),
        ("unseen", Status.FAILED, "counts 4 tokens and streamed none: no times can be told"),
        ("reasoned", Status.FAILED, "did not stream its 3 reasoning tokens: no times can be told"),
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
    monkeypatch.setattr("calibration.live.observe.client.RETRY_WAIT_S", 0.05)
    with LiveServer(lambda number, body: "503" if number < 2 else "ok").running() as server:
        (outcome,) = sent(server.url, retries=3)
    assert (outcome.status, outcome.attempts) == (Status.FINISHED, 3)
    assert outcome.first_s is not None and outcome.first_s - outcome.sent_s > 0.15
    lines = [body["messages"][0]["content"][:4] for body in server.seen]
    assert lines == ["[0]\n", "[1]\n", "[2]\n"], "what was sent may be known by then"


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


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_tokens_without_text_are_timed_and_the_role_is_no_token(api):
    """As of special tokens: a chunk comes for each, its text is empty."""
    with LiveServer(lambda number, body: "special", gap_s=0.02).running() as server:
        (outcome,) = sent(server.url, api=api)
    assert outcome.status == Status.FINISHED, outcome.message
    assert len(outcome.gaps) == 3
    assert outcome.first_s is not None
    # The role comes first, one gap before the first token.
    assert outcome.first_s - outcome.sent_s > (0.035 if api == "chat" else 0.015)


def taken(*events: str) -> Answer:
    answer = Answer()
    for at_s, event in enumerate(events):
        answer.take(event, float(at_s))
    return answer


def choice(delta: str, reason: str = "null", more: str = "") -> str:
    return f'{{"choices": [{{"delta": {delta}, "finish_reason": {reason}{more}}}]}}'


def test_only_chunks_that_stand_for_tokens_count():
    answer = taken(
        choice('{"role": "assistant", "content": ""}'),
        choice('{"role": "assistant", "content": null}'),
        choice("{}"),
        choice("{}", more=', "token_ids": [5]'),
        choice('{"role": "assistant", "content": ""}'),
        choice('{"content": ""}', '"stop"'),
    )
    assert (answer.first_s, answer.gaps, answer.chunks) == (3.0, [1.0], 0)
    assert answer.end_s() == 5.0, "an end token comes with the reason"


def test_reasoning_that_is_streamed_is_timed():
    usage = '"prompt_tokens": 7, "completion_tokens": 2'
    details = '"completion_tokens_details": {"reasoning_tokens": 1}'
    answer = taken(
        choice('{"reasoning": "hm"}'),
        choice('{"content": "yes"}'),
        f'{{"choices": [], "usage": {{{usage}, {details}}}}}',
    )
    assert answer.usage(9) == (7, 2, 0)


def test_of_the_metrics_only_counts_that_can_be_are_kept():
    told = '"num_draft_tokens": 4, "num_spec_steps": 100000000000000000000, "rate": 1e999'
    lists = '"per_step_drafted": [2, 2], "per_step_accepted": [1e999]'
    answer = taken(f'{{"metrics": {{"speculative_decoding": {{{told}, {lists}}}, "x": 1e999}}}}')
    kept = {"num_draft_tokens": 4, "per_step_drafted": [2, 2]}
    assert answer.metrics == {"speculative_decoding": kept}


def test_a_host_that_takes_no_connection_cannot_be_reached(monkeypatch):
    """Its queue is full: the kernel drops what comes, as a firewall does."""
    monkeypatch.setattr("calibration.live.observe.client.CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        (outcome,) = sent(f"http://127.0.0.1:{full.getsockname()[1]}/v1")
    assert outcome.unreachable and outcome.status == Status.FAILED
    assert outcome.message == "cannot be reached: ConnectTimeout"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://h/v1", "http://h:80/metrics", True),
        ("https://h/v1", "http://h/metrics", False),
        ("http://h:8000/v1", "http://h:9000/metrics", False),
        ("http://h:8000/v1", "http://g:8000/metrics", False),
    ],
)
def test_a_key_stays_with_scheme_host_and_port(one, other, same):
    assert same_origin(one, other) == same


def test_secrets_are_hidden_in_every_form_a_server_may_echo():
    words = secrets_of("http://me:s%65cret@h/v1?token=abc")
    basic = b64encode(b"me:secret").decode()
    said = f"me:s%65cret, secret, {basic}, token=abc"
    assert hidden(said, words) == "***, ***, ***, ***"
