"""Steps and requests of a window as events of a trace, checked against the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from perfetto_runs import Event, asynchronous, nanoseconds, steps_of, traced

from sim.analysis.metrics import Window
from sim.analysis.perfetto import what
from sim.tables import STATUS_NAMES, Columns, RunTable, Status

NAMES = ("autoregressive", "eagle3 K=3")
ALL, MIDDLE = Window(0.0, 1000.0), Window(3.25, 6.5)
ROUNDING_US = 0.0015


@pytest.fixture(scope="module", params=[ALL, MIDDLE], ids=["all", "a window"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    return *traced(path, request.param), request.param


def of(events: list[Event], process: int, *phases: str) -> list[Event]:
    return [event for event in events if event["pid"] == process and event["ph"] in phases]


def runs(tables: list[RunTable]) -> Iterator[tuple[int, RunTable]]:
    """First replications, and the process each is."""
    yield from enumerate((table for table in tables if table.replication == 0), 1)


def test_every_event_has_the_keys_of_its_kind(trace: Any) -> None:
    """As the Chrome Trace Event Format has them."""
    events, _, _ = trace
    more = {"X": {"ts", "dur", "cat"}, "C": {"ts", "cat", "args"}, "M": {"args"}}
    more |= {phase: {"ts", "cat", "id2"} for phase in "ben"}
    for event in events:
        assert set(event) - {"args"} == {"ph", "name", "pid", "tid"} | more[event["ph"]] - {"args"}
        assert isinstance(event["name"], str)
        assert event["pid"] > 0
        assert event["tid"] > 0
        for name in {"ts", "dur"} & set(event):
            assert isinstance(event[name], float)
        if event["ph"] == "C":
            assert all(isinstance(count, int) for count in event["args"].values())


def test_every_time_lies_in_the_window(trace: Any) -> None:
    events, _, window = trace
    begin, end = (1e6 * time for time in window)
    for event in events:
        if event["ph"] != "M":
            assert begin <= event["ts"] <= event["ts"] + event.get("dur", 0.0) <= end + ROUNDING_US


def test_slices_of_a_thread_follow_one_another_or_nest(trace: Any) -> None:
    events, _, _ = trace
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    assert len(threads) == 4
    for slices in threads.values():
        steps = [event for event in slices if "args" in event]
        assert [event["ts"] for event in steps] == sorted(event["ts"] for event in steps)
        for one, two in pairwise(steps):
            assert nanoseconds(one["ts"] + one["dur"]) <= nanoseconds(two["ts"])
        for step, parts in children(slices):
            ends = [nanoseconds(part["ts"] + part["dur"]) for part in parts]
            starts = [nanoseconds(part["ts"]) for part in parts]
            assert starts == [nanoseconds(step["ts"]), *ends[:-1]]
            assert ends[-1] == nanoseconds(step["ts"] + step["dur"])


def children(slices: list[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Steps, and the phases listed after each."""
    starts = [index for index, event in enumerate(slices) if "args" in event]
    for first, last in zip(starts, [*starts[1:], len(slices)], strict=True):
        yield slices[first], slices[first + 1 : last]


def overlap(columns: Columns, window: Window) -> np.ndarray:
    start, end = columns["start_s"], columns["start_s"] + columns["duration_s"]
    return np.clip(end, *window) - np.clip(start, *window)


def test_durations_add_up_to_the_step_table(trace: Any) -> None:
    events, result, window = trace
    for process, run in runs(result.steps):
        slices, columns = of(events, process, "X"), run.columns
        inside = overlap(columns, window)
        steps = [event for event in slices if "args" in event]
        assert len(steps) == (inside > 0).sum()
        total = sum(event["dur"] for event in steps)
        assert total == pytest.approx(1e6 * inside.sum(), abs=ROUNDING_US * len(steps))
        if window is ALL:
            for phase in ("draft", "verify", "host"):
                parts = [event["dur"] for event in slices if event["name"] == phase]
                seconds = columns[f"{phase}_s"].sum()
                assert sum(parts) == pytest.approx(1e6 * seconds, abs=ROUNDING_US * len(steps))
                assert bool(parts) == (seconds > 0)


def test_a_step_shows_its_row_and_is_named_by_what_it_did(trace: Any) -> None:
    events, result, window = trace
    for process, run in runs(result.steps):
        inside = overlap(run.columns, window) > 0
        expected = {
            (row["replica"], row["start_s"]): row
            for row in rows({name: column[inside] for name, column in run.columns.items()})
        }
        steps = steps_of(events, process)
        for event in steps:
            assert event["args"] == expected.pop(
                (event["args"]["replica"], event["args"]["start_s"])
            )
            assert event["name"] == what(event["args"])
        assert not expected
        assert len({event["tid"] for event in steps}) == 2
        assert any(" + decode " in event["name"] for event in steps)


def rows(columns: Columns) -> list[dict[str, Any]]:
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, value, strict=True)) for value in values]


def test_counters_follow_the_step_table(trace: Any) -> None:
    events, result, window = trace
    columns = {"batch": "n_decode", "waiting": "waiting", "KV in use": "blocks_used"}
    for process, run in runs(result.steps):
        counters = of(events, process, "C")
        for replica, label in product((0, 1), columns):
            named = [e for e in counters if e["name"] == f"{label}, replica {replica}"]
            points = [(event["ts"], *event["args"].values()) for event in named]
            assert points == sorted(points, key=lambda point: point[0])
            assert all(one[1] != two[1] for one, two in pairwise(points))
            check_counter(points, run.columns, columns[label], replica, window)


def check_counter(
    points: list[tuple[float, int]], columns: Columns, column: str, replica: int, window: Window
) -> None:
    own = (columns["replica"] == replica) & (overlap(columns, window) > 0)
    start = np.maximum(columns["start_s"][own], window.start_s)
    middle_us = 1e6 * (start + 0.5 * overlap(columns, window)[own])
    times, values = np.array(points).T
    at = np.searchsorted(times, middle_us) - 1
    assert (values[at] == columns[column][own]).all()


def test_begins_and_ends_of_a_request_match(trace: Any) -> None:
    events, _, _ = trace
    for own in asynchronous(events).values():
        open_names: list[str] = []
        for event in own:
            if event["ph"] == "b":
                open_names.append(event["name"])
            elif event["ph"] == "e":
                assert open_names.pop() == event["name"]
        assert not open_names
        times = [event["ts"] for event in own]
        assert times == sorted(times)
        assert own[0]["ts"] == min(times)
        assert own[-1]["ts"] == max(times)


def test_requests_show_their_row_and_their_stages(trace: Any) -> None:
    events, result, window = trace
    for process, run in runs(result.requests):
        found = asynchronous([event for event in events if event["pid"] == process])
        for row in rows(run.columns):
            own = found.pop(f"{process}.{row['id']}", [])
            name = run.stream_names[row["stream"]]
            finished = row["status"] == Status.FINISHED
            end = row["finish_s"] if finished else row["arrival_s"]
            if not shown(row["arrival_s"], end, window):
                assert not own
                continue
            args = own[0]["args"]
            assert own[0]["name"] == name == args["stream"]
            assert args["status"] == STATUS_NAMES[row["status"]]
            for key in ("id", "accepted", "preemptions", "output_tokens"):
                assert args[key] == row[key]
            if finished:
                check_stages(own, row, window)
            else:
                assert [event["ph"] for event in own] == ["n"]
                assert args["finish_s"] is None
        assert not found


def shown(begin: float, end: float, window: Window) -> bool:
    if begin == end:
        return window.start_s <= begin < window.end_s
    return begin < window.end_s and end > window.start_s


def check_stages(own: list[Event], row: dict[str, Any], window: Window) -> None:
    moments = [row[name] for name in ("arrival_s", "schedule_s", "first_token_s", "finish_s")]
    spans = zip(("queue", "prefill", "decode"), moments, moments[1:], strict=False)
    inside = [(stage, *np.clip((since, until), *window)) for stage, since, until in spans]
    stages = [(stage, since, until) for stage, since, until in inside if until - since > 1e-9]
    begins = [event for event in own[1:-1] if event["ph"] == "b"]
    ends = [event for event in own[1:-1] if event["ph"] == "e"]
    for event, end, (stage, since, until) in zip(begins, ends, stages, strict=True):
        assert event["name"] == stage
        times = (event["ts"], end["ts"])
        assert times == pytest.approx((1e6 * since, 1e6 * until), abs=ROUNDING_US)


def test_processes_and_threads_have_names(trace: Any) -> None:
    events, _, _ = trace
    names = [event for event in events if event["ph"] == "M"]
    by_kind = defaultdict(list)
    for event in names:
        by_kind[event["name"]].append((event["pid"], *event["args"].values()))
    assert by_kind["process_name"] == [(1, NAMES[0]), (2, NAMES[1])]
    assert by_kind["process_labels"] == [(1, "replication 0"), (2, "replication 0")]
    assert by_kind["thread_name"] == [(p, f"replica {r}") for p in (1, 2) for r in (0, 1)]
    threads = {(event["pid"], event["tid"]) for event in events}
    assert len({thread for _, thread in threads}) == len(threads) == 4
