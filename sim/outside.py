"""Where kernel times come from, and how far steps go beyond what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from models.kernel_use import kernel_uses, missing, source
from sim.analysis.metrics import finished
from sim.engine.recorder import Recorder
from sim.setup import Setup
from sim.tables import Columns

COMPONENTS = ("weights", "attention", "kv", "elementwise", "lm_head", "collectives", "draft")


class Reach(NamedTuple):
    """The largest steps: tokens, sequences that decode, tokens of context of one of them."""

    m: int
    batch: int
    context_tokens: int


def reach_of(setup: Setup, recorders: Sequence[Recorder], runs: Sequence[Columns]) -> Reach:
    """Largest steps of all replications."""
    totals = [totals for recorder in recorders for totals in recorder.totals]
    batch = max(one.n_peak for one in totals)
    mixed = max(one.tokens_peak for one in totals)
    longest = 0
    for run in runs:
        lengths = (run["prompt_tokens"] + run["output_tokens"])[finished(run)]
        longest = max(longest, int(lengths.max(initial=0)))
    return Reach(max(mixed, batch * setup.rules.width), batch, longest)


def outside(setup: Setup, reach: Reach, n: int, query_tokens: int) -> dict[str, Any]:
    """What kernel constants and measured rows have not seen of the steps there were.

    Parameters
    ----------
    setup : Setup
    reach : Reach
    n, query_tokens : int
        A usual decode step.

    Returns
    -------
    dict
        ``measured`` (lowest and highest) and ``reached`` by quantity: ``m``, ``batch``,
        ``context_tokens``; under ``kernels`` those whose measured rows do not reach a usual step
        or the largest. Empty where everything lies within.
    """
    valid = setup.deployment.profile.valid
    found: dict[str, Any] = {}
    for name, reached in reach._asdict().items():
        span = getattr(valid, name)
        if span is not None and reached > span[1]:
            found[name] = {"measured": list(span), "reached": reached}
    prompt_tokens = max(reach.m - query_tokens, 0)
    steps = [kernel_uses(setup.step_time, n, query_tokens, more) for more in (0, prompt_tokens)]
    kernels = missing(use for step in steps for uses in step.values() for use in uses)
    return found | ({"kernels": kernels} if kernels else {})


def kernel_sources(setup: Setup, n: int, query_tokens: int) -> dict[str, str]:
    """Where the times of a decode step come from, by component; the host's are no kernels."""
    uses = kernel_uses(setup.step_time, n, query_tokens)
    found = {name: str(source(some)) for name, some in uses.items() if some}
    # A step stays affine in its contexts, so attention has closed forms only.
    found |= dict.fromkeys(("attention", "kv", "elementwise"), "closed form")
    return {name: found[name] for name in COMPONENTS if name in found}
