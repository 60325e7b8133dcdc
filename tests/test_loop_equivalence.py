"""The fast loop gives the tables of the plain one, preemptions and ties included."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plain_loop import Reference
from plain_loop import simulate as simulate_plainly
from random_case import Case, random_case

from sim.engine.recorder import Recorder, StepRow
from sim.engine.simulate import Plan, simulate
from sim.histogram import LogHistogram

TIMES = ("arrival_s", "schedule_s", "first_token_s", "finish_s")
COUNTS = ("cached_tokens", "n_steps", "drafted", "accepted", "preemptions")


class FixedPaths:
    """A law that hands out prepared paths."""

    def __init__(self, paths: Any) -> None:
        self._paths = paths

    def paths(self, seed: int, ids: np.ndarray, tokens: np.ndarray, domains: np.ndarray) -> Any:
        first, last = int(ids[0]), int(ids[-1]) + 1
        offsets = self._paths.offsets[first : last + 1]
        part = slice(int(offsets[0]), int(offsets[-1]))

        def cut(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[part]

        return SimpleNamespace(
            offsets=offsets - offsets[0],
            emitted=cut(self._paths.emitted),
            accepted=cut(self._paths.accepted),
            drafted=cut(self._paths.drafted),
            width=cut(self._paths.width),
        )


class Cost:
    """Answers the fast loop with the case's own cost function."""

    def __init__(self, cost: Any, width: int) -> None:
        self._cost, self._width = cost, width

    def decode(self, n: int, ctx: int) -> float:
        return self.mixed(n, ctx, n * self._width, self._width * ctx)

    def mixed(self, *counts: float) -> float:
        return float(self._cost(*counts, *[0] * (8 - len(counts))))

    def host_s(self, sequences: int) -> float:
        return 0.0

    def draft_s(self, *counts: float) -> float:
        return 0.0


def run_fast(case: Case) -> tuple[Recorder, list[StepRow]]:
    plan = Plan(
        rules=case.rules,
        cost=Cost(case.cost, case.rules.width),
        law=FixedPaths(case.paths),
        drafted=case.drafted_per_step,
        varies_width=case.paths.width is not None,
        replicas=case.replicas,
        router=case.router,
    )
    rows: list[StepRow] = []
    return simulate(plan, case.requests, case.seed, on_steps=rows.extend), rows


def compare(case: Case, fast: Recorder, rows: list[StepRow], plain: Reference) -> None:
    log = fast.log
    assert log.status == plain.status.tolist()
    finished = plain.status == "finished"
    for name in TIMES:
        got, want = np.array(getattr(log, name))[finished], getattr(plain, name)[finished]
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-9, err_msg=name)
    for name in COUNTS:
        assert (np.array(getattr(log, name)) == getattr(plain, name))[finished].all(), name
    assert (np.array(log.replica) == plain.replica)[finished].all()
    rows = sorted(rows, key=lambda row: (row[1], row[0]))
    assert len(rows) == len(plain.steps)
    for row, step in zip(rows, plain.steps, strict=True):
        start, seconds = row[1:3]
        assert (start, seconds) == pytest.approx((step.start_s, step.duration_s), abs=1e-9)
        assert (row[0], *row[6:11]) == (step.replica, *step[3:8])
    gaps = LogHistogram()
    for gap_s, count in plain.itl:
        gaps.add(gap_s, count)
    assert fast.itl == gaps


@pytest.mark.parametrize("block", range(8))
def test_random_cases_are_identical(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        case = random_case(seed)
        plain = simulate_plainly(
            case.requests,
            case.paths,
            case.rules,
            case.cost,
            case.replicas,
            case.router,
            case.drafted_per_step,
        )
        try:
            compare(case, *run_fast(case), plain)
        except Exception as error:
            raise AssertionError(case.describe()) from error
