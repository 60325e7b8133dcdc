"""The fitted sampler against runs it has not seen.

Fitted on the first, third, ... requests of a domain, checked on the others: are their accepted
counts ones that the sampler might have drawn, and would independent steps have done as well?
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from calibration.acceptance.entries import Measured, block_of, fit_of
from calibration.acceptance.fit import Fit, Stated
from calibration.acceptance.sampler import draw
from calibration.acceptance.statistics import (
    Counts,
    Verdict,
    distributions,
    independence,
    verdict,
)
from calibration.acceptance.trace import LEAST_REQUESTS, Trace
from models.strategies import Strategy

REPLICATES = 399
LEVELS = 32
"""Draws of the fit's own uncertainty, which the replicates take in turns."""
TAU_REPLICATES = 200
SEED = 0


class Check(NamedTuple):
    """Odd requests against even ones.

    Attributes
    ----------
    fitted, independent : Verdict
        Of the fitted sampler, and of one with the same marginal rates in every step.
    is_independent : float
        P value of independent steps by permutation of all the domain's steps, without a fit.
    """

    fitted: Verdict
    independent: Verdict
    is_independent: float


def check(one: Measured, strategy: Strategy) -> Check | None:
    """Check of one domain; None where half of it is too few requests to fit."""
    odd, even = one.trace.halves()
    if odd.requests < LEAST_REQUESTS or even.requests < LEAST_REQUESTS:
        return None
    rng = np.random.default_rng(SEED)
    fitted, independent = samplers(fit_of(strategy, odd), rng)
    return Check(
        _compare(strategy, fitted, odd, even),
        _compare(strategy, independent, odd, even),
        independence(Counts(one.trace.accepted, one.trace.offsets), rng, REPLICATES),
    )


def samplers(fit: Fit, rng: np.random.Generator) -> tuple[list[Stated], list[Stated]]:
    """Blocks of the fitted sampler, and of one of independent steps that is as uncertain.

    Both have the same rates at every position, draw by draw: what tells them apart is how steps
    resemble each other.
    """
    fitted = fit.drawn(rng, LEVELS)
    return fitted, [fit.independent(one) for one in fitted]


def fitted_tau(one: Measured, strategy: Strategy) -> float:
    """Tau of the fitted sampler over many replicates of the very requests it was fitted to."""
    block = block_of(one.fit.stated, strategy, one.trace)
    drawn = draw(strategy, [block], one.trace, TAU_REPLICATES, SEED)
    accepted = sum(int(counts.accepted.sum()) for counts in drawn)
    return 1.0 + accepted / sum(counts.accepted.size for counts in drawn)


def _compare(strategy: Strategy, stated: list[Stated], fitted: Trace, unseen: Trace) -> Verdict:
    blocks: list[dict[str, Any]] = [block_of(one, strategy, fitted) for one in stated]
    drawn = draw(strategy, blocks, unseen, REPLICATES, SEED)
    observed = Counts(unseen.accepted, unseen.offsets)
    found = [distributions(counts, strategy.depth) for counts in (observed, *drawn)]
    return verdict(found[0], found[1:])
