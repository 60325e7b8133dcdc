"""The search of a plan: fewest replicas, pruning, and workers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.planning.cheapest import cheapest, rank, setup_of
from sim.planning.document import grouped, search
from sim.planning.estimate import estimate
from sim.planning.fleets import Fleets, smallest
from sim.planning.jobs import each
from sim.planning.schema import Kill
from sim.planning.traffic import Traffic, mean_output_tokens
from tests.plans import PLAIN, small

SEARCH = "{model.tp: [1, 2], model.weights: [bf16, fp8], 'strategies[1].k': [2, 4]}"


@pytest.mark.parametrize("guess", [1, 2, 7, 8, 13, 40])
def test_the_smallest_that_passes_is_found_from_any_guess(guess: int) -> None:
    for edge in (1, 2, 7, 8, 9, 39, 40):
        asked: list[int] = []

        def passes(n: int, edge: int = edge, asked: list[int] = asked) -> bool:
            asked.append(n)
            return n >= edge

        assert smallest(passes, guess, 1, 40) == edge
        assert len(asked) <= 14
        assert set(asked) <= set(range(1, 41))
        assert edge == 1 or edge - 1 in asked


def test_nothing_passes() -> None:
    assert smallest(lambda n: False, 3, 1, 40) is None


@pytest.fixture(scope="module")
def fleets() -> tuple[Fleets, int]:
    """Plain decoding, and the fewest replicas that hold the demand."""
    file = small(text=PLAIN)
    made = Fleets(file.plan, file.candidates[0])
    fewest = made.fewest(8, 40)
    assert fewest is not None
    return made, fewest


def test_one_replica_fewer_fails_the_same_judge(fleets: tuple[Fleets, int]) -> None:
    made, fewest = fleets
    again = Fleets(made.plan, made.candidate)
    assert fewest > 2
    assert again.judged(fewest).met
    assert not again.judged(fewest - 1).met


def test_a_killed_replica_must_be_made_up_for(fleets: tuple[Fleets, int]) -> None:
    assert isinstance(fleets[0].plan.failure, Kill)
    all_up = small(text=PLAIN, failure="none")
    fewest = Fleets(all_up.plan, all_up.candidates[0]).fewest(8, 40)
    assert fewest is not None
    assert fewest < fleets[1]


def test_the_largest_peak_is_held_and_not_much_more(fleets: tuple[Fleets, int]) -> None:
    made, fewest = fleets
    share = made.largest_peak(fewest) / made.plan.demand.peak_req_s
    assert share >= 1
    assert made.judged(fewest, made.rate * share).met
    assert not made.judged(fewest, made.rate * share * 1.07).met


def test_pruning_finds_what_a_full_search_finds_with_fewer_fleets() -> None:
    file = small("demand.requests_per_day=100000", search=SEARCH)
    for candidates in grouped(file.candidates).values():
        pruned, full = (cheapest(file.plan, tuple(candidates), prune) for prune in (True, False))
        assert pruned.best is not None
        assert full.best is not None
        assert pruned.best.gpus == full.best.gpus
        assert pruned.best.ranked.candidate == full.best.ranked.candidate
        assert len(full.searched) == len(candidates)
        assert pruned.simulations < full.simulations


def test_a_candidate_at_the_edge_of_a_bound_is_left_to_the_simulation() -> None:
    def ranked(ttft_s: float) -> int:
        file = small(text=PLAIN, slo=f"{{ttft_s: {{p95: {ttft_s}}}, attainment: 0.5}}")
        return len(rank(file.plan, file.candidates)[0])

    def estimated(ttft_s: float) -> bool:
        file = small(text=PLAIN, slo=f"{{ttft_s: {{p95: {ttft_s}}}, attainment: 0.5}}")
        traffic = Traffic.of(file.candidates[0].scenario.workload, file.plan.run.seed)
        return estimate(setup_of(file.candidates[0]), traffic, file.plan.slo) is not None

    low, high = 0.01, 1.0
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if estimated(middle) else (middle, high)
    assert (ranked(0.96 * low), ranked(0.8 * low)) == (1, 0)


def test_workers_change_nothing() -> None:
    quick = ("run.window_s=30", "run.hour_s=30", "run.lead_s=5", "demand.requests_per_day=60000")
    twice = "[{kind: autoregressive, label: one}, {kind: autoregressive, label: two}]"
    file = small(*quick, text=PLAIN.replace("\n  - {kind: autoregressive}", f" {twice}"))
    found = search(file, jobs=2)
    assert found == search(file, jobs=1)
    assert [answer.plan and answer.plan["strategy"] for answer in found] == ["one", "two"]


def test_results_of_workers_come_in_the_order_of_the_things() -> None:
    done: list[int] = []
    assert each(time.sleep, [0.3, 0.0], 2, done.append) == [None, None]
    assert done == [0, 1, 2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_a_worker_is_raised_here(jobs: int) -> None:
    with pytest.raises(ValueError, match="math domain"):
        each(math.log, [1.0, 0.0], jobs)


def test_costs_are_shared_by_the_mean_output_of_more_than_a_sample() -> None:
    workload = small(text=PLAIN).candidates[0].scenario.workload
    means = [mean_output_tokens(workload, seed) for seed in range(4)]
    sampled = [float(Traffic.of(workload, seed).output_tokens.mean()) for seed in range(4)]
    assert max(means) < 1.01 * min(means)
    assert max(sampled) > 1.01 * min(sampled)


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    text = (
        "import os, sys\n"
        "from sim.planning.jobs import each\n"
        "if __name__ == '__main__':\n"
        f"    asked = [f'echo $PPID > {tmp_path}/{{n}}; sleep 3' for n in range(2)]\n"
        "    each(os.system, asked, 2)\n"
    )
    script = tmp_path / "main.py"
    script.write_text(text)
    with subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": "."}
    ) as it:
        files = [tmp_path / str(n) for n in range(2)]
        wait_for(lambda: all(file.exists() and file.read_text() for file in files))
        it.kill()
    workers = [Path("/proc") / file.read_text().strip() for file in files]
    wait_for(lambda: not any(running(worker) for worker in workers))


def running(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], most_s: float = 30.0) -> None:
    end_s = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)
