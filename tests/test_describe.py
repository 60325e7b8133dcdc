"""The line that says what is sent: every kind of traffic in words."""

from __future__ import annotations

from typing import Any

import pytest

from sim.analysis import describe
from sim.scenario.dump import plain
from sim.scenario.workload import Workload

LENGTHS = {
    "prompt_tokens": {"kind": "fixed", "value": 500},
    "output_tokens": {"kind": "lognormal", "mean": 250, "cv": 1},
}
CHAT = {"turns": {"kind": "lognormal", "mean": 4, "cv": 1}}
POISSON = {"kind": "poisson", "rate_per_s": 8}


def line(arrivals: dict[str, Any] = POISSON, streams: Any = None, **keys: Any) -> str:
    spec = {"arrivals": arrivals, "streams": streams or [LENGTHS], **keys}
    return describe.load({"workload": plain(Workload.model_validate(spec))})


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        (POISSON, "poisson arrivals at 8 req/s"),
        ({"kind": "gamma", "rate_per_s": 8, "cv": 3}, "gamma arrivals (cv 3.00) at 8 req/s"),
        (
            {"kind": "diurnal", "mean_rate_per_s": 6.9, "peak_factor": 2},
            "diurnal arrivals, mean 6.9 req/s, peak 2x at 14:00, from 00:00",
        ),
        (
            {
                "kind": "diurnal",
                "mean_rate_per_s": 6.9,
                "peak_factor": 2.5,
                "peak_hour": 9.5,
                "start_hour": 8,
                "period_s": 3600,
                "cv": 2,
            },
            "diurnal arrivals (cv 2.00), mean 6.9 req/s, peak 2.5x at 09:30, from 08:00, "
            "a day of 60 min",
        ),
        (
            {"kind": "on_off", "rate_per_s": 8, "on_s": 20, "off_s": 60},
            "bursts of ~20 s, lulls of ~60 s, mean 8 req/s",
        ),
        (
            {"kind": "on_off", "rate_per_s": 8, "on_s": 20, "off_s": 60, "off_share": 0.25},
            "bursts of ~20 s, lulls of ~60 s at 25 % of that rate, mean 8 req/s",
        ),
        (
            {"kind": "ramp", "from_per_s": 0, "to_per_s": 8, "over_s": 600},
            "a ramp from 0 to 8 req/s over 10 min",
        ),
        ({"kind": "closed_loop", "users": 32}, "32 concurrent users"),
        ({"kind": "closed_loop", "users": 2, "think_s": 9}, "2 concurrent users thinking 9 s"),
        (
            {"kind": "closed_loop", "users": 2, "think_s": 9, "think_cv": 1},
            "2 concurrent users thinking ~9 s",
        ),
    ],
)
def test_arrivals_in_words(arrivals: dict[str, Any], expected: str) -> None:
    assert line(arrivals) == f"{expected}, 1000 requests: 500 in / ~250 out"


def test_shares_that_change_are_told_first_and_last() -> None:
    curve = {"at": [[0, 0.8], [300, 1.0], [600, 0.3]]}
    streams = [{**LENGTHS, "name": "chat", "share": curve}]
    streams.append({**LENGTHS, "name": "sql", "share": 0.2})
    assert ": 80 % to 60 % chat" in line(streams=streams)
    assert "; 20 % to 40 % sql" in line(streams=streams)


def test_a_duration_takes_the_place_of_a_number() -> None:
    assert line(duration_s=86400) == ("poisson arrivals at 8 req/s, for 24 h: 500 in / ~250 out")
    assert ", for 90 s:" in line(duration_s=90)
    assert ", for 7 days:" in line(duration_s=7 * 86400)


def test_sessions_in_words() -> None:
    chat = {**LENGTHS, "session": CHAT}
    assert line(streams=[chat], requests=300) == (
        "poisson arrivals at 8 sessions/s, 300 requests: 500 in / ~250 out new, "
        "sessions of ~4 turns, thinking ~10 s; answers delay later turns"
    )
    sql = {**LENGTHS, "share": 0.25, "name": "sql"}
    assert line(streams=[{**chat, "share": 0.75, "name": "chat"}, sql]) == (
        "poisson arrivals at 8 req or sessions/s, 1000 requests: 75 % chat 500 in / ~250 out new, "
        "sessions of ~4 turns, thinking ~10 s; 25 % sql 500 in / ~250 out; "
        "answers delay later turns"
    )


@pytest.mark.parametrize(
    ("transformer", "name"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("/models/Llama-3.1-8B", "Llama-3.1-8B"),
        ("../my model", "my model"),
        ("/models/Llama-3.1-8B/config.json", "Llama-3.1-8B"),
    ],
)
def test_a_model_of_ones_own_is_called_as_its_folder(transformer: str, name: str) -> None:
    model = {"transformer": transformer, "weights": "bf16", "kv": "bf16", "tp": 1}
    scenario = {"model": model, "hardware": {"gpu": "l40s"}, "engine": {"name": "vllm_0.15"}}
    assert describe.deployment(scenario).startswith(f"{name} (bf16 weights")
