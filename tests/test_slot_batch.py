"""The batch of sequences that may switch gives the tables of the fast one where none does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.mixed_modes import MixedModes
from models.paths import Sample, Sampler
from models.strategies.autoregressive import Autoregressive
from sim.engine import fleet as product
from sim.engine.modes import Mode, Modes
from sim.engine.recorder import Recorder
from sim.engine.simulate import Plan
from tests.random_case import Case, random_case
from tests.server import simulate_with_rows
from tests.test_loop_equivalence import Cost, FixedPaths, differences, run_plainly


class FixedSteps(FixedPaths):
    """A law that hands out the steps of prepared paths one by one."""

    def sampler(self, seed: int, ids: np.ndarray, *_: Any) -> Sampler:
        paths = self.paths(seed, ids, *[np.zeros(0)] * 2)
        offsets = paths.offsets

        def sample(counts: np.ndarray) -> Sample:
            def laid_out(flat: np.ndarray | None) -> np.ndarray | None:
                if flat is None:
                    return None
                rows = np.zeros(int(counts.sum()), dtype=np.int64)
                starts = np.cumsum(counts) - counts
                for r, start in enumerate(starts):
                    own = flat[offsets[r] : offsets[r + 1]]
                    rows[start : start + len(own)] = own
                return rows

            accepted = laid_out(paths.accepted)
            assert accepted is not None
            return Sample(accepted, laid_out(paths.drafted), laid_out(paths.width))

        return Sampler(np.zeros(len(ids), dtype=np.int64), sample)


def run_in_slots(case: Case) -> Recorder:
    """As `tests.test_loop_equivalence.run_fast`, its only mode given as one of several."""
    rules, fleet, k = case.rules, case.fleet, case.drafted_per_step
    cost, law = Cost(case.cost, rules.width), FixedSteps(case.paths)
    cost.width = rules.width  # type: ignore[attr-defined]
    mode = Mode("only", 0, k, k, k + 1, rules.slots, 0, None)
    modes = Modes(Autoregressive(), (mode,), (law,), MixedModes([cost], 0), 0)  # type: ignore
    requests = SimpleNamespace(**vars(case.requests))
    requests.stream = np.zeros(len(requests.prompt_tokens), dtype=np.int64)
    requests.stream_names = ("all",)
    plan = Plan(
        rules=rules,
        cost=cost,
        law=law,  # type: ignore[arg-type]
        drafted=k,
        varies_width=True,
        fleet=product.Fleet(
            replicas=fleet.replicas,
            router=fleet.router,  # type: ignore[arg-type]
            refresh_s=fleet.refresh_s,
            queue_limit=fleet.queue_limit,
            client=product.Client.model_construct(**fleet.client._asdict()),
            outages=tuple(product.Outage(**outage._asdict()) for outage in fleet.outages),
        ),
        modes=modes,
    )
    return simulate_with_rows(plan, requests, case.seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", range(4))
def test_random_cases_are_those_of_the_plain_loop(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        case = random_case(seed)
        plain = run_plainly(case)
        try:
            found = list(differences(run_in_slots(case), plain))
        except Exception as error:
            raise AssertionError(case.describe()) from error
        assert not found, "\n".join([case.describe(), *found])
