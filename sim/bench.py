"""Speed of the simulator beside raw SimPy: ``make bench``.

First the whole day of ``examples/day_600k_8xh100.yaml`` and one a tenth as long, each a ``speccast
run`` of its own: wall and processor time, peak memory, and memory a further request takes beside
its row of the result table. Then cases of the engine alone: steps and simulated requests a second,
the rate of bare SimPy timeouts measured just before and after, and wall time over an allowance of 3
timeouts a step and 45 a request. Last a sweep of 1,000 points of 1,000 requests, on one process and
on two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import simpy

from models.strict_yaml import load_yaml
from sim.engine.simulate import simulate
from sim.planning.sweep.scaling import scaling
from sim.run_tables import request_columns
from sim.scenario.build import build
from sim.scenario.load import load_scenario, parse_scenario
from sim.scenario.workload import generate
from sim.setup import prepare

STEP_TIMEOUTS, REQUEST_TIMEOUTS = 3, 45
TIMEOUTS = 300_000

SHORT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b, tp: 1}
workload:
  arrivals: {kind: poisson, rate_per_s: 10}
  requests: 10000
  streams: [{prompt_tokens: {kind: fixed, value: 500}, output_tokens: {kind: fixed, value: 250}}]
strategies: [{kind: autoregressive}, {kind: eagle3, k: 3}]
"""
LARGE = SHORT.replace("llama-3.1-8b, tp: 1", "llama-3.1-70b, tp: 4").replace("10\n", "8\n", 1)
# Quantiles of the public Azure conversation trace, 2023 (Patel et al., ISCA 2024).
DAY = """\
hardware: {gpu: h100_sxm, gpus: 8}
model: {transformer: llama-3.1-70b, tp: 4}
workload:
  arrivals: {kind: poisson, rate_per_s: 6.9444}
  requests: 60000
  streams:
    - prompt_tokens: {kind: empirical, values: [120, 200, 235, 379, 393, 400, 407, 428, 922,
        1005, 1033, 1058, 1083, 1112, 1153, 1276, 1434, 2309, 4075, 4092]}
      output_tokens: {kind: empirical, values: [28, 48, 60, 72, 82, 88, 93, 99, 108, 120, 138,
        162, 195, 373, 391, 396, 406, 416, 430, 522]}
strategies: [{kind: eagle3, k: 3}]
"""


DAY_FILE = Path(__file__).parent.parent / "examples" / "day_600k_8xh100.yaml"


class Case(NamedTuple):
    """One benchmark: its name, scenario text, and index of the strategy."""

    name: str
    text: str
    strategy: int


CASES = (
    Case("Llama-3.1-8B TP1, 10 req/s, autoregressive", SHORT, 0),
    Case("Llama-3.1-8B TP1, 10 req/s, eagle3 K=3", SHORT, 1),
    Case("Llama-3.1-70B TP4, 8 req/s, autoregressive", LARGE, 0),
    Case("Llama-3.1-70B TP4, 8 req/s, eagle3 K=3", LARGE, 1),
    Case("a tenth of the day of 600,000 requests, 2 x TP4, eagle3 K=3", DAY, 1),
)


def raw_timeouts_per_s(count: int = TIMEOUTS) -> float:
    """Bare SimPy timeouts a second: one process that does nothing else."""

    def process(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        for _ in range(count):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(process(env))
    start = time.perf_counter()
    env.run()
    return count / (time.perf_counter() - start)


def measure(case: Case) -> tuple[int, int, float]:
    """Steps, requests and wall seconds of one case, scenario building left out."""
    scenario = parse_scenario(load_yaml(case.text, case.name), []).points[0].scenario
    requests = generate(scenario.workload, scenario.run.seed, 0)
    strategy = scenario.strategies[case.strategy]
    plan = prepare(build(scenario), strategy, requests.domain_names).plan()
    start = time.perf_counter()
    recorder = simulate(plan, requests, scenario.run.seed)
    seconds = time.perf_counter() - start
    return sum(totals.steps for totals in recorder.totals), len(requests), seconds


class Child(NamedTuple):
    """What one ``speccast`` took: wall and processor time [s], and peak memory [bytes]."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def speccast(*arguments: str) -> Child:
    """Run ``speccast`` in a process of its own.

    Raises
    ------
    subprocess.CalledProcessError
        If it fails.
    """
    command = [sys.executable, "-m", "sim", *arguments]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - start
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Child(wall_s, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss)


def day(*overrides: str) -> tuple[Child, int]:
    """Run the day of the examples; what it took, and its requests."""
    options = [word for text in overrides for word in ("--set", text)]
    workload = load_scenario(DAY_FILE, overrides).points[0].scenario.workload
    return speccast("run", str(DAY_FILE), *options), len(generate(workload, seed=1))


def row_bytes() -> float:
    """Bytes of a request in the result table."""
    scenario = parse_scenario(load_yaml(SHORT, "short"), ["workload.requests=1000"]).points[0][1]
    requests = generate(scenario.workload, scenario.run.seed, 0)
    plan = prepare(build(scenario), scenario.strategies[0], requests.domain_names).plan()
    columns = request_columns(simulate(plan, requests, scenario.run.seed), requests)
    return sum(column.nbytes for column in columns.values()) / len(requests)


def print_days() -> None:
    """The whole day, a tenth of it, and what a further request takes."""
    # Before anything else is done here: a child's peak counts from that of its parent.
    tenth, few = day("workload.duration_s=8640", "workload.arrivals.period_s=8640")
    whole, many = day()
    raw = raw_timeouts_per_s()
    print(f"{'speccast run of a day':<60} {'wall s':>9} {'cpu s':>7} {'raw/s':>9} {'peak MB':>8}")
    for child, count in ((tenth, few), (whole, many)):
        name = f"{count:,} requests over a day, 2 x TP4, eagle3 K=3"
        times = f"{child.wall_s:>9.1f} {child.cpu_s:>7.1f} {raw:>9,.0f}"
        print(f"{name:<60} {times} {child.peak_bytes / 1e6:>8.0f}")
    further = (whole.peak_bytes - tenth.peak_bytes) / (many - few)
    print(f"memory of a further request: {further:.0f} bytes; its row: {row_bytes():.0f} bytes")


def print_cases() -> None:
    """A line a case of the engine alone."""
    print(f"{'engine':<60} {'steps/s':>9} {'req/s':>7} {'raw/s':>9} {'wall s':>7} {'allowance':>9}")
    measure(CASES[0]._replace(text=SHORT.replace("10000", "500")))
    for case in CASES:
        before = raw_timeouts_per_s()
        steps, requests, seconds = measure(case)
        raw = (before + raw_timeouts_per_s()) / 2
        allowed = (STEP_TIMEOUTS * steps + REQUEST_TIMEOUTS * requests) / raw
        print(
            f"{case.name:<60} {steps / seconds:>9,.0f} {requests / seconds:>7,.0f} {raw:>9,.0f} "
            f"{seconds:>7.2f} {seconds / allowed:>9.0%}"
        )


def print_sweep() -> None:
    """The same sweep on one process and on two."""
    raw = raw_timeouts_per_s()
    alone_s, both_s = scaling()
    print(
        f"{'sweep of 1,000 points of 1,000 requests':<60} {'wall s':>9} {'raw/s':>9} {'scales':>7}"
    )
    print(f"{'one process':<60} {alone_s:>9.1f} {raw:>9,.0f} {1:>7.0%}")
    print(f"{'two processes':<60} {both_s:>9.1f} {raw:>9,.0f} {alone_s / 2 / both_s:>7.0%}")


def main() -> None:
    """Print the days, the engine alone, and the sweep."""
    print_days()
    print_cases()
    print_sweep()


if __name__ == "__main__":
    main()
