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


def check_requests(ran: Ran) -> None:
    """Requests are conserved, and what happens to one happens in order."""
    requests, row = ran.requests, ran.row
    assert row["finished"] + row["rejected"] + row["unfinished"] == len(requests["id"])
    done = requests["status"] == Status.FINISHED
    assert row["finished"] == done.sum()
    events = ("arrival_s", "schedule_s", "first_token_s", "finish_s")
    times = np.array([requests[name] for name in events])
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
