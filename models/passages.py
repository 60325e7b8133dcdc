"""Requests whose acceptance varies from step to step: by passage, and with their context.

Step ``t`` of request ``r`` accepts at least ``j`` draft tokens with probability
``prod_{i<=j} sigmoid(l_i + spread z_r + step_spread e_rt + context_slope log2(c_t / reference))``.
``z_r`` is the level of the request and ``e_rt`` that of the passage its step is in, both standard
normal; the next step stays in the passage with probability ``step_memory``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.laws import Pool, Summary
from models.paths import (
    ANGLE,
    LEVEL,
    PASSAGE,
    STEP,
    Floats,
    Ints,
    Sample,
    Sampler,
    enough_steps,
    normals,
    request_keys,
    request_normals,
    step_numbers,
    step_uniforms,
    uniforms_at,
)
from models.population import NODES, WEIGHTS, cumulative, logit, sigmoid

_ROUNDS = 300
_STRIDE = 2.0
_CLOSE = 1e-12


class Variation(NamedTuple):
    """How acceptance varies within a request; every field a number a domain.

    Attributes
    ----------
    step_spread : float64
        Standard deviation of the logits from passage to passage.
    step_memory : float64
        P(a step is in the passage of the one before).
    context_slope : float64
        Change of the logits per doubling of the context.
    context_reference, shortest, longest : float64
        Context at which the logits hold, and the contexts the slope covers [token].
    """

    step_spread: Floats
    step_memory: Floats
    context_slope: Floats
    context_reference: Floats
    shortest: Floats
    longest: Floats

    def of(self, domains: Ints) -> Variation:
        """The same, a number a request."""
        return Variation(*(values[domains] for values in self))

    def context_shift(self, context: Floats) -> Floats:
        """Shift of the logits at a context [token]."""
        inside = np.clip(context, self.shortest, self.longest)
        shift: Floats = self.context_slope * np.log2(inside / self.context_reference)
        return shift


def averaged(logits: Floats, shift: Floats, step_spread: Floats | float) -> Floats:
    """Survival of each row, its passages averaged: shape (n, depth)."""
    if not np.any(step_spread):
        return cumulative(logits, shift)
    # One node after another: a row's sum must not depend on the rows beside it.
    total = np.zeros(np.broadcast_shapes(logits.shape, (shift.size, 1)))
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        total += weight * cumulative(logits, shift + node * step_spread)
    return total


def solved(target: Floats, spread: float, step_spread: float) -> Floats:
    """Logits by position at which the whole population has the rates ``sigmoid(target)``.

    Rates are shares of the steps that got as far, over requests of equal length, of which one
    counts as ``1 / tau(z)``.

    Parameters
    ----------
    target : float64, shape (depth,)
        Conditional rates of the population, as logits; plus and minus infinity stay.
    spread, step_spread : float
        Standard deviation of the logits between and within requests.
    """
    shift = spread * NODES[:, None] + step_spread * NODES
    logits = np.array(target, dtype=np.float64)
    for _ in range(_ROUNDS):
        move = _moves(target, logits, shift)
        logits += move
        if np.abs(move).max(initial=0.0) < _CLOSE:
            break
    return logits


def _moves(target: Floats, logits: Floats, shift: Floats) -> Floats:
    """A Newton step of every position, on the scale of logits."""
    rates = sigmoid(logits[:, None, None] + shift)
    survival = np.cumprod(rates, axis=0)
    tau = 1.0 + (survival.sum(axis=0) * WEIGHTS).sum(axis=1)
    reached = (WEIGHTS / tau)[:, None] * WEIGHTS * np.ones_like(shift)
    moves = np.zeros_like(logits)
    for position, rate in enumerate(rates):
        total = reached.sum()
        mean = (reached * rate).sum() / total if total > 0.0 else 0.0
        if np.isfinite(target[position]) and 0.0 < mean < 1.0:
            slope = (reached * rate * (1.0 - rate)).sum() / total
            gap = target[position] - float(logit(np.array([mean]))[0])
            moves[position] = np.clip(gap * mean * (1.0 - mean) / slope, -_STRIDE, _STRIDE)
        reached = reached * rate
    return moves


def passage_levels(seed: int, ids: Ints, counts: Ints, memory: Floats) -> Floats:
    """Level of the passage of every step, flat: shape (sum(counts),).

    A step whose own number says so begins a passage, whatever came before; its level is drawn
    there, and holds up to the next one that does.
    """
    fresh = step_uniforms(request_keys(seed, ids, PASSAGE), counts) >= np.repeat(memory, counts)
    steps = step_numbers(counts)
    fresh[steps == 0] = True
    begin = np.flatnonzero(fresh)
    radius, angle = (
        uniforms_at(np.repeat(request_keys(seed, ids, stream), counts)[begin], steps[begin])
        for stream in (LEVEL, ANGLE)
    )
    last = np.maximum.accumulate(np.where(fresh, np.arange(fresh.size), 0))
    levels = np.zeros(fresh.size)
    levels[begin] = normals(radius, angle)
    return levels[last]


@dataclass(frozen=True)
class PassageLaw(Summary):
    """Chain or tree whose steps vary: logits by depth of shape (domains, depth).

    Attributes
    ----------
    pool : Pool or None
        Guesses of lookahead decoding, whose number sets the width of a step.
    """

    logits: Floats
    spreads: Floats
    variation: Variation
    pool: Pool | None = None

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`."""
        logits, vary = self.logits[domains], self.variation.of(domains)
        shift = self.spreads[domains] * request_normals(seed, ids)
        keys, pool = request_keys(seed, ids, STEP), self.pool
        sloped = prompts is not None and bool(vary.context_slope.any())
        pace = np.ones_like(shift)
        if sloped:
            pace += averaged(logits, shift, vary.step_spread).sum(axis=1)

        def sample(counts: Ints) -> Sample:
            at = np.repeat(shift, counts)
            if vary.step_spread.any():
                levels = passage_levels(seed, ids, counts, vary.step_memory)
                at += np.repeat(vary.step_spread, counts) * levels
            if prompts is not None and sloped:
                context = np.repeat(prompts + 1.0, counts)
                context += step_numbers(counts) * np.repeat(pace, counts)
                at += Variation(*(np.repeat(row, counts) for row in vary)).context_shift(context)
            accepted = _accepted(step_uniforms(keys, counts), logits, at, counts)
            if pool is None or pool.found_share == 1.0:
                return Sample(accepted)
            return Sample(accepted, width=(pool.w + pool.found(seed, ids, counts)) * self.depth)

        worst = shift
        if prompts is not None and sloped:
            ends = (vary.context_shift(prompts + 1.0 + n) for n in (0 * tokens, 2 * tokens))
            worst = shift + np.minimum(*ends)
        return Sampler(_guess(tokens, logits, worst, vary), sample)


def _accepted(uniforms: Floats, logits: Floats, shift: Floats, counts: Ints) -> Ints:
    """Accepted draft tokens of each step, every one with a shift of its own."""
    accepted = np.zeros(uniforms.size, dtype=np.int8)
    survival = np.ones(uniforms.size)
    for level in logits.T:
        survival *= sigmoid(np.repeat(level, counts) + shift)
        accepted += uniforms < survival
    return accepted.astype(np.int64)


def _guess(tokens: Ints, logits: Floats, shift: Floats, vary: Variation) -> Ints:
    """Steps that almost surely suffice, long passages of low acceptance included."""
    odd = 2 * np.arange(1, logits.shape[1] + 1) - 1
    varied = bool(vary.step_spread.any())
    nodes, weights = (NODES, WEIGHTS) if varied else (np.zeros(1), np.ones(1))
    mean, second, held = np.zeros((3, shift.size))
    for node, weight in zip(nodes, weights, strict=True):
        survival = cumulative(logits, shift + node * vary.step_spread)
        taken = survival.sum(axis=1)
        mean += weight * taken
        second += weight * (survival * odd).sum(axis=1)
        held += weight * taken**2
    longer = 2.0 * vary.step_memory / (1.0 - vary.step_memory)
    variance = np.maximum(second - mean**2, 0.0) + longer * np.maximum(held - mean**2, 0.0)
    return enough_steps(tokens, mean, variance)
