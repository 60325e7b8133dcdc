"""Likelihood of recorded steps of n-gram lookup, whose matches come in passages.

A match is found with probability ``sigmoid(enter + u)``, or ``sigmoid(stay + u)`` after one that
was accepted in full, and its draft tokens are accepted with ``sigmoid(l_i + u)``, where
``u = spread z + step_spread e`` as in ``likelihood``. What the step before showed is known, so
given the levels a step's code has one probability: a product of things that happened or failed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.acceptance.hidden import Levels, smoothed
from calibration.acceptance.trace import Trace
from models.paths import Floats, Ints


class Tries(NamedTuple):
    """What each step of a trace tried, as a code.

    Attributes
    ----------
    codes : int64, shape (steps,)
    starts, lengths : int64, shape (n,)
        Steps of each request in ``codes``.
    happened, failed : float64, shape (codes, 2 + levels)
        Whether a code means: a match after a step that was no match accepted in full, a match after
        one that was, then each draft token of a match.
    """

    codes: Ints
    starts: Ints
    lengths: Ints
    happened: Floats
    failed: Floats

    def seen(self) -> tuple[Floats, Floats]:
        """How often each thing happened, and was tried: shape (2 + levels,) each."""
        steps = np.bincount(self.codes, minlength=len(self.happened))
        happened: Floats = steps @ self.happened
        return happened, happened + steps @ self.failed


def tries(trace: Trace) -> Tries:
    """Code the steps of a trace, up to the last level that any of them tried.

    The match of a request's first step is taken as given.
    """
    match = trace.drafted > 0
    whole = match & (trace.accepted == trace.drafted)
    before = np.concatenate(([False], whole[:-1])).astype(np.int64)
    before[trace.offsets[:-1]] = 2
    levels = max(1, int(np.minimum(trace.accepted, trace.drafted - 1).max()) + 1)
    cut = match & (trace.accepted == trace.drafted) & (trace.drafted < levels)
    # No match, or so many tokens of one accepted and the next refused, or that many drafted.
    shown = np.where(match, 1 + trace.accepted + cut * (levels + 1), 0)
    accepted = np.tile(np.arange(levels + 1), 2)
    passed = np.zeros((2 * levels + 3, levels))
    passed[1:] = np.arange(levels) < accepted[:, None]
    refused = np.zeros_like(passed)
    refused[1 : levels + 1] = np.eye(levels)
    found = (np.arange(len(passed)) > 0).astype(float)
    happened, failed = [], []
    for asked in ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0)):
        happened.append(np.hstack((found[:, None] * asked, passed)))
        failed.append(np.hstack(((1.0 - found)[:, None] * asked, refused)))
    codes = before * len(passed) + shown
    starts = trace.offsets[:-1]
    return Tries(codes, starts, trace.lengths, np.vstack(happened), np.vstack(failed))


def lookup_likelihood(
    data: Tries, vector: Floats, levels: Levels, gradient: bool = True
) -> tuple[float, Floats]:
    """Log likelihood, and its gradient; zeros in its place unless asked for.

    Parameters
    ----------
    data : Tries
    vector : float64, shape (5 + levels,)
        Logits in the order of `Tries.happened`, spread, step spread, step memory.
    levels : Levels
    gradient : bool
    """
    spread, step_spread, memory = vector[-3:]
    logits = vector[:-3, None] + levels.shift(spread, step_spread)
    happens, fails = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
    probability = np.exp(data.happened @ happens + data.failed @ fails)
    found = smoothed(data, probability, float(memory), levels, gradient)
    if not gradient:
        return found.value, np.zeros(vector.size)
    slopes = data.happened.T @ found.counts * np.exp(fails)
    slopes -= data.failed.T @ found.counts * np.exp(happens)
    within = (*levels.slopes(slopes.sum(0)), found.memory_slope)
    return found.value, np.concatenate((slopes.sum(1), within))
