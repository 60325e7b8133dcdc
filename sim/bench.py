"""Speed of the simulator beside raw SimPy: ``make bench``.

Every case prints steps and simulated requests a second, the rate of bare SimPy timeouts measured
just before and after it, and its wall time over an allowance of 3 timeouts a step and 45 a
request.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple

import simpy

from models.strict_yaml import load_yaml
from sim.engine.simulate import simulate
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
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


def main() -> None:
    """Print a line a case."""
    print(
        f"{'case':<60} {'steps/s':>9} {'req/s':>7} {'raw/s':>9} {'wall s':>7} {'of allowance':>13}"
    )
    measure(CASES[0]._replace(text=SHORT.replace("10000", "500")))
    for case in CASES:
        before = raw_timeouts_per_s()
        steps, requests, seconds = measure(case)
        raw = (before + raw_timeouts_per_s()) / 2
        allowed = (STEP_TIMEOUTS * steps + REQUEST_TIMEOUTS * requests) / raw
        print(
            f"{case.name:<60} {steps / seconds:>9,.0f} {requests / seconds:>7,.0f} {raw:>9,.0f} "
            f"{seconds:>7.2f} {seconds / allowed:>12.0%}"
        )


if __name__ == "__main__":
    main()
