"""The fitted sampler against runs it has not seen.

Fitted on the first, third, ... requests of a domain, checked on the others: are their accepted
counts ones that the sampler might have drawn, and would independent steps have done as well?
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.acceptance.entries import Measured, block_of, fit_of
from calibration.acceptance.fit import Fit, Stated
from calibration.acceptance.sampler import draw
from calibration.acceptance.statistics import (
    Counts,
    Verdict,
    dispersion,
    distances,
    distributions,
    together,
    verdict,
)
from calibration.acceptance.trace import LEAST_REQUESTS, Trace
from models.paths import Floats
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
    is_independent : Verdict
        Of independent steps, by permutation of the steps checked, without a fit.
    """

    fitted: Verdict
    independent: Verdict
    is_independent: Verdict


class Distances(NamedTuple):
    """What a `Check` is made from, shape (statistics, 1 + replicates) each, the observed first."""

    fitted: Floats
    independent: Floats
    is_independent: Floats

    @property
    def check(self) -> Check:
        """Of this domain alone."""
        return Check(*map(verdict, self))


def check_together(several: Sequence[Distances]) -> Check:
    """Check of several domains of a strategy at once, which sees more than each by itself."""
    return Check(*(together(own) for own in zip(*several, strict=True)))


def check(one: Measured, strategy: Strategy) -> Distances | None:
    """Check one domain; None where half of it is too few requests to fit."""
    odd, even = one.trace.halves()
    if odd.requests < LEAST_REQUESTS or even.requests < LEAST_REQUESTS:
        return None
    # Each pair draws by itself, or what chance does to one would be done to all.
    seed = zlib.crc32(f"{one.label} {one.domain}".encode())
    rng = np.random.default_rng(seed)
    fitted, independent = samplers(fit_of(strategy, odd), rng)
    return Distances(
        _compare(strategy, fitted, (odd, even), seed),
        _compare(strategy, independent, (odd, even), seed),
        dispersion(Counts(even.accepted, even.offsets), rng, REPLICATES),
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


def _compare(
    strategy: Strategy, stated: list[Stated], halves: tuple[Trace, Trace], seed: int
) -> Floats:
    fitted, unseen = halves
    blocks: list[dict[str, Any]] = [block_of(one, strategy, fitted) for one in stated]
    drawn = draw(strategy, blocks, unseen, REPLICATES, seed)
    observed = Counts(unseen.accepted, unseen.offsets)
    found = [distributions(counts, strategy.depth) for counts in (observed, *drawn)]
    return distances(found[0], found[1:])
