"""The law of passages from its equations alone: exact expectations, and a loop that draws it.

A request has a level ``z``, each of its passages a level ``e``, all standard normal. A step
accepts at least ``j`` draft tokens with probability ``prod_{i<=j} sigmoid(logit_i + spread z +
step_spread e + context_slope log2(clip(context, low, high) / reference))``.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import root

NODES = np.linspace(-8.0, 8.0, 129)
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


class Stated(NamedTuple):
    """What a user states; ``block`` is how."""

    rates: tuple[float, ...]
    spread: float = 0.0
    step_spread: float = 0.0
    memory: float = 0.0
    slope: float = 0.0
    reference: float = 512.0
    range: tuple[float, float] = (1.0, 1e9)

    @property
    def block(self) -> dict[str, Any]:
        found: dict[str, Any] = {"alpha_by_pos": list(self.rates), "spread": self.spread}
        found |= {"step_spread": self.step_spread, "step_memory": self.memory}
        if self.slope:
            about = {"context_reference": self.reference, "context_range": list(self.range)}
            found |= {"context_slope": self.slope, **about}
        return found

    def slope_at(self, context):
        """What a context adds to every logit."""
        return self.slope * np.log2(np.clip(context, *self.range) / self.reference)


class Theory:
    """Expectations of a law over a grid of levels: ``z`` down, ``e`` across."""

    def __init__(self, stated: Stated) -> None:
        self.stated = stated
        rates = np.array(stated.rates)
        start = np.log(rates / (1.0 - rates))
        solved = root(lambda logits: self.rates(logits) - rates, start, tol=1e-12)
        assert solved.success, solved.message
        self.logits = solved.x

    def survival(self, logits=None, shift=0.0):
        """P(accepted >= j | z, e), shape (z, e, K)."""
        logits = self.logits if logits is None else logits
        level = self.stated.spread * NODES[:, None] + self.stated.step_spread * NODES
        return np.cumprod(sigmoid(logits + shift + level[..., None]), axis=2)

    def rates(self, logits):
        """Shares of all steps: a request of level z takes 1 / tau(z) as many."""
        by_request = WEIGHTS @ self.survival(logits)
        steps = WEIGHTS / (1.0 + by_request.sum(axis=1))
        shares = steps @ by_request / steps.sum()
        return shares / np.concatenate(([1.0], shares[:-1]))

    @property
    def tau(self) -> float:
        return 1.0 + float(np.cumprod(self.stated.rates).sum())

    @cached_property
    def tau_of_level(self):
        """Tokens a step of a request, at each node of z."""
        return 1.0 + (WEIGHTS @ self.survival()).sum(axis=1)

    # Of the first so many steps of every request, so that all requests count alike.

    @cached_property
    def _means(self):
        return self.survival().sum(axis=2)

    @property
    def mean(self) -> float:
        """Accepted tokens of a step."""
        return float(WEIGHTS @ self._means @ WEIGHTS)

    @property
    def variance(self) -> float:
        depth = len(self.stated.rates)
        squares = self.survival() @ (2.0 * np.arange(1, depth + 1) - 1.0)
        return float(WEIGHTS @ squares @ WEIGHTS) - self.mean**2

    @property
    def of_requests(self) -> float:
        """Variance of a request's own mean."""
        return float(WEIGHTS @ (self._means @ WEIGHTS) ** 2) - self.mean**2

    @property
    def of_passages(self) -> float:
        """Variance of a passage's mean within its request."""
        return float(WEIGHTS @ (self._means**2 @ WEIGHTS - (self._means @ WEIGHTS) ** 2))

    def covariance(self, lag: int) -> float:
        """Of the accepted counts of two steps of a request."""
        return self.of_requests + self.stated.memory**lag * self.of_passages

    def variance_of_the_mean(self, steps: int) -> float:
        """Of a request's mean accepted count over its first steps."""
        lags = np.arange(1, steps)
        pairs = 2.0 * sum((steps - lag) * self.covariance(lag) for lag in lags.tolist())
        return (steps * self.variance + pairs) / steps**2

    @property
    def both_whole(self) -> float:
        """P(two consecutive steps are both accepted in full)."""
        whole = self.survival()[..., -1]
        same, other = WEIGHTS @ (whole**2 @ WEIGHTS), WEIGHTS @ (whole @ WEIGHTS) ** 2
        return float(self.stated.memory * same + (1.0 - self.stated.memory) * other)

    def means_at(self, prompt: int, steps):
        """Accepted tokens of steps 0, 1, ..., by level of the request: shape (z, steps).

        The context of a request grows by its own tau a step, that at its reference context.
        """
        pace = np.multiply.outer(self.tau_of_level, np.asarray(steps))
        shift = self.stated.slope_at(prompt + 1.0 + pace)
        each = [self.survival(shift=at[:, None, None]).sum(axis=2) @ WEIGHTS for at in shift.T]
        return np.stack(each, axis=1)


def walk(theory: Theory, random: np.random.Generator, prompt: int, tokens: int) -> list[int]:
    """Accepted counts of one request until it has its tokens, step by step."""
    stated, accepted, left = theory.stated, list[int](), tokens
    z, e = random.standard_normal(2)
    tau = float(np.interp(z, NODES, theory.tau_of_level))
    while left > 0:
        if accepted and random.random() >= stated.memory:
            e = random.standard_normal()
        context = prompt + 1.0 + len(accepted) * tau
        shift = stated.spread * z + stated.step_spread * e + float(stated.slope_at(context))
        taken = 0
        while taken < len(theory.logits):
            if random.random() >= sigmoid(theory.logits[taken] + shift):
                break
            taken += 1
        accepted.append(taken)
        left -= 1 + taken
    return accepted


def draw(law, requests: int, tokens: int, prompt: int = 511, seed: int = 7):
    ids, full = np.arange(requests), np.full
    return law.paths(seed, ids, full(requests, tokens), np.zeros_like(ids), full(requests, prompt))


def of_each(paths, values):
    """Sums over the steps of each request."""
    return np.add.reduceat(values.astype(np.int64), paths.offsets[:-1])


def shares(of, among, expected: float, precision: float) -> None:
    """A ratio of sums over independent requests."""
    close(expected + (of - expected * among) / among.mean(), expected, precision)


def opening(paths, steps: int):
    """Accepted counts of the first steps of every request, shape (requests, steps)."""
    assert (np.diff(paths.offsets) >= steps).all()
    return paths.accepted[paths.offsets[:-1, None] + np.arange(steps)]


def close(samples, expected: float, precision: float) -> None:
    """Mean of independent samples within 4 standard errors, which are small enough to tell."""
    error = np.std(samples, ddof=1) / np.sqrt(len(samples))
    assert 4.0 * error < precision * abs(expected), (error, expected)
    assert abs(np.mean(samples) - expected) < 4.0 * error, (np.mean(samples), error, expected)


@cache
def theory_of(stated: Stated) -> Theory:
    """Its logits are solved once."""
    return Theory(stated)
