"""Likelihood of recorded accepted counts under the law of chains and trees.

A step accepts at least j draft tokens with probability ``prod_{i<=j} sigmoid(l_i + u)``, where
``u = spread z + step_spread e + context_slope x``: z is a request's level, e the level of a passage
that goes on with probability ``step_memory`` and is otherwise drawn anew, x the context in octaves
above a reference. The levels are hidden (see ``hidden``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibration.acceptance.hidden import Levels, Smoothed, smoothed
from calibration.acceptance.trace import Trace
from models.paths import Floats, Ints

CONTEXT_BINS = 24
"""Contexts closer than a 24th of the range share one table: far below a slope's effect."""


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
    table = _table(data, at, levels.shift(at.spread, at.step_spread))
    found = smoothed(data, table.probability, at.step_memory, levels, gradient)
    if not gradient:
        return found.value, np.zeros(data.depth + 4)
    return found.value, _gradient(data, table, found, levels)


def _table(data: Outcomes, at: Parameters, shift: Floats) -> _Table:
    """Probability of each code, shape (codes, pairs), and of passing each level."""
    u = at.context_slope * data.octaves[:, None] + shift
    logits = at.logits[:, None, None] + u
    passed = -np.logaddexp(0.0, -logits)
    before = np.concatenate((np.zeros((1, *u.shape)), np.cumsum(passed, axis=0)))
    refused = before[:-1] - np.logaddexp(0.0, logits)
    every = np.exp(np.concatenate((refused, before[-1:], before[:-1])))
    return _Table(every.swapaxes(0, 1).reshape(-1, shift.size), np.exp(passed))


def _gradient(data: Outcomes, table: _Table, found: Smoothed, levels: Levels) -> Floats:
    depth, bins = data.depth, data.octaves.size
    seen = found.counts.reshape(bins, 2 * depth + 1, -1).swapaxes(0, 1)
    reached = seen[: depth + 1].copy()
    reached[:depth] += seen[depth + 1 :]
    passed = reached[::-1].cumsum(0)[::-1][1:]
    by_level = passed * (1.0 - table.passed) - seen[:depth] * table.passed
    return np.concatenate(
        (
            by_level.sum((1, 2)),
            [
                *levels.slopes(by_level.sum((0, 1))),
                found.memory_slope,
                float(data.octaves @ by_level.sum((0, 2))),
            ],
        )
    )
