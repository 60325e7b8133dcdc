"""The fast loop gives the tables of the plain one, preemptions, failures and ties included."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim.engine.recorder import Recorder
from sim.engine.simulate import Plan
from sim.histogram import LogHistogram
from tests.plain_loop import simulate as simulate_plainly
from tests.plain_records import Result, Step
from tests.random_case import Case, random_case
from tests.server import simulate_with_rows

TIMES = ("arrival_s", "schedule_s", "first_token_s", "finish_s")
# What a request that was not served has as well.
ALWAYS = ("attempts", "n_steps", "drafted", "accepted", "preemptions", "discarded_tokens")
SERVED = ("replica", "cached_tokens")
STEP_COUNTS = ("n_decode", "prefill_tokens", "verify_tokens", "emitted", "blocks_used")


class FixedPaths:
    """A law that hands out prepared paths."""

    def __init__(self, paths: Any) -> None:
        self._paths = paths

    def paths(
        self,
        seed: int,
        ids: np.ndarray,
        tokens: np.ndarray,
        domains: np.ndarray,
        prompts: np.ndarray | None = None,
    ) -> Any:
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

    def host_s(self, sequences: int, drafted: int = 0) -> float:
        return 0.0

    def draft_s(self, *counts: float) -> float:
        return 0.0


def run_fast(case: Case) -> Recorder:
    """Run the product on a case: the only place that knows how it is called."""
    from sim.engine import fleet as product

    fleet = case.fleet
    plan = Plan(
        rules=case.rules,
        cost=Cost(case.cost, case.rules.width),
        law=FixedPaths(case.paths),
        drafted=case.drafted_per_step,
        varies_width=case.paths.width is not None,
        fleet=product.Fleet(
            replicas=fleet.replicas,
            router=fleet.router,
            refresh_s=fleet.refresh_s,
            queue_limit=fleet.queue_limit,
            client=product.Client.model_construct(**fleet.client._asdict()),
            outages=tuple(product.Outage(**outage._asdict()) for outage in fleet.outages),
        ),
    )
    return simulate_with_rows(plan, case.requests, case.seed)


def run_plainly(case: Case) -> Result:
    return simulate_plainly(
        case.requests, case.paths, case.rules, case.cost, case.fleet, case.drafted_per_step
    )


def differences(fast: Recorder, plain: Result) -> Iterator[str]:
    """Say where the two first differ, in steps, in each column, and in gaps."""
    yield from step_differences(fast, plain)
    rows = len(plain.status)
    served = [row for row in range(rows) if plain.status[row] == "finished"]
    yield from row_difference(fast, plain, "status", range(rows))
    for name in ALWAYS:
        yield from row_difference(fast, plain, name, range(rows))
    for name in (*TIMES, *SERVED):
        yield from row_difference(fast, plain, name, served)
    gaps = LogHistogram()
    for gap_s, count in plain.itl:
        gaps.add(gap_s, count)
    if fast.itl != gaps:
        yield f"gaps between emissions: fast {fast.itl.count}, plain {gaps.count}, or other bins"


def row_difference(fast: Recorder, plain: Result, name: str, rows: Any) -> Iterator[str]:
    got, want = getattr(fast.log, name), getattr(plain, name)
    for row in rows:
        if name in TIMES:
            same = got[row] == pytest.approx(want[row], rel=1e-12, abs=1e-9, nan_ok=True)
        else:
            same = got[row] == want[row]
        if not same:
            why = f" ({plain.reason[row]})" if plain.reason[row] else ""
            yield f"row {row} {name}: fast {got[row]}, plain {want[row]}; {plain.status[row]}{why}"
            return


def step_differences(fast: Recorder, plain: Result) -> Iterator[str]:
    assert fast.rows is not None
    rows = sorted(fast.rows, key=lambda row: (row[1], row[0]))
    steps = [Step(*row[:3], *row[6:11], waiting=0) for row in rows]
    for i, (got, want) in enumerate(zip(steps, plain.steps, strict=False)):
        times = (got.start_s, got.duration_s)
        wrong = [name for name in STEP_COUNTS if getattr(got, name) != getattr(want, name)]
        if times != pytest.approx((want.start_s, want.duration_s), abs=1e-9):
            wrong += ["start_s, duration_s"]
        if got.replica != want.replica:
            wrong += ["replica"]
        if wrong:
            yield f"step {i} {', '.join(wrong)}:\n  fast  {got}\n  plain {want}"
            return
    if len(steps) != len(plain.steps):
        more, where = max((steps, "fast"), (plain.steps, "plain"), key=lambda pair: len(pair[0]))
        extra = more[min(len(steps), len(plain.steps))]
        yield f"{len(steps)} fast steps, {len(plain.steps)} plain; only {where}: {extra}"


def check(seed: int) -> None:
    """Raise with everything there is to know about a case in which the loops differ."""
    case = random_case(seed)
    plain = run_plainly(case)
    try:
        found = list(differences(run_fast(case), plain))
    except Exception as error:
        raise AssertionError(case.describe()) from error
    assert not found, "\n".join([case.describe(), *found])


@pytest.mark.parametrize("block", range(8))
def test_random_cases_are_identical(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        check(seed)
