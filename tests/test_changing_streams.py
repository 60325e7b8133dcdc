"""Streams whose share and domain change over time: what is drawn is what was asked for."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim import experiment
from sim.scenario.load import load_scenario
from sim.scenario.workload import Requests, Workload, generate

N = 20_000
RATE = 10.0
SPAN_S = N / RATE
LOOP = {"kind": "closed_loop", "users": 8}
CHAT = {"name": "chat", "share": 0.7, "domain": "chat"}
SQL = {"name": "sql", "share": 0.3, "domain": "sql"}
SESSION = {"turns": {"kind": "fixed", "value": 3}}
FIELDS = ("arrival_s", "stream", "prompt_tokens", "output_tokens", "domain", "turn", "think_s")


def workload(*streams: dict[str, Any], **keys: Any) -> Workload:
    poisson = {"kind": "constant", "rate_per_s": RATE}
    return Workload.model_validate(
        {"arrivals": poisson, "requests": N, "streams": list(streams), **keys}
    )


def drawn(*streams: dict[str, Any], seed: int = 1, replication: int = 0, **keys: Any) -> Requests:
    return generate(workload(*streams, **keys), seed, replication)


def of(domain: Any, **keys: Any) -> tuple[Requests, np.ndarray]:
    """Requests of one stream of that domain, and the name of each one's domain."""
    made = drawn({"domain": domain}, **keys)
    return made, np.array(made.domain_names)[made.domain]


def within_chance(found: float, chance: float, n: int) -> bool:
    """Within four standard errors of a binomial share."""
    return abs(found - chance) <= 4 * (chance * (1 - chance) / n) ** 0.5


# Nothing changes for streams that do not


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("two_slo_classes", "8e0e799545b4dd1e"),
        ("multi_turn_chat", "f23f1fd41a6881b0"),
        ("acceptance_by_domain", "e09b9494741e02e8"),
        ("azure_conv_2x4", "91f536b0f60be4a2"),
        ("draft_k", "18e05d594ff81ff5"),
    ],
)
def test_constant_streams_are_drawn_as_before_there_were_others(name: str, digest: str) -> None:
    path = Path(__file__).parent.parent / "examples" / f"{name}.yaml"
    scenario = load_scenario(path).points[0].scenario
    made = generate(scenario.workload, scenario.run.seed, 1)
    found = hashlib.sha256()
    for field in (*FIELDS[:5], "keeps", *FIELDS[5:]):
        array = getattr(made, field)
        found.update(str(array.dtype).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    for array in made.prefixes:
        found.update(np.ascontiguousarray(array).tobytes())
    assert found.hexdigest()[:16] == digest


# Domains


def test_a_step_changes_every_request_from_its_place_on() -> None:
    made, name = of({"kind": "step", "before": "a", "after": "b", "at": 500})
    assert (name[made.arrival_s < 500] == "a").all()
    assert (name[made.arrival_s >= 500] == "b").all()
    assert Counter(name) == {"a": 5000, "b": N - 5000}


def test_places_by_share_count_requests_in_any_loop() -> None:
    step = {"kind": "step", "before": "a", "after": "b", "at": 0.25, "unit": "share"}
    for arrivals in (LOOP, {"kind": "ramp", "from_per_s": 1, "to_per_s": 50, "over_s": 60}):
        _, name = of(step, arrivals=arrivals)
        assert (name[: N // 4] == "a").all()
        assert (name[N // 4 :] == "b").all()


def test_a_drift_takes_over_along_a_line() -> None:
    made, name = of({"kind": "linear", "before": "a", "after": "b", "start": 400, "end": 1600})
    assert set(name[made.arrival_s < 400]) == {"a"}
    assert set(name[made.arrival_s >= 1600]) == {"b"}
    for quarter in range(4):
        start = 400 + 300 * quarter
        part = name[(made.arrival_s >= start) & (made.arrival_s < start + 300)]
        assert within_chance((part == "b").mean(), (quarter + 0.5) / 4, len(part))


def stays(names: np.ndarray) -> list[int]:
    """Requests in a row of one domain, the last stay left out."""
    return [len(list(group)) for _, group in groupby(names)][:-1]


def test_regimes_last_as_long_as_their_dwell() -> None:
    regimes = {"kind": "regimes", "domains": ["a", "b"], "dwell": [6, 2]}
    _, name = of(regimes)
    assert name[0] == "a"
    assert within_chance((name == "a").mean(), 0.75, int(SPAN_S / 8 / 2))
    # Exponential stays of 6 s and 2 s; those without an arrival in them join their neighbours.
    a, b = np.array(stays(name)[::2]) / RATE, np.array(stays(name)[1::2]) / RATE
    assert a.mean() == pytest.approx(6.0, rel=4 / len(a) ** 0.5 + 0.1)
    assert b.mean() == pytest.approx(2.0, rel=4 / len(b) ** 0.5 + 0.1)
    assert a.std() / a.mean() == pytest.approx(1, abs=0.2)


def test_constant_stays_go_round_like_a_clock() -> None:
    regimes = {"kind": "regimes", "domains": ["a", "b", "c"], "dwell": 2, "dwell_cv": 0}
    _, name = of(regimes)
    assert set(stays(name)) == {20}
    assert "".join(name[10:200:20]) == "abcabcabca"


def test_a_listed_trace_is_replayed_exactly(tmp_path: Path) -> None:
    path = tmp_path / "domains.csv"
    path.write_text("at,domain\n0,a\n100,b\n100.5,a\n1900,c\n", "utf-8")
    made, name = of({"kind": "trace", "file": str(path)})
    assert made.domain_names == ("a", "b", "c")
    expected = np.select(
        [made.arrival_s < 100, made.arrival_s < 100.5, made.arrival_s < 1900], ["a", "b", "a"], "c"
    )
    assert (name == expected).all()
    path.write_text("at,domain\n0,x\n0.5,y\n", "utf-8")
    _, name = of({"kind": "trace", "file": str(path), "unit": "share"})
    assert (name == np.repeat(["x", "y"], N // 2)).all()


def test_turns_of_a_session_keep_the_domain_of_the_first() -> None:
    drift = {"kind": "linear", "before": "a", "after": "b", "start": 0, "end": 1, "unit": "share"}
    made = drawn({"domain": drift, "session": SESSION}, requests=3000)
    by_session = made.domain.reshape(-1, 3)
    assert (by_session == by_session[:, :1]).all()
    assert 0.4 < made.domain.mean() < 0.6


# Shares


def test_a_share_moves_along_its_line() -> None:
    made = drawn({**CHAT, "share": {"at": [[0, 1], [SPAN_S, 0]]}}, {**SQL, "share": 1.0})
    # Weights 1 - x and 1: of both together (1 - x) / (2 - x).
    for quarter in range(4):
        part = made.stream[quarter * N // 4 : (quarter + 1) * N // 4]
        x = (np.arange(1000) + 0.5) / 4000 + quarter / 4
        assert within_chance((part == 0).mean(), float(((1 - x) / (2 - x)).mean()), N // 4)


def test_a_place_twice_is_a_step_and_a_share_may_be_none() -> None:
    pulse = {"at": [[0.4, 0], [0.4, 1], [0.6, 1], [0.6, 0]], "unit": "share"}
    rest = {"at": [[0.4, 1], [0.4, 0], [0.6, 0], [0.6, 1]], "unit": "share"}
    made = drawn({**CHAT, "share": rest}, {**SQL, "share": pulse}, arrivals=LOOP)
    assert (made.stream == np.repeat([0, 1, 0], [8000, 4000, 8000])).all()


def test_shares_count_sessions_by_their_start() -> None:
    step = {"at": [[0.5, 1], [0.5, 0]], "unit": "share"}
    made = drawn(
        {**CHAT, "share": step, "session": SESSION},
        {**SQL, "share": 1e-9, "session": SESSION},
        requests=3000,
    )
    heads = made.stream[made.turn == 0]
    assert (heads == np.repeat([0, 1], 500)).all()


def test_equal_curves_draw_the_streams_constant_shares_do() -> None:
    flat = [{"at": [[0, share], [1, share]]} for share in (0.7, 0.3)]
    one = drawn(CHAT, SQL)
    other = drawn({**CHAT, "share": flat[0]}, {**SQL, "share": flat[1]})
    np.testing.assert_array_equal(one.stream, other.stream)
    np.testing.assert_array_equal(one.prompt_tokens, other.prompt_tokens)


# Draws of their own

CHANGING = (
    {**CHAT, "domain": {"kind": "regimes", "domains": ["a", "b"], "dwell": 20}},
    {
        **SQL,
        "share": {"at": [[0, 0.2], [900, 0.8]]},
        "domain": {"kind": "linear", "before": "c", "after": "d", "start": 0, "end": 1500},
    },
)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    one, again = drawn(*CHANGING), drawn(*CHANGING)
    for field in FIELDS:
        assert getattr(one, field).tobytes() == getattr(again, field).tobytes()
    for other in (drawn(*CHANGING, seed=2), drawn(*CHANGING, replication=1)):
        assert not np.array_equal(one.domain, other.domain)


def test_more_requests_begin_with_the_same_ones() -> None:
    short, long = drawn(*CHANGING, requests=3000), drawn(*CHANGING)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(short, field), getattr(long, field)[:3000])


def test_a_domain_that_changes_moves_nothing_else() -> None:
    step = {"kind": "regimes", "domains": ["chat", "sql"], "dwell": 9}
    one, other = drawn(CHAT, SQL), drawn({**CHAT, "domain": step}, SQL)
    for field in FIELDS:
        assert np.array_equal(getattr(one, field), getattr(other, field)) == (field != "domain")


# In a run

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 12}
  requests: 120
  streams:
    - name: chat
      share: 0.7
      domain: {kind: trace, file: shifts.csv}
    - name: sql
      share: {at: [[0, 0.1], [10, 0.9]]}
      domain: {kind: step, before: sql, after: rare, at: 5}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {alpha: 0.7, by_domain: {rare: {alpha: 0.01}}}}
run: {band: false}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "shifts.csv").write_text("at,domain\n0,chat\n4,code\n", "utf-8")
    path = tmp_path / "x.yaml"
    path.write_text(TEXT, "utf-8")
    return path


def test_strategies_meet_the_same_requests_and_rows_tell_domains_apart(scenario: Path) -> None:
    result = experiment.run(load_scenario(scenario))
    plain, eagle = (run.columns for run in result.requests)
    for column in ("arrival_s", "stream", "domain", "output_tokens"):
        np.testing.assert_array_equal(plain[column], eagle[column])
    parts = {part["domain"]: part for part in result.document["rows"][1]["domains"]}
    assert list(parts) == ["chat", "code", "sql", "rare"]
    assert sum(part["requests"] for part in parts.values()) == 120
    assert parts["rare"]["tau"] < 1.1 < 2 < parts["sql"]["tau"]
    assert parts["rare"]["acceptance_rate"] < 0.05
    chat, sql = result.document["rows"][1]["streams"]
    assert chat["tau"] > sql["tau"] > parts["rare"]["tau"]


def test_traffic_that_changes_has_no_steady_state() -> None:
    assert workload(CHAT, SQL).stationary
    for kind in CHANGING:
        assert not workload(kind, {**SQL, "name": "other", "share": 0.3}).stationary


def test_nothing_is_cut_as_warm_up_where_streams_change(scenario: Path) -> None:
    changing = TEXT.replace("requests: 120", "requests: 1000").replace("12}", "40}", 1)
    scenario.write_text(changing, "utf-8")
    constant = ("workload.streams[1].share=0.3", "workload.streams[0].domain=chat")
    constant += ("workload.streams[1].domain=rare",)
    (plain, _) = experiment.run(load_scenario(scenario)).document["rows"]
    (settled, _) = experiment.run(load_scenario(scenario, constant)).document["rows"]
    assert plain["measured"] == 1000 > settled["measured"]
