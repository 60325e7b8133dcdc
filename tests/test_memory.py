"""What a run keeps in memory: its tables, and no request that has been answered."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np

from models.strict_yaml import load_yaml
from sim.engine.intake import CHUNK
from sim.engine.recorder import COUNTS, TIMES, RequestLog
from sim.engine.request import Request
from sim.engine.simulate import simulate
from sim.run_tables import request_columns
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.scenario.workload import generate
from sim.setup import prepare

SCENARIO = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.2-1b}
workload:
  arrivals: {kind: poisson, rate_per_s: 20}
  requests: 3000
  streams: [{prompt_tokens: {kind: fixed, value: 64}, output_tokens: {kind: fixed, value: 3}}]
strategies: [{kind: autoregressive}]
run: {band: false}
"""
FURTHER_REQUEST_BYTES = 900
"""Measured: 400 to 550, of which 141 are its row; 1,460 with lists of numbers and copied tables."""

GROWTH = """\
import re, sys
from pathlib import Path
from models.strict_yaml import load_yaml
from sim import experiment
from sim.scenario.load import parse_scenario

document = load_yaml(sys.stdin.read(), "many.yaml")
for count in (8_000, 24_000):
    experiment.run(parse_scenario(document, [f"workload.requests={count}"]), tables=())
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def test_a_further_request_takes_little_more_than_its_row() -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], input=SCENARIO, capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr
    few, many = (1024 * int(line) for line in done.stdout.split())
    assert (many - few) / 16_000 < FURTHER_REQUEST_BYTES


def test_requests_that_were_answered_are_dropped() -> None:
    scenario = parse_scenario(load_yaml(SCENARIO, "many.yaml")).points[0].scenario
    requests = generate(scenario.workload, seed=1)
    plan = prepare(build(scenario), scenario.strategies[0], requests.domain_names).plan()
    alive = []

    def count(done: int, total: int) -> None:
        if done % 600 == 0:
            alive.append(sum(isinstance(one, Request) for one in gc.get_objects()))

    recorder = simulate(plan, requests, 1, on_progress=count)
    assert recorder.log.status.count("finished") == len(requests)
    assert len(alive) >= 4
    assert max(alive) < 2 * CHUNK


def test_the_result_table_shares_the_memory_of_the_run() -> None:
    scenario = parse_scenario(load_yaml(SCENARIO, "many.yaml"), ["workload.requests=20"]).points[0]
    requests = generate(scenario.scenario.workload, seed=1)
    one = prepare(build(scenario.scenario), scenario.scenario.strategies[0], ("general",))
    recorder = simulate(one.plan(), requests, 1)
    columns = request_columns(recorder, requests)
    for name in (*TIMES, *COUNTS):
        assert np.shares_memory(columns[name], np.asarray(getattr(recorder.log, name)))
    assert columns["prompt_tokens"] is requests.prompt_tokens


def test_a_log_begins_with_nothing_known() -> None:
    log = RequestLog(3)
    assert all(np.isnan(getattr(log, name)).all() for name in TIMES)
    assert all(list(getattr(log, name)) == [0, 0, 0] for name in COUNTS)
    log.attempts[0] = 1
    assert list(log.preemptions) == [0, 0, 0]
