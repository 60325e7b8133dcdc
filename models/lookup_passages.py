"""Prompt lookup whose matches come in passages: rarer and shorter in one, long in the next.

The logits of a match found, of one that goes on, and of every draft token of step ``t`` of request
``r`` are all shifted by ``spread z_r + step_spread e_rt``, the levels of `models.passages`. Given
``z_r``, whether a step ends in a match accepted in full is a chain along with ``e_rt``. With
``A = end enter`` and ``G = end (stay - enter)``, ``end`` being P(all accepted | match), and the
memory ``m``, its stationary shares are

    P(full | e)            f = (A + G (1 - m) F) / (1 - m G)
    P(full)                F = E[A / (1 - m G)] / (1 - (1 - m) E[G / (1 - m G)])
    P(full one before | e) b = m f + (1 - m) F
    P(match | e)           enter + b (stay - enter)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.laws import Summary
from models.lookup import Steps, follow
from models.passages import passage_levels
from models.paths import (
    SECOND,
    STEP,
    Floats,
    Ints,
    Sample,
    Sampler,
    enough_steps,
    request_keys,
    request_normals,
    step_uniforms,
)
from models.population import NODES, WEIGHTS, NgramLogits, NgramRates, logit, sigmoid

_ROUNDS = 400
_STRIDE = 2.0
_CLOSE = 1e-11


class Means(NamedTuple):
    """Shares of the steps of a population, over requests of equal length (each ``1 / tau(z)``).

    Attributes
    ----------
    match_rate : float
        Share of steps with a match.
    match_stay : float
        P(match | match accepted in full at the step before).
    alphas : float64, shape (k,)
        P(draft token accepted | match, all before it were).
    """

    match_rate: float
    match_stay: float
    alphas: Floats

    def logits(self) -> Floats:
        """All of them, shape (2 + k,)."""
        return logit(np.array([self.match_rate, self.match_stay, *self.alphas]))


def averaged_matches(
    at: NgramLogits, shift: Floats, step_spread: float, step_memory: float
) -> Floats:
    """P(accepted >= j) over all steps of requests at these shifts: shape (n, k)."""
    matched = _by_passage(at, shift, step_spread, step_memory)
    survival: Floats = np.einsum("e,en,enj->nj", WEIGHTS, matched.match, matched.survival)
    return survival


def match_means(at: NgramLogits, spread: float, step_spread: float, step_memory: float) -> Means:
    """What a measurement of the whole population states, at logits ``at`` of one row."""
    own = _by_passage(at, spread * NODES, step_spread, step_memory)
    accepted = np.einsum("e,en,enj->nj", WEIGHTS, own.match, own.survival)
    steps = WEIGHTS[:, None] * WEIGHTS / (1.0 + accepted.sum(axis=1))
    matches = steps * own.match
    reached = np.array([matches.sum(), *np.einsum("en,enj->j", matches, own.survival)])
    before = reached[:-1]
    alphas = np.divide(reached[1:], before, out=np.zeros_like(before), where=before > 0.0)
    full = steps * own.before
    stay = (full * own.stay).sum() / full.sum() if full.any() else 0.0
    return Means(float(reached[0] / steps.sum()), float(stay), np.minimum(alphas, 1.0))


def matches_solved(
    stated: Means, spread: float, step_spread: float, step_memory: float
) -> NgramLogits:
    """Logits of one row at which the population has these means; rates of 0 and 1 stay.

    Parameters
    ----------
    stated : Means
    spread, step_spread : float
        Standard deviation of the logits between and within requests.
    step_memory : float
        P(a step is in the passage of the one before).
    """
    target = stated.logits()
    moves = np.isfinite(target)
    at = target.copy()
    for _ in range(_ROUNDS):
        found = match_means(_row(at), spread, step_spread, step_memory).logits()
        known = moves & np.isfinite(found)
        step = np.clip(target[known] - found[known], -_STRIDE, _STRIDE)
        at[known] += step
        if np.abs(step).max(initial=0.0) < _CLOSE:
            break
    return _row(at)


def _row(logits: Floats) -> NgramLogits:
    return NgramLogits(logits[:1], logits[1:2], logits[None, 2:])


class _Matched(NamedTuple):
    """By passage level and request, shape (levels, n); ``survival`` of shape (levels, n, k)."""

    before: Floats
    match: Floats
    stay: Floats
    survival: Floats


def _by_passage(at: NgramLogits, shift: Floats, step_spread: float, step_memory: float) -> _Matched:
    shifts = shift + step_spread * NODES[:, None]
    rates = at.shifted(shifts.ravel()).rates()
    survival = rates.survival.reshape(*shifts.shape, -1)
    enter, stay = (values.reshape(shifts.shape) for values in (rates.enter, rates.stay))
    linked = _Linked(enter, stay - enter, survival[..., -1])
    before = linked.before(step_memory, linked.full(step_memory))
    return _Matched(before, enter + before * linked.gain, stay, survival)


class _Linked(NamedTuple):
    """What links a step to the one before: P(match) without and how much more with one in full."""

    enter: Floats
    gain: Floats
    end: Floats

    def full(self, memory: Floats | float) -> Floats:
        """F of each request, from rows of all the passage levels."""
        kept = 1.0 / (1.0 - memory * self.end * self.gain)
        start, more = np.zeros((2, self.enter.shape[1]))
        # One node after another: a request's sum must not depend on those beside it.
        for weight, share, gain in zip(
            WEIGHTS, self.end * self.enter * kept, self.end * self.gain * kept, strict=True
        ):
            start += weight * share
            more += weight * gain
        return start / (1.0 - (1.0 - memory) * more)

    def before(self, memory: Floats | float, full: Floats) -> Floats:
        """P(the step before ended in a match accepted in full | level), given F."""
        gain, other = self.end * self.gain, (1.0 - memory) * full
        here: Floats = (self.end * self.enter + gain * other) / (1.0 - memory * gain)
        return memory * here + other


@dataclass(frozen=True)
class NgramPassageLaw(Summary):
    """Prompt lookup in passages; spreads and memory a number a domain."""

    logits: NgramLogits
    spreads: Floats
    step_spreads: Floats
    step_memories: Floats
    full_width: bool

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`; ``drafted`` and ``width`` follow the matches unless ``full_width``."""
        at = NgramLogits(*(rows[domains] for rows in self.logits))
        shift = self.spreads[domains] * request_normals(seed, ids)
        vary, memory = self.step_spreads[domains], self.step_memories[domains]
        full, guess = _stationary(at, shift, vary, memory, tokens)
        keys, second = (request_keys(seed, ids, stream) for stream in (STEP, SECOND))

        def sample(counts: Ints) -> Sample:
            levels = passage_levels(seed, ids, counts, memory)
            by = np.repeat(shift, counts) + np.repeat(vary, counts) * levels
            enter = sigmoid(np.repeat(at.enter, counts) + by)
            stay = np.maximum(enter, sigmoid(np.repeat(at.stay, counts) + by))
            would, end = _would(step_uniforms(second, counts), at.accepted, by, counts)
            first = (np.cumsum(counts) - counts)[counts > 0]
            begun = _Linked(enter[first], (stay - enter)[first], end[first])
            before = begun.before(memory[counts > 0], full[counts > 0])
            enter[first] += before * begun.gain
            steps = Steps(step_uniforms(keys, counts), would, enter, stay, first)
            accepted, matched = follow(steps, self.depth)
            if self.full_width:
                return Sample(accepted)
            drafted = self.depth * matched
            return Sample(accepted, drafted, 1 + drafted)

        return Sampler(guess, sample)


def _would(uniforms: Floats, logits: Floats, by: Floats, counts: Ints) -> tuple[Ints, Floats]:
    """Tokens each step accepts of a match, and P(all of them), by the shift of each step."""
    would = np.zeros(uniforms.size, dtype=np.int8)
    survival = np.ones(uniforms.size)
    for level in logits.T:
        survival *= sigmoid(np.repeat(level, counts) + by)
        would += uniforms < survival
    return would.astype(np.int64), survival


def _stationary(
    at: NgramLogits, shift: Floats, vary: Floats, memory: Floats, tokens: Ints
) -> tuple[Floats, Ints]:
    """Share of steps with a match accepted in full of each request, and steps that suffice."""
    every: list[NgramRates] = [at.shifted(shift + node * vary).rates() for node in NODES]
    enter, stay, end, taken = (
        np.array(values)
        for values in zip(
            *((one.enter, one.stay, one.survival[:, -1], one.survival.sum(1)) for one in every),
            strict=True,
        )
    )
    linked = _Linked(enter, stay - enter, end)
    full = linked.full(memory)
    match = enter + linked.before(memory, full) * linked.gain
    mean = WEIGHTS @ (match * taken)
    longer = (1.0 + memory) / (1.0 - memory)
    depth = at.accepted.shape[1]
    variance = longer * (depth * mean - mean**2)
    return full, enough_steps(tokens, mean, np.maximum(variance, 0.0))
