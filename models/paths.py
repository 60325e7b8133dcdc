"""Acceptance paths of many requests at once, from a counter hash instead of a generator.

Every random number is a pure function of (seed, request, stream, step): a path does not depend on
the order or the chunks in which requests are drawn, and compared strategies share randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
Keys = NDArray[np.uint64]

REQUEST, STEP, SECOND = 1, 2, 3
"""Streams of a request: its own level, one number a step, a second number of some steps."""

PASSAGE, LEVEL, ANGLE, REPLAY = 4, 5, 6, 7
"""Whether a step begins a passage, the two numbers of its level, and records to replay."""

SIGNAL, STRANGER = 8, 10
"""Whether a signal about the next step is true, and of whom it speaks if it is not."""

LOSS = 9
"""How many accepted tokens a step keeps where KV is missing."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_MANTISSA_SHIFT = np.uint64(11)
_UNIT = 2.0**-53
_MARGIN_SD = 4.0


class Paths(NamedTuple):
    """Steps of several requests, request ``r`` owning ``[offsets[r]:offsets[r + 1]]``.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
        Bounds of the requests in the flat arrays.
    emitted : int64
        Tokens a step emits, the last step cut so that a request's sum is its ``tokens``.
    accepted : int64
        Draft tokens accepted, counted before that cut.
    drafted : int64 or None
        Draft tokens verified; None where it is the same every step.
    width : int64 or None
        Query tokens of the verify pass; None where it is the same every step.
    """

    offsets: Ints
    emitted: Ints
    accepted: Ints
    drafted: Ints | None = None
    width: Ints | None = None


class Sample(NamedTuple):
    """Uncut steps of a draw; the fields are those of `Paths`."""

    accepted: Ints
    drafted: Ints | None = None
    width: Ints | None = None


class Sampler(NamedTuple):
    """Draws steps of several requests.

    Attributes
    ----------
    guess : int64, shape (n,)
        Steps that almost surely suffice for their tokens.
    sample : callable
        Steps of each request, shape (n,) -> `Sample`; the first ones do not depend on how many
        are asked for.
    """

    guess: Ints
    sample: Callable[[Ints], Sample]


def _mix(x: Keys) -> Keys:
    """Finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014); overwrites and returns ``x``."""
    x ^= x >> _SHIFTS[0]
    x *= _MULTIPLIERS[0]
    x ^= x >> _SHIFTS[1]
    x *= _MULTIPLIERS[1]
    x ^= x >> _SHIFTS[2]
    return x


def request_keys(seed: int, ids: Ints, stream: int) -> Keys:
    """Hash state of one stream of each request; ``seed`` is taken modulo 2**64."""
    base = np.array([seed % 2**64], dtype=np.uint64) * _GAMMA
    stream_base = _mix(_mix(base) + np.uint64(stream))
    return _mix(stream_base + ids.astype(np.uint64) * _GAMMA)


def _unit(state: Keys) -> Floats:
    """Uniform numbers in [0, 1) of 53 bits; two rounds of mixing."""
    mixed = _mix(_mix(state))
    mixed >>= _MANTISSA_SHIFT
    return mixed * _UNIT


def step_uniforms(keys: Keys, counts: Ints) -> Floats:
    """Uniforms of steps 0..counts[r]-1 of every request, flat: shape (sum(counts),)."""
    starts = (np.cumsum(counts) - counts).astype(np.uint64)
    state = np.arange(int(counts.sum()), dtype=np.uint64)
    state *= _GAMMA
    state += np.repeat(keys - starts * _GAMMA, counts)
    return _unit(state)


def uniforms_at(keys: Keys, steps: Ints) -> Floats:
    """Uniforms of single steps: the same numbers as `step_uniforms` gives there."""
    return _unit(keys + steps.astype(np.uint64) * _GAMMA)


def request_normals(seed: int, ids: Ints) -> Floats:
    """Standard normal level of each request (Box-Muller on two of its own uniforms)."""
    keys = request_keys(seed, ids, REQUEST)
    radius = uniforms_at(keys, np.zeros(1, dtype=np.int64))
    angle = uniforms_at(keys, np.ones(1, dtype=np.int64))
    return normals(radius, angle)


def normals(radius: Floats, angle: Floats) -> Floats:
    """Standard normal numbers from two uniform ones each (Box-Muller)."""
    levels: Floats = np.sqrt(-2.0 * np.log1p(-radius)) * np.cos(2.0 * np.pi * angle)
    return levels


def step_numbers(counts: Ints) -> Ints:
    """Number of each step within its request, flat: 0..counts[r]-1 of every request."""
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(starts, counts)


def accepted_below(uniforms: Floats, survival: Floats, counts: Ints) -> Ints:
    """Accepted draft tokens of each step: how many survival levels its uniform lies below.

    Parameters
    ----------
    uniforms : float64, shape (sum(counts),)
        One number a step.
    survival : float64, shape (n, depth)
        P(accepted >= j) of each request, j = 1..depth, non-increasing.
    counts : int64, shape (n,)
        Steps of each request.
    """
    accepted = np.zeros(uniforms.size, dtype=np.int8)
    for level in survival.T:
        accepted += uniforms < np.repeat(level, counts)
    return accepted.astype(np.int64)


def steps_guess(tokens: Ints, survival: Floats) -> Ints:
    """Steps that suffice for ``tokens`` at mean plus four standard deviations."""
    odd = 2 * np.arange(1, survival.shape[1] + 1) - 1
    mean = survival.sum(axis=1)
    variance = np.maximum(survival @ odd - mean**2, 0.0)
    return enough_steps(tokens, mean, variance)


def enough_steps(tokens: Ints, mean: Floats, variance: Floats) -> Ints:
    """Steps that almost surely suffice, from mean and variance of what a step accepts."""
    tau = 1.0 + mean
    steps = tokens / tau + _MARGIN_SD * np.sqrt(tokens * variance / tau**3) + _MARGIN_SD
    guess: Ints = np.minimum(tokens, steps.astype(np.int64))
    return guess


def draw_paths(tokens: Ints, guess: Ints, sample: Callable[[Ints], Sample]) -> Paths:
    """Draw steps until every request has its tokens, then cut the last step.

    Parameters
    ----------
    tokens : int64, shape (n,)
        Tokens each request still has to emit; 0 means no steps.
    guess : int64, shape (n,)
        Steps to draw at first; a request that falls short is drawn with ``tokens`` steps.
    sample : callable
        Steps per request -> `Sample`; the first steps must not depend on how many are asked for.
    """
    counts = guess
    while True:
        drawn = sample(counts)
        total = np.concatenate(([0], np.cumsum(drawn.accepted + 1)))
        ends = np.cumsum(counts)
        starts = ends - counts
        goal = total[starts] + tokens
        last = np.searchsorted(total[1:], goal)
        short = (last >= ends) & (tokens > 0)
        if not short.any():
            return _cut(tokens, drawn, starts, last, total, goal)
        counts = np.where(short, tokens, counts)


def _cut(tokens: Ints, drawn: Sample, starts: Ints, last: Ints, total: Ints, goal: Ints) -> Paths:
    """Keep each request's steps up to ``last`` and trim that step to the goal."""
    alive = tokens > 0
    steps = np.where(alive, last - starts + 1, 0)
    offsets = np.concatenate(([0], np.cumsum(steps)))
    kept = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], steps)
    accepted = drawn.accepted[kept]
    emitted = accepted + 1
    emitted[offsets[1:][alive] - 1] -= total[1:][last[alive]] - goal[alive]
    drafted = None if drawn.drafted is None else drawn.drafted[kept]
    width = None if drawn.width is None else drawn.width[kept]
    return Paths(offsets, emitted, accepted, drafted, width)
