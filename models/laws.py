"""Laws: how many tokens a step emits, drawn for many requests at once.

A law is frozen numbers by domain; `models.acceptance` builds one from what the user states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from models.paths import (
    SECOND,
    STEP,
    Floats,
    Ints,
    Paths,
    Sample,
    Sampler,
    accepted_below,
    draw_paths,
    request_keys,
    request_normals,
    step_uniforms,
    steps_guess,
)
from models.population import (
    cumulative,
    guess_survival,
    sigmoid,
)
from models.schema import Basis


class Law(Protocol):
    """Distribution of the tokens a step emits."""

    @property
    def depth(self) -> int:
        """Most draft tokens a step can accept."""
        ...

    @property
    def tau(self) -> float:
        """Step-weighted mean of emitted tokens, domains weighted equally by tokens."""
        ...

    @property
    def uncertainty(self) -> float:
        """Relative standard error of ``tau``."""
        ...

    @property
    def basis(self) -> Basis:
        """How far to trust it."""
        ...

    def tau_of(self, domain_index: int) -> float:
        """Step-weighted tau of one domain."""
        ...

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """What draws the steps of each request; a pure function of its arguments.

        Parameters
        ----------
        seed : int
            Run seed.
        ids, tokens, domains : int64, shape (n,)
            Request numbers, tokens to emit (the prefill's first token left out) and domain index.
        prompts : int64, shape (n,), optional
            Prompt tokens, where acceptance depends on the context; without them it is taken at
            the context it was measured at.
        """
        ...

    def paths(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Paths:
        """Steps of each request until ``tokens`` are emitted; parameters as of `sampler`."""
        ...


@dataclass(frozen=True)
class Summary:
    """What every law says about itself; ``taus`` by domain."""

    depth: int
    taus: tuple[float, ...]
    uncertainty: float
    basis: Basis

    @property
    def tau(self) -> float:
        """Step-weighted mean emitted tokens, domains weighted equally by tokens."""
        return len(self.taus) / sum(1.0 / tau for tau in self.taus)

    def tau_of(self, domain_index: int) -> float:
        """Step-weighted tau of one domain."""
        return self.taus[domain_index]

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`."""
        raise NotImplementedError

    def paths(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Paths:
        """See `Law.paths`."""
        return draw_paths(tokens, *self.sampler(seed, ids, tokens, domains, prompts))


@dataclass(frozen=True)
class PlainLaw(Summary):
    """One token a step, always."""

    depth: int = 0
    taus: tuple[float, ...] = (1.0,)
    uncertainty: float = 0.0
    basis: Basis = "validated"

    def tau_of(self, domain_index: int) -> float:
        """1."""
        return 1.0

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """Nothing is drafted."""
        return Sampler(tokens, lambda counts: Sample(np.zeros(int(counts.sum()), dtype=np.int64)))

    def paths(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Paths:
        """As many steps as tokens."""
        offsets = np.concatenate(([0], np.cumsum(tokens)))
        ones = np.ones(offsets[-1], dtype=np.int64)
        return Paths(offsets, ones, np.zeros_like(ones))


@dataclass(frozen=True)
class ChainLaw(Summary):
    """Chain or tree: conditional acceptance by depth, as logits of shape (domains, depth)."""

    logits: Floats
    spreads: Floats

    def survival(self, seed: int, ids: Ints, domains: Ints) -> Floats:
        """P(accepted >= j) of each request, shape (n, depth)."""
        shift = self.spreads[domains] * request_normals(seed, ids)
        return cumulative(self.logits[domains], shift)

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`."""
        survival = self.survival(seed, ids, domains)
        keys = request_keys(seed, ids, STEP)

        def sample(counts: Ints) -> Sample:
            return Sample(accepted_below(step_uniforms(keys, counts), survival, counts))

        return Sampler(steps_guess(tokens, survival), sample)


class Pool(NamedTuple):
    """Guesses of lookahead decoding: at most ``g``, beside a window of ``w``."""

    g: int
    w: int
    found_share: float

    def found(self, seed: int, ids: Ints, counts: Ints) -> Ints:
        """Guesses the pool holds at each step, flat."""
        uniforms = step_uniforms(request_keys(seed, ids, SECOND), counts)
        cdf = _binomial_cdf(self.g, self.found_share)
        found: Ints = np.searchsorted(cdf, uniforms, side="right")
        return found


@dataclass(frozen=True)
class LookaheadLaw(Summary):
    """Guesses of an n-gram pool: a step verifies ``g`` of them, or as many as the pool holds."""

    logits: Floats
    spreads: Floats
    pool: Pool
    every: float

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`; ``width`` is set where the pool may hold fewer than ``g`` guesses."""
        shift = self.spreads[domains] * request_normals(seed, ids)
        alpha = sigmoid(self.logits[domains] + shift)
        mean = guess_survival(alpha, self.depth, self.pool.g, self.every, self.pool.found_share)
        keys = request_keys(seed, ids, STEP)

        def sample(counts: Ints) -> Sample:
            uniforms = step_uniforms(keys, counts)
            if self.pool.found_share == 1.0:
                return Sample(accepted_below(uniforms, mean, counts))
            found = self.pool.found(seed, ids, counts)
            accepted = np.zeros(uniforms.size, dtype=np.int64)
            for level in range(1, self.depth + 1):
                miss = np.repeat(1.0 - alpha**level, counts)
                accepted += uniforms < (1.0 - miss**found) / self.every
            return Sample(accepted, width=(self.pool.w + found) * self.depth)

        return Sampler(steps_guess(tokens, mean), sample)


def _binomial_cdf(n: int, p: float) -> Floats:
    """P(X <= i), i = 0..n-1, of a binomial; a uniform's place in it is a draw."""
    ratio = [1.0]
    for i in range(n):
        ratio.append(ratio[-1] * (n - i) / (i + 1) * p / (1.0 - p))
    weights = np.array(ratio)
    cdf: Floats = np.cumsum(weights / weights.sum())[:-1]
    return cdf
