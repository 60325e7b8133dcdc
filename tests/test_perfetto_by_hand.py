"""What a trace shows of steps and requests made up by hand: pauses, roundings, loose ends."""

from __future__ import annotations

import numpy as np
import pytest
from perfetto_runs import asynchronous, nanoseconds
from rows import requests

from sim.analysis.metrics import Window
from sim.analysis.perfetto import RunTrace, what
from sim.tables import Columns, Status


@pytest.mark.parametrize(
    ("prefill", "decode", "name"),
    [
        (0, 34, "decode 34"),
        (2048, 0, "prefill 2048"),
        (2048, 34, "prefill 2048 + decode 34"),
        (0, 0, "swap in"),
    ],
)
def test_names_of_steps(prefill: int, decode: int, name: str) -> None:
    assert what({"prefill_tokens": prefill, "n_decode": decode}) == name


def decoding(start_s: list[float], duration_s: list[float]) -> Columns:
    """Steps of one replica that decode 5 sequences."""
    count = len(start_s)
    steps: Columns = {"start_s": np.array(start_s), "duration_s": np.array(duration_s)}
    steps |= {name: np.full(count, 5) for name in ("n_decode", "waiting", "blocks_used")}
    steps |= {name: np.zeros(count, dtype=np.int64) for name in ("replica", "prefill_tokens")}
    return (
        steps
        | {"draft_s": np.zeros(count), "host_s": np.zeros(count)}
        | {"verify_s": steps["duration_s"]}
    )


def test_counters_are_zero_where_the_engine_has_nothing_to_do() -> None:
    def batch(window: Window) -> list[tuple[float, int]]:
        run = RunTrace(1, window)
        events = [*run.steps(decoding([1.0, 1.5, 4.0], [0.5, 0.5, 0.5])), *run.idle()]
        named = [event for event in events if event["name"] == "batch, replica 0"]
        return [(event["ts"] / 1e6, event["args"]["sequences"]) for event in named]

    assert batch(Window(0, 9)) == [(1, 5), (2, 0), (4, 5), (4.5, 0)]
    assert batch(Window(1.2, 3)) == [(1.2, 5), (2, 0)]
    assert batch(Window(3, 4.2)) == [(3, 0), (4, 5)]
    assert batch(Window(2.5, 3)) == [(2.5, 0)]


@pytest.mark.parametrize("error_s", [-6e-10, 6e-10])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_rounding_error_is_neither_an_overlap_nor_a_pause(error_s: float, parts: int) -> None:
    run, steps = RunTrace(1, Window(0, 9)), decoding([1.0, 2.0 + error_s], [1.0, 0.5])
    rows = np.array_split(np.arange(2), parts)
    tables = [{name: column[part] for name, column in steps.items()} for part in rows]
    events = [event for table in tables for event in run.steps(table)]
    one, two = (event for event in events if event["ph"] == "X" and "args" in event)
    assert nanoseconds(one["ts"] + one["dur"]) <= nanoseconds(two["ts"])
    assert len([event for event in events if event["ph"] == "C"]) == 3


def test_what_did_not_finish_is_shown_as_far_as_it_is_known() -> None:
    none = np.nan
    columns = requests(
        5,
        arrival_s=np.array([1.0, 2.0, 3.0, 4.0, none]),
        schedule_s=np.array([none, none, 3.5, 4.5, none]),
        first_token_s=np.array([none, none, 4.0, none, none]),
        finish_s=np.full(5, none),
        status=np.array([Status.REJECTED, *[Status.UNFINISHED] * 4], dtype=np.int8),
    )
    run = RunTrace(1, Window(1, 100))
    list(run.steps(decoding([9.0], [1.0])))
    found = asynchronous(list(run.requests(columns, {"stream": ("chat",), "domain": ("prose",)})))
    assert [len(own) for own in found.values()] == [1, 4, 8, 6]
    begins = {key: [e for e in own if e["ph"] == "b"] for key, own in found.items()}
    spans = {key: [(e["name"], e["ts"] / 1e6) for e in own] for key, own in begins.items()}
    assert spans["1.1"] == [("chat", 2), ("queue", 2)]
    assert spans["1.2"] == [("chat", 3), ("queue", 3), ("prefill", 3.5), ("decode", 4)]
    assert spans["1.3"] == [("chat", 4), ("queue", 4), ("prefill", 4.5)]
    for key in ("1.1", "1.2", "1.3"):
        assert found[key][-1]["ts"] == found[key][-2]["ts"] == 10e6
        assert found[key][0]["args"]["status"] == "unfinished"
