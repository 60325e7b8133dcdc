"""What must hold in the tables of every run, whatever the scenario."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from models.strict_yaml import load_yaml
from sim import experiment
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.setup import Setup, prepare
from sim.tables import Columns, Status

ROUNDING_S = 1e-9
EVENTS = ("arrival_s", "schedule_s", "first_token_s", "finish_s")


class Ran(NamedTuple):
    """One strategy at one point: its row, its tables, and what it ran on."""

    row: dict[str, Any]
    requests: Columns
    steps: Columns
    setup: Setup


def run(text: str) -> list[Ran]:
    """Run a scenario of one point and one replication, steps kept."""
    file = parse_scenario(load_yaml(text, "scenario.yaml"), [])
    result = experiment.run(file, keep_steps=True)
    scenario = file.points[0].scenario
    domains = scenario.workload.domain_names
    setups = {s.name: prepare(build(scenario), s, domains) for s in scenario.strategies}
    by_name = {table.strategy: table.columns for table in result.requests}
    steps = {table.strategy: table.columns for table in result.steps}
    return [
        Ran(row, by_name[row["strategy"]], steps[row["strategy"]], setups[row["strategy"]])
        for row in result.document["rows"]
    ]


def check(ran: Ran) -> None:
    """Every invariant below."""
    check_requests(ran)
    check_tokens(ran)
    check_clocks(ran)
    check_limits(ran)
    check_little(ran)


def check_requests(ran: Ran) -> None:
    """Requests are conserved, and what happens to one happens in order."""
    requests, row = ran.requests, ran.row
    assert sum(row[status.name.lower()] for status in Status) == len(requests["id"])
    done = requests["status"] == Status.FINISHED
    assert row["finished"] == done.sum()
    times = np.array([requests[name] for name in EVENTS])
    assert (np.diff(times[:, done], axis=0) >= -ROUNDING_S).all()
    rejected = requests["status"] == Status.REJECTED
    assert np.isnan(times[1:, rejected]).all()
    assert not np.isnan(times[:, done]).any()
    heads = requests["id"] == requests["session"]
    assert (np.diff(times[0, heads]) >= 0).all() or row["offered_req_per_s"] is None
    turns = np.flatnonzero(~heads & done)
    assert (times[0, turns] >= times[3, turns - 1] - ROUNDING_S)[done[turns - 1]].all()


def check_tokens(ran: Ran) -> None:
    """Tokens are conserved: none made up, none lost, none prefilled twice without a reason."""
    requests, steps = ran.requests, ran.steps
    done = requests["status"] == Status.FINISHED
    output, run = requests["output_tokens"][done], requests["n_steps"][done]
    accepted, back = requests["accepted"][done], requests["preemptions"][done]
    assert steps["emitted"].sum() == output.sum()
    assert steps["n_decode"].sum() == run.sum()
    assert (run <= output - 1).all()
    assert (run + accepted + back >= output - 1).all()
    assert (accepted <= requests["drafted"][done]).all()
    missing = (requests["prompt_tokens"] - requests["cached_tokens"])[done]
    assert (missing >= 1).all()
    if back.any():
        assert steps["prefill_tokens"].sum() >= missing.sum()
    else:
        assert steps["prefill_tokens"].sum() == missing.sum()


def check_clocks(ran: Ran) -> None:
    """Steps of a replica follow one another, and what a request gets comes at the end of one."""
    requests, steps = ran.requests, ran.steps
    parts = steps["draft_s"] + steps["verify_s"] + steps["host_s"]
    np.testing.assert_allclose(parts, steps["duration_s"], rtol=1e-9)
    done = requests["status"] == Status.FINISHED
    for number in np.unique(steps["replica"]):
        own = steps["replica"] == number
        start, seconds = steps["start_s"][own], steps["duration_s"][own]
        assert (seconds > 0).all()
        assert (start[1:] >= (start + seconds)[:-1] - ROUNDING_S).all()
        mine = done & (requests["replica"] == number)
        for name in ("first_token_s", "finish_s"):
            nearest = distances(requests[name][mine], start + seconds)
            assert (nearest < ROUNDING_S).all(), name
        assert (distances(requests["schedule_s"][mine], start) < ROUNDING_S).all()


def distances(times: np.ndarray, ticks: np.ndarray) -> np.ndarray:
    """From each time to the nearest tick; ticks ascend."""
    right = np.clip(np.searchsorted(ticks, times), 1, max(len(ticks) - 1, 1))
    near = np.abs(times[:, None] - ticks[np.minimum(right[:, None] - [1, 0], len(ticks) - 1)])
    return near.min(axis=1) if len(times) else np.zeros(0)


def check_limits(ran: Ran) -> None:
    """No step exceeds the memory, the batch or the token budget."""
    steps, rules = ran.steps, ran.setup.rules
    assert (steps["blocks_used"] <= rules.n_blocks).all()
    assert (steps["n_decode"] <= rules.max_num_seqs).all()
    tokens = steps["prefill_tokens"] + steps["verify_tokens"]
    assert (tokens <= rules.max_num_batched_tokens).all()
    assert (steps["verify_tokens"] <= steps["n_decode"] * rules.width).all()
    assert (steps["verify_tokens"] >= steps["n_decode"]).all()
    assert (steps["blocks_used"] >= steps["n_decode"]).all()
    assert ran.row["kv_use_peak"] == steps["blocks_used"].max(initial=0) / rules.n_blocks


def check_little(ran: Ran) -> None:
    """Little's law, L = lambda W, from two tables that know nothing of each other.

    Left: sequences decoding plus requests waiting, integrated over the steps of a replica. Right:
    the sojourns of its requests, less the time in which a request is in neither column, which the
    request table knows to the step: from its arrival to the next step planned; its prefill; steps
    of prefill only, which stall it once it decodes. Both agree to rounding, but for

    - requests sent by the answer of one replica as another plans a step: seen in it, or one later;
    - preempted requests, in neither column while they are prefilled again or brought back from
      host memory: at most in the steps with a prefill, and one step for each return.

    Then: nobody is kept waiting by an engine that does nothing, but for `request_s`, the time in
    front of it. Requests that gave up or were sent again leave no record of where they waited.
    """
    requests, steps = ran.requests, ran.steps
    gone = [Status.UNFINISHED, Status.TIMED_OUT, Status.FAILED]
    if np.isin(requests["status"], gone).any() or (requests["attempts"] > 1).any():
        return
    done = requests["status"] == Status.FINISHED
    replicas = np.unique(steps["replica"])
    assert set(requests["replica"][done]) <= set(replicas)
    for number in replicas:
        own = {name: column[steps["replica"] == number] for name, column in steps.items()}
        mine = {
            name: column[done & (requests["replica"] == number)]
            for name, column in requests.items()
        }
        _check_sojourns(own, mine, alone=len(replicas) == 1)
        _check_idle(own, mine, ran.setup.rules.request_s)


def _check_sojourns(steps: Columns, requests: Columns, alone: bool) -> None:
    start, seconds = steps["start_s"], steps["duration_s"]
    counted = (seconds * (steps["n_decode"] + steps["waiting"])).sum()
    stalling = seconds * (steps["n_decode"] == 0)
    prefilling = seconds * (steps["prefill_tokens"] > 0)
    arrival, schedule, first, finish = (requests[name] for name in EVENTS)
    starts = np.append(start, np.inf)
    tie_s = 0.0 if alone else ROUNDING_S
    seen = [starts[np.searchsorted(start, arrival + shift)] for shift in (-tie_s, tie_s)]
    sojourn = [_within(start, seconds, np.minimum(at, schedule), finish) for at in seen]
    unseen = _within(start, seconds, schedule, first) + _within(start, stalling, first, finish)
    again = _within(start, prefilling, schedule, finish) + requests["preemptions"] * seconds.max()
    back = requests["preemptions"] > 0
    most = (sojourn[0] - np.where(back, 0.0, unseen)).sum()
    least = (sojourn[1] - np.where(back, again, unseen)).sum()
    slack = ROUNDING_S * (1.0 + most)
    assert least - slack <= counted <= most + slack, (least, counted, most)


def _within(start: np.ndarray, seconds: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Any:
    """Sum of ``seconds`` of the steps that start between two step edges, by request."""
    edges = np.concatenate([[0.0], np.cumsum(seconds)])
    first, last = (np.searchsorted(start, time - ROUNDING_S) for time in (begin, end))
    return edges[last] - edges[first]


def _check_idle(steps: Columns, requests: Columns, request_s: float) -> None:
    arrival, finish = requests["arrival_s"], requests["finish_s"]
    edges = np.stack([steps["start_s"], steps["start_s"] + steps["duration_s"]], axis=1).ravel()
    busy = np.stack([np.zeros(len(edges) // 2), steps["duration_s"]], axis=1).ravel().cumsum()
    worked = np.interp(finish, edges, busy) - np.interp(arrival, edges, busy)
    idle = finish - arrival - worked
    assert (idle <= request_s + ROUNDING_S * len(edges)).all(), idle.max()


def blocks_held(scheduler: Any, decodes: bool) -> int:
    """Blocks of every admitted request, added up one by one; shared prefixes count once."""
    prefixes: dict[Any, int] = {}
    total = 0
    for request, grown in _admitted(scheduler, decodes):
        total += request.held + grown - request.shared
        prefixes |= {node: node.blocks for node in request.nodes}
    return total + sum(prefixes.values())


def _admitted(scheduler: Any, decodes: bool) -> Iterator[tuple[Any, int]]:
    """Running and just finished requests, with the blocks their decode steps have added so far."""
    for request in scheduler.running:
        ran = scheduler.batch.step - request.start_step + decodes if request.finish_step else 0
        growth = request.path.growth[request.next_step :][:ran]
        yield request, int(growth.sum())
    for request in scheduler.late:
        yield request, 0
