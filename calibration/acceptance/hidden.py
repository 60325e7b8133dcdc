"""Steps whose passage is hidden: their likelihood, and how likely each level was afterwards.

Given a request's level z, the level e of its passage is a Markov chain: it goes on with a
probability, the memory, and is otherwise drawn anew. A step shows a code whose probability depends
on both levels alone. So a request's likelihood is a forward pass for each point of z, and a
gradient comes from the backward pass (Fisher's identity).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy import sparse

from models.paths import Floats, Ints

CHUNK = 32
"""Requests handled at once, for memory."""
_FAR = 1e100
"""How much likelier the steps to come may be than they were, at levels as good as ruled out."""


class Levels(NamedTuple):
    """Points and weights of a request's level z, and of a passage's level e."""

    z: Floats
    z_weights: Floats
    e: Floats
    e_weights: Floats

    def shift(self, spread: float, step_spread: float) -> Floats:
        """Of the logits, at every pair of levels: shape (pairs,)."""
        by_pair: Floats = (spread * self.z[:, None] + step_spread * self.e).ravel()
        return by_pair

    def slopes(self, by_pair: Floats) -> tuple[float, float]:
        """Slopes in spread and step spread, from those in the shift of each pair."""
        by_level = by_pair.reshape(self.z.size, self.e.size)
        return float(self.z @ by_level.sum(1)), float(by_level.sum(0) @ self.e)


class Shown(Protocol):
    """What each step showed, as a code.

    Attributes
    ----------
    codes : int64, shape (steps,)
    starts, lengths : int64, shape (n,)
        Steps of each request in ``codes``.
    """

    @property
    def codes(self) -> Ints:
        """See above."""
        ...

    @property
    def starts(self) -> Ints:
        """See above."""
        ...

    @property
    def lengths(self) -> Ints:
        """See above."""
        ...


class Smoothed(NamedTuple):
    """Log likelihood, and what its gradient is made from.

    Attributes
    ----------
    value : float
    counts : float64, shape (codes, pairs)
        Expected steps of each code at each pair of levels.
    memory_slope : float
        Derivative in the memory.
    """

    value: float
    counts: Floats
    memory_slope: float


def smoothed(
    data: Shown, probability: Floats, memory: float, levels: Levels, gradient: bool = True
) -> Smoothed:
    """Log likelihood of all requests.

    Parameters
    ----------
    data : Shown
    probability : float64, shape (codes, pairs)
        Of each code at each pair of levels.
    memory : float
        P(a step is in the passage of the one before).
    levels : Levels
    gradient : bool
        Without it counts and slope are zero, in a third of the time.
    """
    counts = np.zeros_like(probability)
    total, memory_slope = 0.0, 0.0
    order = np.argsort(-data.lengths, kind="stable")
    for first in range(0, order.size, CHUNK):
        chunk = order[first : first + CHUNK]
        value, kept = _forward(data, chunk, probability, memory, levels, gradient)
        total += value
        if gradient:
            memory_slope += _backward(data, chunk, memory, levels, kept, counts)
    return Smoothed(total, counts, memory_slope)


class _Forward(NamedTuple):
    """By step t, of the requests still running there.

    Attributes
    ----------
    running : list of int
        How many of them: those of a chunk are sorted by length, longest first.
    states, seen, scales : list of float64, shapes (n, z, e), (n, z, e) and (n, 1, 1)
        Levels given the steps up to t, probability of what t showed, and its sum over levels.
    """

    running: list[int]
    states: list[Floats]
    seen: list[Floats]
    scales: list[Floats]


def _forward(
    data: Shown, chunk: Ints, probability: Floats, memory: float, levels: Levels, keep: bool
) -> tuple[float, _Forward]:
    """Log likelihood of some requests, and what the backward pass needs if ``keep``."""
    lengths, starts = data.lengths[chunk], data.starts[chunk]
    pairs = (levels.z.size, levels.e.size)
    running = [int(np.searchsorted(-lengths, -t, "left")) for t in range(int(lengths[0]))]
    state = np.broadcast_to(
        levels.z_weights[:, None] * levels.e_weights, (chunk.size, *pairs)
    ).copy()
    kept, total = _Forward(running, [], [], []), 0.0
    for t, n in enumerate(running):
        state = state[:n]
        if t:
            anew = state.sum(2, keepdims=True) * levels.e_weights
            state = memory * state + (1.0 - memory) * anew
        seen = probability[data.codes[starts[:n] + t]].reshape(n, *pairs)
        state = state * seen
        scale = state.sum((1, 2), keepdims=True)
        state /= scale
        total += float(np.log(scale).sum())
        if keep:
            kept.states.append(state)
            kept.seen.append(seen)
            kept.scales.append(scale)
    return total, kept


def _backward(
    data: Shown, chunk: Ints, memory: float, levels: Levels, kept: _Forward, counts: Floats
) -> float:
    """Slope of the log likelihood in the memory; adds posterior ``counts``."""
    starts, later, slope = data.starts[chunk], np.ones_like(kept.states[0]), 0.0
    posteriors, codes = [], []
    for t in range(len(kept.running) - 1, -1, -1):
        n = kept.running[t]
        posteriors.append((kept.states[t] * later[:n]).reshape(n, -1))
        codes.append(data.codes[starts[:n] + t])
        if t:
            ahead = kept.seen[t] * later[:n] / kept.scales[t]
            anew = (ahead @ levels.e_weights)[..., None]
            slope += float((kept.states[t - 1][:n] * (ahead - anew)).sum())
            later[:n] = np.minimum(memory * ahead + (1.0 - memory) * anew, _FAR)
    counts += _by_code(np.concatenate(codes), np.concatenate(posteriors), len(counts))
    return slope


def _by_code(codes: Ints, posteriors: Floats, count: int) -> Floats:
    """Sum of the rows of each code."""
    rows = np.arange(codes.size)
    one = sparse.csr_array((np.ones(codes.size), (codes, rows)), shape=(count, codes.size))
    summed: Floats = one @ posteriors
    return summed
