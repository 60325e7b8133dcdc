"""Replay: the requests of a trace, its window, its scales, its streams."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.schema import ModelError
from sim.scenario.workload_checks import check_workload
from tests.traces import BURSTGPT_3, PLAIN, numbered, replay, workload

N = 5000


@pytest.fixture
def write(tmp_path: Path) -> Any:
    return numbered(tmp_path)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Bursty arrivals, every prompt length once, so that requests can be told apart."""
    times = np.round(np.cumsum(np.random.default_rng(3).pareto(1.5, N)), 3)
    rows = (f"{time},{10 + row},{1 + row % 50}\n" for row, time in enumerate(times - times[0]))
    return numbered(tmp_path_factory.mktemp("replay"))(
        "arrival_s,prompt_tokens,output_tokens\n" + "".join(rows)
    )


# As it is


def test_a_trace_is_replayed_as_it_is(long: str) -> None:
    made = replay(long)
    assert made.prompt_tokens.tolist() == list(range(10, N + 10))
    assert made.arrival_s[0] == 0
    assert not made.turn.any()
    assert made.users is None
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        again = replay(long, seed=7, replication=3)
        np.testing.assert_array_equal(getattr(made, name), getattr(again, name))


def test_requests_are_at_most_as_many_as_asked_for(long: str) -> None:
    np.testing.assert_array_equal(replay(long, requests=70).prompt_tokens, np.arange(10, 80))
    assert len(replay(long, requests=10 * N)) == N


def test_the_window_keeps_what_lies_in_it_and_starts_at_its_start(long: str) -> None:
    whole = replay(long).arrival_s
    start, end = whole[100] - 1e-4, whole[900]
    part = replay(long, from_s=start, to_s=end)
    inside = (whole >= start) & (whole < end)
    np.testing.assert_array_equal(part.prompt_tokens, 10 + np.nonzero(inside)[0])
    np.testing.assert_allclose(part.arrival_s, whole[inside] - start, atol=1e-9)
    assert part.arrival_s[0] == pytest.approx(1e-4)


def test_time_scale_stretches_every_gap(long: str) -> None:
    slow = replay(long, time_scale=2, from_s=5)
    np.testing.assert_allclose(slow.arrival_s, 2 * replay(long, from_s=5).arrival_s)


def test_domains_change_in_the_seconds_of_the_replay(long: str) -> None:
    def domains(**how: Any) -> np.ndarray:
        step = {"kind": "step", "before": "a", "after": "b", "at": 40}
        return replay(long, streams=[{"domain": step}], **how).domain

    np.testing.assert_array_equal(domains(), replay(long).arrival_s >= 40)
    later = replay(long, from_s=10, time_scale=2).arrival_s
    np.testing.assert_array_equal(domains(from_s=10, time_scale=2), later >= 40)
    shares = {"kind": "step", "before": "a", "after": "b", "at": 0.5, "unit": "share"}
    halves = replay(long, streams=[{"domain": shares}], requests=100).domain
    np.testing.assert_array_equal(halves, np.repeat([0, 1], 50))


def test_a_conversation_keeps_the_domain_it_began_with(write: Any) -> None:
    rows = "".join(
        f"{time},{60 + 30 * time},5,{who}\n" for time in range(20) for who in ("a", "b", "")
    )
    path = write(f"arrival_s,prompt_tokens,output_tokens,session\n{rows}")
    step = {"kind": "step", "before": "a", "after": "b", "at": 10}
    made = replay(path, streams=[{"domain": step}])
    by_time = made.domain.reshape(20, 3)
    assert not by_time[:, :2].any()
    np.testing.assert_array_equal(by_time[:, 2], np.arange(20) >= 10)


# Rate


@pytest.mark.parametrize("scale", [0.1, 0.5, 0.9, 1.5, 2.0, 3.25])
def test_rate_scale_multiplies_the_requests_over_the_same_span(long: str, scale: float) -> None:
    whole, made = replay(long), replay(long, rate_scale=scale)
    assert len(made) == pytest.approx(scale * N, abs=4 * N**0.5 / 2)
    assert made.arrival_s[-1] <= whole.arrival_s[-1]
    times = np.bincount(made.prompt_tokens, minlength=N + 10)[10:]
    assert set(times) <= {int(scale), int(np.ceil(scale))}


def test_a_smaller_sample_is_part_of_a_larger_one(long: str) -> None:
    pairs = {
        scale: set(zip(*requests, strict=True))
        for scale in (0.01, 0.3, 0.5, 1, 1.2, 1.7, 2, 2.5)
        for made in [replay(long, rate_scale=scale)]
        for requests in [(made.prompt_tokens.tolist(), made.arrival_s.tolist())]
    }
    for smaller, larger in pairwise(pairs.values()):
        assert smaller < larger


def test_a_sample_stays_the_same_in_every_window(long: str) -> None:
    whole = set(replay(long, rate_scale=0.4).prompt_tokens)
    part = set(replay(long, rate_scale=0.4, from_s=100, to_s=1000).prompt_tokens)
    inside = set(replay(long, from_s=100, to_s=1000).prompt_tokens)
    assert part == whole & inside


def test_copies_come_before_the_next_request(long: str) -> None:
    whole, made = replay(long).arrival_s, replay(long, rate_scale=3)
    row = made.prompt_tokens - 10
    gap = np.diff(whole, append=whole[-1])[row]
    late = made.arrival_s - whole[row]
    assert (late >= 0).all()
    assert (late <= gap).all()
    assert (late > 0).sum() == pytest.approx(2 * N, abs=0.1 * N)


def test_replications_differ_only_in_what_is_drawn(long: str) -> None:
    half = [replay(long, rate_scale=0.5, replication=r).prompt_tokens for r in (0, 1, 0)]
    np.testing.assert_array_equal(half[0], half[2])
    assert set(half[0]) != set(half[1])


def test_even_the_smallest_sample_has_a_request(write: Any) -> None:
    made = replay(write(PLAIN), rate_scale=1e-9)
    assert len(made) >= 1


# Streams


BY_MODEL = [{"name": "GPT-4", "domain": "hard"}, {"name": "ChatGPT"}]


def test_a_column_names_the_streams(write: Any) -> None:
    made = replay(write(BURSTGPT_3), streams=BY_MODEL, stream_from="model")
    assert [made.stream_names[index] for index in made.stream] == ["GPT-4", "ChatGPT"]
    assert [made.domain_names[index] for index in made.domain] == ["hard", "general"]


def test_without_a_column_streams_come_by_share_and_stay_in_every_sample(long: str) -> None:
    two = [{"name": "a", "share": 0.3, "domain": "x"}, {"name": "b", "share": 0.7}]
    whole, half = replay(long, streams=two), replay(long, streams=two, rate_scale=0.5)
    assert (whole.stream == 0).mean() == pytest.approx(0.3, abs=0.03)
    np.testing.assert_array_equal(whole.stream[half.prompt_tokens - 10], half.stream)
    np.testing.assert_array_equal(whole.domain, whole.stream)


def refusal(path: str, **keys: Any) -> tuple[str, str]:
    with pytest.raises(ModelError) as caught:
        check_workload(workload(path, **keys))
    return caught.value.key, str(caught.value)


@pytest.mark.parametrize(
    ("keys", "at", "message"),
    [
        (
            {"streams": [{"output_tokens": {"kind": "fixed", "value": 3}}]},
            "workload.streams[0].output_tokens",
            "comes from the trace; leave this key out",
        ),
        (
            {"streams": [{"prefix": {"tokens": 3, "groups": 3}}]},
            "workload.streams[0].prefix",
            "comes from the trace; leave this key out",
        ),
        (
            {"streams": BY_MODEL[:1], "stream_from": "model"},
            "workload.streams",
            "one must be called 'ChatGPT': the trace has the model 'GPT-4', 'ChatGPT'",
        ),
        (
            {"streams": [*BY_MODEL, {"name": "GPT-5"}], "stream_from": "model"},
            "workload.streams[2].name",
            "no request has this model, there is 'GPT-4', 'ChatGPT'; got 'GPT-5'",
        ),
        (
            {"streams": [BY_MODEL[0], {"name": "ChatGPT", "share": 0.5}], "stream_from": "model"},
            "workload.streams[1].share",
            "comes from the trace with stream_from: model; leave it out",
        ),
        (
            {"stream_from": "stream"},
            "workload.arrivals.stream_from",
            "this burstgpt trace has no such column, got 'stream'",
        ),
        (
            {"from_s": 60},
            "workload.arrivals.from_s",
            "leaves no request up to to_s: the last of all comes 51 s after the first, got 60",
        ),
    ],
)
def test_what_means_nothing_beside_a_trace_is_refused(
    write: Any, keys: dict[str, Any], at: str, message: str
) -> None:
    assert refusal(write(BURSTGPT_3), **keys) == (at, message)


def test_every_request_needs_a_name_where_a_column_names_the_streams(write: Any) -> None:
    path = write("arrival_s,prompt_tokens,output_tokens,stream\n0,9,1,chat\n1,9,1,\n")
    assert refusal(path, streams=[{"name": "chat"}], stream_from="stream") == (
        "workload.arrivals.stream_from",
        "must name a stream for every request, some have no stream",
    )


def test_too_many_copies_are_refused(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.scenario.trace.replay.MAX_REQUESTS", 9 * N)
    at, message = refusal(long, rate_scale=10)
    assert at == "workload.arrivals.rate_scale"
    assert message == "makes more than 45000 of 5000 requests, got 10"
