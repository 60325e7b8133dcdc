"""Prompt lookup: a match of the last tokens drafts, and one accepted in full tends to go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.laws import Summary
from models.paths import (
    SECOND,
    STEP,
    Floats,
    Ints,
    Keys,
    Sample,
    Sampler,
    accepted_below,
    request_keys,
    request_normals,
    step_uniforms,
    steps_guess,
)
from models.population import NgramLogits, NgramRates


@dataclass(frozen=True)
class NgramLaw(Summary):
    """Prompt lookup: a match drafts ``depth`` tokens, and one accepted in full tends to go on."""

    logits: NgramLogits
    spreads: Floats
    full_width: bool

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`; ``drafted`` and ``width`` follow the matches unless ``full_width``."""
        shift = self.spreads[domains] * request_normals(seed, ids)
        rates = NgramLogits(*(rows[domains] for rows in self.logits)).shifted(shift).rates()
        keys, second = (request_keys(seed, ids, stream) for stream in (STEP, SECOND))

        def sample(counts: Ints) -> Sample:
            accepted, matched = match_steps(rates, counts, keys, second)
            if self.full_width:
                return Sample(accepted)
            drafted = self.depth * matched
            return Sample(accepted, drafted, 1 + drafted)

        return Sampler(steps_guess(tokens, rates.unconditional), sample)


def match_steps(rates: NgramRates, counts: Ints, keys: Keys, second: Keys) -> tuple[Ints, Ints]:
    """Accepted tokens and match (0 or 1) of each step, stationary from a request's first step."""
    would = accepted_below(step_uniforms(second, counts), rates.survival, counts)
    first = (np.cumsum(counts) - counts)[counts > 0]
    enter, stay = np.repeat(rates.enter, counts), np.repeat(rates.stay, counts)
    enter[first] = rates.match[counts > 0]
    steps = Steps(step_uniforms(keys, counts), would, enter, stay, first)
    return follow(steps, rates.survival.shape[1])


class Steps(NamedTuple):
    """Numbers of the steps of prompt lookup, flat.

    Attributes
    ----------
    uniforms : float64
        Below ``enter`` or ``stay``, there is a match.
    would : int64
        Tokens accepted if there is one.
    enter, stay : float64
        P(match) after a step without and with a match accepted in full; ``stay`` is no less.
    first : int64
        First step of each request, where ``enter`` alone counts.
    """

    uniforms: Floats
    would: Ints
    enter: Floats
    stay: Floats
    first: Ints


def follow(steps: Steps, depth: int) -> tuple[Ints, Ints]:
    """Accepted tokens and match (0 or 1) of each step.

    Where the numbers of a step settle whether it ends in a match accepted in full, whatever came
    before, they do; elsewhere that state is the previous one. So it is the state of the last
    settled step, and no loop over steps is needed.
    """
    found = steps.uniforms < steps.enter
    kept = steps.uniforms < steps.stay
    kept[steps.first] = False
    whole = steps.would == depth

    settled = ~(kept & whole) | found
    full = found & whole
    source = np.maximum.accumulate(np.where(settled, np.arange(full.size), 0))
    found[1:] |= kept[1:] & full[source[:-1]]
    matched = found.astype(np.int64)
    return steps.would * matched, matched
