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
from tests.switching import PLAIN, Served, chain, dynamic, gate, scheduled, serve
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


@pytest.mark.parametrize("block", range(3))
def test_random_cases_are_those_of_the_plain_loop(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        case = random_case(seed)
        plain = run_plainly(case)
        try:
            found = list(differences(run_in_slots(case), plain))
        except Exception as error:
            raise AssertionError(case.describe()) from error
        assert not found, "\n".join([case.describe(), *found])


# Strategies that could switch and do not

COUNTED = ("n_steps", "drafted", "accepted", "preemptions", "status")


def assert_same(switching: Served, alone: Served, columns: Any = COUNTED) -> None:
    """Same request table and steps; times to the last digits, as sums may be in another order."""
    for name in columns:
        assert getattr(switching.log, name) == getattr(alone.log, name), name
    for name in ("schedule_s", "first_token_s", "finish_s"):
        got, want = getattr(switching.log, name), getattr(alone.log, name)
        np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=name)
    for name, want in alone.steps.items():
        np.testing.assert_allclose(switching.steps[name], want, rtol=1e-9, atol=1e-15, err_msg=name)


LOOKUP = chain("ngram", 4, alpha=0.7, match_rate=0.5)
UNEVEN = {
    "prompt": {"kind": "lognormal", "mean": 900, "cv": 1},
    "output": {"kind": "lognormal", "mean": 60, "cv": 1},
}


@pytest.mark.parametrize(
    "primary",
    [chain(), chain("draft_model", 3), chain("ngram", 4, alpha=0.7, match_rate=0.5)],
    ids=str,
)
def test_a_gate_that_never_closes_is_its_primary_alone(primary: dict[str, Any]) -> None:
    kept = serve(gate(primary, leave_below=0), users=12, **UNEVEN)
    assert not kept.switches()
    assert_same(kept, serve(primary, users=12, **UNEVEN))


def test_a_gate_tends_to_the_fallback_alone() -> None:
    """One step of the primary each request, then plain decoding that nothing opens again."""
    shut = {"measure": "tau", "leave_below": 1000, "window_tokens": 1, "dwell_steps": 0}
    back = {"kind": "probe", "every_steps": 10**6}
    gated = serve(gate(chain(alpha=0.05), **shut, **{"return": back}), output=400)
    plain = serve(PLAIN, output=400)
    assert gated.modes()[0, 1] == 32
    assert gated.makespan_s() == pytest.approx(plain.makespan_s(), rel=0.02)
    tail = gated.steps["draft_s"] == 0
    assert tail.mean() > 0.95


ENGINES = [{"name": "vllm_0.15"}, {"name": "vllm_0.33"}]


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("kind", ["eagle3", "draft_model"])
def test_a_schedule_of_one_k_is_that_k(kind: str, k: int) -> None:
    """Steps that compute prompts included: they run the K in force, not the largest."""
    asked = dynamic(scheduled([1, k]), chain(kind, 4), reserve="active")
    assert_same(serve(asked, **UNEVEN), serve(chain(kind, k), **UNEVEN))


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_a_schedule_of_the_largest_k_of_prompt_lookup_is_prompt_lookup(
    engine: dict[str, Any],
) -> None:
    """With drafts in every step or in those of a match."""
    assert_same(
        serve(dynamic(scheduled([1, 4]), LOOKUP), engine=engine, **UNEVEN),
        serve(LOOKUP, engine=engine, **UNEVEN),
    )


def test_a_schedule_of_no_drafts_is_plain_decoding() -> None:
    """To the last step without a draft network; with one, its prompts are computed all the same."""
    for name in ("vllm_0.13", "vllm_0.33"):  # nothing is scheduled ahead, and everything
        on = {"engine": {"name": name}, **UNEVEN}
        lookup = serve(dynamic(scheduled([1, 0]), LOOKUP, reserve="active"), **on)
        assert_same(lookup, serve(PLAIN, **on))
    flat = serve(PLAIN)
    drafting = serve(dynamic(scheduled([1, 0]), chain()))
    assert (drafting.log.n_steps, drafting.log.drafted) == (flat.log.n_steps, flat.log.drafted)
    prompts = drafting.steps["prefill_tokens"] > 0
    assert (drafting.steps["draft_s"][~prompts] == 0).all()
    assert (drafting.steps["draft_s"][prompts] > 0).all()
    others = [served.steps["duration_s"][~prompts] for served in (drafting, flat)]
    np.testing.assert_allclose(*others, rtol=1e-12)


def test_host_work_is_hidden_only_where_that_of_all_modes_is() -> None:
    """Prompt lookup is not scheduled ahead here, so plain steps beside it are not either."""
    for name, hidden in (("vllm_0.15", False), ("vllm_0.33", True)):
        on = {"engine": {"name": name}}
        lookup = serve(dynamic(scheduled([1, 0]), LOOKUP), **on)
        assert lookup.setup.rules.async_scheduling == hidden
        assert ((lookup.steps["host_s"] == 0) == hidden).all()
