"""Likelihood of recorded accepted counts under the law of chains and trees.

A step accepts at least j draft tokens with probability ``prod_{i<=j} sigmoid(l_i + u)``, where
``u = spread z + step_spread e + context_slope x``: z is a request's level, e the level of a passage
that goes on with probability ``step_memory`` and is otherwise drawn anew, x the context in octaves
above a reference. Given z the passages are a hidden Markov chain, so a request's likelihood is a
forward pass for each point of z; the gradient comes from the backward pass (Fisher's identity).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from calibration.acceptance.trace import Trace
from models.paths import Floats, Ints

CONTEXT_BINS = 24
"""Contexts closer than a 24th of the range share one table: far below a slope's effect."""

CHUNK = 32
"""Requests handled at once, for memory."""


class Levels(NamedTuple):
    """Points and weights of a request's level z, and of a passage's level e."""

    z: Floats
    z_weights: Floats
    e: Floats
    e_weights: Floats


class Parameters(NamedTuple):
    """Of the law, in one domain; ``logits`` of shape (depth,)."""

    logits: Floats
    spread: float
    step_spread: float
    step_memory: float
    context_slope: float

    @classmethod
    def of(cls, vector: Floats) -> Parameters:
        """From a vector: logits, then the others in order."""
        return cls(vector[:-4], *(float(value) for value in vector[-4:]))

    def vector(self) -> Floats:
        """Logits, then the others in order."""
        return np.concatenate((self.logits, self[1:]))


@dataclass(frozen=True)
class Outcomes:
    """What each step showed, as a code ``bin * outcomes + outcome``.

    Outcomes 0..depth: so many levels passed and the next refused (all of them at ``depth``).
    Outcomes ``depth + 1 + j``: j levels passed, no more drafted.

    Attributes
    ----------
    codes : int64, shape (steps,)
    starts, lengths : int64, shape (n,)
        Steps of each request in ``codes``.
    octaves : float64, shape (bins,)
        Mean log2(context / reference) of each bin.
    depth : int
    reference : float
        Median context of a step [token].
    context_range : tuple of int
        Least and most context of a step [token].
    """

    codes: Ints
    starts: Ints
    lengths: Ints
    octaves: Floats
    depth: int
    reference: float
    context_range: tuple[int, int]


def outcomes(trace: Trace, depth: int, chain: bool) -> Outcomes:
    """Outcomes of a trace; the steps of a ``chain`` may draft fewer tokens than ``depth``."""
    reference = float(np.median(trace.context))
    octaves = np.log2(trace.context / reference)
    edges = np.linspace(octaves.min(), octaves.max() + 1e-9, CONTEXT_BINS + 1)
    found, bins = np.unique(np.digitize(octaves, edges) - 1, return_inverse=True)
    means = np.bincount(bins, octaves, found.size) / np.bincount(bins, minlength=found.size)
    offered = np.minimum(trace.drafted, depth) if chain else np.full(trace.steps, depth)
    cut = (trace.accepted == offered) & (offered < depth)
    seen = trace.accepted + np.where(cut, depth + 1, 0)
    limits = int(trace.context.min()), int(trace.context.max())
    codes = bins.astype(np.int64) * (2 * depth + 1) + seen
    return Outcomes(codes, trace.offsets[:-1], trace.lengths, means, depth, reference, limits)


class _Table(NamedTuple):
    """Of every code at every pair of levels."""

    probability: Floats
    passed: Floats


def log_likelihood(
    data: Outcomes, at: Parameters, levels: Levels, gradient: bool = True
) -> tuple[float, Floats]:
    """Log likelihood, and its gradient in the order of `Parameters.vector`.

    Parameters
    ----------
    data : Outcomes
    at : Parameters
    levels : Levels
    gradient : bool
        Without it zeros are returned in its place, in a third of the time.
    """
    shift = (at.spread * levels.z[:, None] + at.step_spread * levels.e).ravel()
    table = _table(data, at, shift)
    counts = np.zeros_like(table.probability)
    total, memory_slope = 0.0, 0.0
    order = np.argsort(-data.lengths, kind="stable")
    for first in range(0, order.size, CHUNK):
        chunk = order[first : first + CHUNK]
        value, slope = _forward_backward(data, chunk, at, levels, table, counts, gradient)
        total, memory_slope = total + value, memory_slope + slope
    if not gradient:
        return total, np.zeros(data.depth + 4)
    return total, _gradient(data, table, counts, levels, memory_slope)


def _table(data: Outcomes, at: Parameters, shift: Floats) -> _Table:
    """Probability of each code, shape (codes, pairs), and of passing each level."""
    u = at.context_slope * data.octaves[:, None] + shift
    logits = at.logits[:, None, None] + u
    passed = -np.logaddexp(0.0, -logits)
    before = np.concatenate((np.zeros((1, *u.shape)), np.cumsum(passed, axis=0)))
    refused = before[:-1] - np.logaddexp(0.0, logits)
    every = np.exp(np.concatenate((refused, before[-1:], before[:-1])))
    return _Table(every.swapaxes(0, 1).reshape(-1, shift.size), np.exp(passed))


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


def _forward_backward(
    data: Outcomes,
    chunk: Ints,
    at: Parameters,
    levels: Levels,
    table: _Table,
    counts: Floats,
    gradient: bool,
) -> tuple[float, float]:
    """Log likelihood of some requests and its slope in the memory; adds posterior ``counts``."""
    value, kept = _forward(data, chunk, at, levels, table, gradient)
    if not gradient:
        return value, 0.0
    return value, _backward(data, chunk, at, levels, kept, counts)


def _forward(
    data: Outcomes, chunk: Ints, at: Parameters, levels: Levels, table: _Table, keep: bool
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
            state = at.step_memory * state + (1.0 - at.step_memory) * anew
        seen = table.probability[data.codes[starts[:n] + t]].reshape(n, *pairs)
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
    data: Outcomes, chunk: Ints, at: Parameters, levels: Levels, kept: _Forward, counts: Floats
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
            later[:n] = at.step_memory * ahead + (1.0 - at.step_memory) * anew
    counts += _by_code(np.concatenate(codes), np.concatenate(posteriors), len(counts))
    return slope


def _by_code(codes: Ints, posteriors: Floats, count: int) -> Floats:
    """Sum of the rows of each code."""
    rows = np.arange(codes.size)
    one = sparse.csr_array((np.ones(codes.size), (codes, rows)), shape=(count, codes.size))
    summed: Floats = one @ posteriors
    return summed


def _gradient(
    data: Outcomes, table: _Table, counts: Floats, levels: Levels, memory_slope: float
) -> Floats:
    depth, bins = data.depth, data.octaves.size
    seen = counts.reshape(bins, 2 * depth + 1, -1).swapaxes(0, 1)
    reached = seen[: depth + 1].copy()
    reached[:depth] += seen[depth + 1 :]
    passed = reached[::-1].cumsum(0)[::-1][1:]
    by_level = passed * (1.0 - table.passed) - seen[:depth] * table.passed
    by_pair = by_level.sum((0, 1)).reshape(levels.z.size, levels.e.size)
    return np.concatenate(
        (
            by_level.sum((1, 2)),
            [
                float(levels.z @ by_pair.sum(1)),
                float(by_pair.sum(0) @ levels.e),
                memory_slope,
                float(data.octaves @ by_level.sum((0, 2))),
            ],
        )
    )
