"""Sessions: turns that hold all before them, what they find in the cache, when they are sent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from invariants import check, run
from rows import requests as requests_table

from models.strict_yaml import InputError, load_yaml
from sim.analysis.metrics import Window
from sim.analysis.steady import window, without_warmup
from sim.engine.simulate import simulate
from sim.run_tables import request_columns
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.scenario.workload import Requests, Workload, generate
from sim.setup import prepare
from sim.tables import Columns

POISSON = {"kind": "poisson", "rate_per_s": 1}
CHAT = {"turns": {"kind": "lognormal", "mean": 4, "cv": 1}}


def fixed(value: int) -> dict[str, Any]:
    return {"kind": "fixed", "value": value}


def drawn(*streams: dict[str, Any], requests: int = 20_000, seed: int = 1, **keys: Any) -> Requests:
    spec = {"arrivals": POISSON, "requests": requests, "streams": streams, **keys}
    return generate(Workload.model_validate(spec), seed)


def stream(session: dict[str, Any] | None = CHAT, **keys: Any) -> dict[str, Any]:
    return {"session": session, **keys}


def nodes(requests: Requests, row: int) -> list[tuple[int, int]]:
    """Keys and ends of the chain of one request."""
    keys, ends = requests.prefixes.keys, requests.prefixes.ends
    own = slice(*requests.prefixes.offsets[row : row + 2])
    return list(zip(keys[own].tolist(), ends[own].tolist(), strict=True))


# What is drawn


def test_a_session_by_hand() -> None:
    spec = stream(
        {"turns": fixed(3), "think_s": 7, "think_cv": 0},
        prompt_tokens=fixed(100),
        output_tokens=fixed(10),
    )
    two = drawn(spec, requests=5)
    assert two.turn.tolist() == [0, 1, 2, 0, 1]
    assert two.prompt_tokens.tolist() == [100, 210, 320, 100, 210]
    assert two.think_s.tolist() == [0, 7, 7, 0, 7]
    assert np.isnan(two.arrival_s).tolist() == [False, True, True, False, True]
    # A turn is looked for by the next: under its row's key, up to its last token but one.
    assert two.keeps.tolist() == [1, 2, 0, 4, 0]
    assert [nodes(two, row) for row in range(5)] == [
        [],
        [(1, 109)],
        [(1, 109), (2, 219)],
        [],
        [(4, 109)],
    ]


def test_the_system_prompt_comes_before_the_turns() -> None:
    spec = stream(
        {"turns": fixed(3)},
        prompt_tokens=fixed(100),
        output_tokens=fixed(10),
        prefix={"tokens": 64, "groups": 2, "order": "cycle"},
    )
    two = drawn(spec, requests=6)
    assert nodes(two, 2) == [(1, 64), (3, 109), (4, 219)]
    assert nodes(two, 5) == [(2, 64), (6, 109), (7, 219)]
    assert two.prompt_tokens.tolist() == [100, 210, 320] * 2


def test_a_first_prompt_no_longer_than_the_system_prompt_is_in_no_group() -> None:
    prompts = {"kind": "empirical", "values": [64, 65]}
    requests = drawn(stream(prompt_tokens=prompts, prefix={"tokens": 64, "groups": 1}))
    heads = np.flatnonzero(requests.turn == 0)
    grouped = np.array([bool(nodes(requests, row)) for row in heads])
    np.testing.assert_array_equal(grouped, requests.prompt_tokens[heads] == 65)


MIX = (
    stream(name="chat", share=0.5, prefix={"tokens": 30, "groups": 4}),
    stream(None, name="sql", share=0.3, prefix={"tokens": 20, "groups": 3}),
    stream({"turns": fixed(9), "max_tokens": 4000}, name="agent", share=0.2),
)


def test_every_prompt_is_all_that_was_said_before_and_more() -> None:
    requests = drawn(*MIX)
    (late,) = np.nonzero(requests.turn > 0)
    before = requests.prompt_tokens[late - 1] + requests.output_tokens[late - 1]
    assert (requests.prompt_tokens[late] > before).all()
    assert (requests.turn[late] == requests.turn[late - 1] + 1).all()
    assert (requests.stream[late] == requests.stream[late - 1]).all()
    heads = requests.turn == 0
    assert (np.diff(requests.arrival_s[heads]) >= 0).all()
    assert np.isnan(requests.arrival_s[~heads]).all()


def test_chains_ascend_and_keys_are_never_used_twice() -> None:
    requests = drawn(*MIX, requests=3000)
    ends: dict[int, int] = {}
    owner: dict[int, int] = {}
    for row in range(len(requests)):
        chain = nodes(requests, row)
        reach = [end for _, end in chain]
        assert reach == sorted(set(reach))
        assert not reach or reach[-1] < requests.prompt_tokens[row]
        for key, end in chain:
            assert ends.setdefault(key, end) == end
        if requests.keeps[row]:
            assert owner.setdefault(int(requests.keeps[row]), row) == row
            assert int(requests.keeps[row]) == nodes(requests, row + 1)[-1][0]
    assert set(ends) - set(owner) <= set(range(1, 8))


def test_requests_are_counted_exactly_and_more_of_them_begin_with_the_same() -> None:
    short, long = drawn(*MIX, requests=777), drawn(*MIX, requests=5000)
    assert len(short) == 777
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "turn", "think_s", "stream"):
        np.testing.assert_array_equal(getattr(short, column), getattr(long, column)[:777])


def test_a_duration_holds_all_turns_of_the_sessions_begun() -> None:
    requests = drawn(stream({"turns": fixed(5)}), requests=None, duration_s=500)
    heads = requests.turn == 0
    assert (requests.arrival_s[heads] < 500).all()
    assert len(requests) == 5 * heads.sum()
    assert abs(heads.sum() - 500) < 4 * 500**0.5


def test_turns_and_pauses_are_those_asked() -> None:
    requests = drawn(stream({**CHAT, "think_s": 8, "think_cv": 0.5}), requests=200_000)
    late = requests.turn > 0
    turns = np.diff(np.append(np.flatnonzero(~late), len(requests)))[:-1]
    assert turns.mean() == pytest.approx(4, rel=0.03)
    think_s = requests.think_s[late]
    assert think_s.mean() == pytest.approx(8, rel=0.01)
    assert think_s.std() == pytest.approx(4, rel=0.01)
    assert not requests.think_s[~late].any()


def test_shares_count_what_arrives() -> None:
    requests = drawn(*MIX, requests=60_000)
    heads = requests.turn == 0
    shares = np.bincount(requests.stream[heads]) / heads.sum()
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.01)
    assert (requests.turn[requests.stream == 1] == 0).all()


def test_no_later_turn_passes_the_tokens_a_session_may_hold() -> None:
    free = drawn(stream({"turns": fixed(9)}))
    capped = drawn(stream({"turns": fixed(9), "max_tokens": 2000}))
    late = capped.turn > 0
    assert (capped.prompt_tokens + capped.output_tokens)[late].max() <= 2000
    assert (free.prompt_tokens + free.output_tokens).max() > 2000
    # Of each session the longest beginning that fits is left.
    fits = (free.turn == 0) | (free.prompt_tokens + free.output_tokens <= 2000)
    lengths = np.diff(np.append(np.flatnonzero(capped.turn == 0), len(capped)))[:1000]
    np.testing.assert_array_equal(lengths, fits.reshape(-1)[:9000].reshape(-1, 9).sum(axis=1))


def test_longer_sessions_leave_the_turns_before_as_they_were() -> None:
    three, six = (drawn(stream({"turns": fixed(n)}), requests=1000 * n) for n in (3, 6))
    for column in ("prompt_tokens", "output_tokens", "think_s", "arrival_s"):
        long = getattr(six, column).reshape(1000, 6)[:, :3]
        np.testing.assert_array_equal(getattr(three, column).reshape(1000, 3), long)


def test_a_stream_without_sessions_is_as_it_was_beside_one_with() -> None:
    plain = drawn(*(stream(None, name=s["name"], share=s["share"]) for s in MIX))
    mixed = drawn(*MIX)
    for row, stream_ in ((plain, 1), (mixed, 1)):
        assert row.prompt_tokens[row.stream == stream_].size > 1000
    sql = [requests.output_tokens[requests.stream == 1][:1000] for requests in (plain, mixed)]
    np.testing.assert_array_equal(*sql)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"session": {"turns": fixed(2000)}}, "session.turns: a session has at most 1000 turns"),
        ({"session": {"turns": fixed(0)}}, "session.turns.value: must be greater than or equal"),
        (
            {"session": {"max_tokens": 100}},
            "session.max_tokens: a first turn has 750 tokens on average, got 100",
        ),
        (
            {"session": {}, "prefix": {"tokens": "all", "groups": 3}},
            "prefix.tokens: must be a number: turns of a session differ, got 'all'",
        ),
        (
            {"prefix": {"tokens": 900, "groups": 3}, "prompt_tokens": fixed(500)},
            "prefix.tokens: no prompt holds it: the longest are 500 tokens, got 900",
        ),
        ({"session": {"think_cv": 0.005}}, "session.think_cv: must be 0 or at least 0.01"),
        ({"session": {"turns": {**CHAT["turns"], "min": 8}}}, "turns.min: is above the mean"),
    ],
)
def test_sessions_nobody_can_mean_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_scenario(load_yaml(scenario(streams=[changes]), "scenario.yaml"))
    assert message in str(caught.value)


def test_users_need_sessions_to_work_through() -> None:
    loop = {"kind": "closed_loop", "users": 100}
    with pytest.raises(InputError, match=r"the 100 users x 3\.5 turns of a session, got 300"):
        parse_scenario(load_yaml(scenario(arrivals=loop, requests=300), "scenario.yaml"))


# What happens to them


def scenario(
    arrivals: dict[str, Any] = POISSON,
    requests: int = 400,
    strategy: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
    session: dict[str, Any] | None = None,
    streams: list[dict[str, Any]] | None = None,
) -> str:
    lengths = {
        "prompt_tokens": {"kind": "lognormal", "mean": 150, "cv": 0.8},
        "output_tokens": {"kind": "lognormal", "mean": 200, "cv": 0.7},
    }
    return json.dumps(
        {
            "hardware": {"gpu": "h100_sxm"},
            "model": {"transformer": "llama-3.1-8b"},
            "engine": engine or {},
            "workload": {
                "arrivals": arrivals,
                "requests": requests,
                "streams": streams or [{**lengths, "session": session or {"think_s": 4}}],
            },
            "strategies": [strategy or {"kind": "eagle3", "hypothetical": True}],
            "run": {"band": False},
        }
    )


def workload_of(text: str) -> Requests:
    (point,) = parse_scenario(load_yaml(text, "scenario.yaml")).points
    return generate(point.scenario.workload, point.scenario.run.seed)


def whole_context(requests: Requests, drops: int) -> np.ndarray:
    """Tokens of full blocks a session computed before each turn, less a block where one drops."""
    computed = np.append(0, requests.prompt_tokens + requests.output_tokens - 1)[:-1]
    return np.where(requests.turn > 0, np.maximum(computed // 16 - drops, 0) * 16, 0)


def test_a_turn_finds_all_its_session_computed() -> None:
    text = scenario()
    requests = workload_of(text)
    plain, eagle = run(text)
    for ran, drops in ((plain, 0), (eagle, 1)):
        check(ran)
        np.testing.assert_array_equal(ran.requests["cached_tokens"], whole_context(requests, drops))
        np.testing.assert_array_equal(ran.requests["id"] - ran.requests["session"], requests.turn)


TIGHT = {"gpu_memory_utilization": 0.27, "max_num_seqs": 64}
CROWDED = {"kind": "poisson", "rate_per_s": 4}


@pytest.mark.parametrize("engine", ["vllm_v0", "vllm_v0_swap", "vllm_0.15", "sglang_0.5"])
def test_sessions_keep_the_invariants_when_memory_is_short(engine: str) -> None:
    mixed = [dict(s) for s in MIX]
    for text in (
        scenario(CROWDED, 500, engine={**TIGHT, "name": engine}),
        scenario(CROWDED, 500, engine={**TIGHT, "name": engine}, streams=mixed),
        scenario({"kind": "closed_loop", "users": 30}, 500, engine={**TIGHT, "name": engine}),
    ):
        for ran in run(text):
            check(ran)
            assert ran.row["finished"] > 450


def served(text: str, prefix_cache: bool) -> tuple[Requests, Columns]:
    (point,) = parse_scenario(load_yaml(text, "scenario.yaml")).points
    requests = workload_of(text)
    setup = prepare(build(point.scenario), point.scenario.strategies[0], requests.domain_names)
    plan = setup.plan()
    plan = replace(plan, rules=replace(plan.rules, prefix_cache=prefix_cache))
    return requests, request_columns(simulate(plan, requests, 1), requests)


def found(think_s: float, memory: float) -> float:
    """Part of what sessions had computed that their next turns still found."""
    engine = {"gpu_memory_utilization": memory, "max_num_seqs": 64}
    text = scenario(CROWDED, 800, engine=engine, session={"think_s": think_s})
    requests, table = served(text, prefix_cache=True)
    return float(table["cached_tokens"].sum() / whole_context(requests, 0).sum())


def test_less_is_found_when_memory_is_short_and_when_users_think_longer() -> None:
    assert found(1, memory=0.9) == 1
    assert found(1, memory=0.25) < 0.6
    assert found(1, memory=0.27) > 0.9
    assert found(60, memory=0.27) < 0.75


def test_late_turns_start_sooner_than_without_the_cache() -> None:
    session = {"turns": fixed(8), "think_s": 2}
    prompts = [{"prompt_tokens": fixed(800), "output_tokens": fixed(100), "session": session}]
    text = scenario(CROWDED, 800, streams=prompts)
    waits = {}
    for cache in (False, True):
        requests, table = served(text, cache)
        ttft = table["first_token_s"] - table["arrival_s"]
        waits[cache] = np.array([ttft[requests.turn == turn].mean() for turn in range(8)])
    # Without it a prompt of 7 x 900 + 800 tokens is computed for the last turn, with it 800.
    assert waits[False][7] > 2 * waits[True][7]
    assert waits[False][7] > 1.5 * waits[False][0]
    assert waits[True][7] < 1.3 * waits[True][0]


def test_a_turn_is_sent_when_its_user_has_read_the_answer() -> None:
    requests, table = served(scenario(), prefix_cache=True)
    (late,) = np.nonzero(requests.turn > 0)
    sent = table["finish_s"][late - 1] + requests.think_s[late]
    np.testing.assert_allclose(table["arrival_s"][late], sent, rtol=1e-12)


def test_users_of_a_closed_loop_work_through_one_session_after_another() -> None:
    loop = {"kind": "closed_loop", "users": 12, "think_s": 3, "think_cv": 1}
    requests, table = served(scenario(loop, 900), prefix_cache=True)
    heads = np.flatnonzero(requests.turn == 0)
    ends = np.append(heads[1:], len(requests)) - 1
    began, ended = table["arrival_s"][heads], table["finish_s"][ends]
    at = np.sort(np.concatenate([began, ended]))
    going = np.searchsorted(np.sort(began), at, "right") - np.searchsorted(np.sort(ended), at)
    assert going.max() <= 12
    # Every session but the first twelve begins a pause after another ended.
    due = np.sort(ended)[: len(heads) - 12] + requests.think_s[heads[12:]]
    np.testing.assert_allclose(began[12:], np.sort(due), rtol=1e-12)


def rows(text: str) -> list[dict[str, Any]]:
    return [ran.row for ran in run(text)]


def test_rates_count_all_turns_of_the_sessions_begun() -> None:
    session = {"turns": fixed(4), "think_s": 5}
    text = scenario({"kind": "poisson", "rate_per_s": 2}, 4000, session=session)
    for row in rows(text):
        assert row["offered_req_per_s"] == pytest.approx(8, rel=0.06)
        assert row["req_per_s"] == pytest.approx(8, rel=0.06)
        assert not row["saturated"]
        assert not row["short_run"]


def test_the_time_until_sessions_are_under_way_is_warm_up() -> None:
    # A session a second; its second turn comes 50 s after the first, and takes 3 s.
    began = np.repeat(np.arange(500.0), 2)
    turn = np.tile([0, 1], 500)
    table = requests_table(1000, session=np.arange(1000) - turn, arrival_s=began + 50 * turn)
    for name in ("schedule_s", "first_token_s", "finish_s"):
        table[name] = table["arrival_s"] + {"schedule_s": 0, "first_token_s": 1}.get(name, 3)
    kept = without_warmup(table)
    assert kept["arrival_s"].min() == 53
    assert window(kept) == Window(53, 499)
    assert len(without_warmup(requests_table(1000))["id"]) == 1000


def test_a_run_that_ends_as_its_first_sessions_do_is_short() -> None:
    session = {"turns": fixed(4), "think_s": 200, "think_cv": 0}
    text = scenario({"kind": "poisson", "rate_per_s": 2}, 600, session=session)
    assert all(row["short_run"] and not row["saturated"] for row in rows(text))


def test_overload_shows_though_late_turns_trail_off() -> None:
    session = {"turns": fixed(4), "think_s": 2}
    text = scenario({"kind": "poisson", "rate_per_s": 20}, 4000, session=session)
    plain, _ = rows(text)
    assert plain["saturated"]
    assert plain["offered_req_per_s"] == pytest.approx(80, rel=0.08)
    assert plain["served_req_per_s"] < 0.75 * plain["offered_req_per_s"]
