"""Draft tokens refused although the target's acceptance says yes: what a cut KV cache costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.laws import Law, Summary
from models.paths import (
    LOSS,
    Ints,
    Keys,
    Sample,
    Sampler,
    request_keys,
    step_uniforms,
)

DRAWN_REQUESTS, DRAWN_TOKENS = 1024, 256
"""Requests and tokens of each domain from which the mean of a thinned law is taken."""


def thinned(accepted: Ints, keys: Keys, counts: Ints, loss: float) -> Ints:
    """Accepted tokens of each step where each one is refused with probability ``loss``.

    A refusal ends the step, so what is left is the least of ``accepted`` and the number of tokens
    before the first refusal, which is geometric.

    Parameters
    ----------
    accepted : int64, shape (sum(counts),)
        Without loss.
    keys : uint64, shape (n,)
        Hash state of each request's own stream.
    counts : int64, shape (n,)
        Steps of each request.
    loss : float
        0 changes nothing, 1 refuses everything.
    """
    if loss <= 0.0:
        return accepted
    if loss >= 1.0:
        return np.zeros_like(accepted)
    before = np.log1p(-step_uniforms(keys, counts)) / np.log1p(-loss)
    kept: Ints = np.minimum(accepted, before.astype(np.int64))
    return kept


@dataclass(frozen=True)
class ThinnedLaw(Summary):
    """A law whose accepted tokens are refused at a rate.

    Its ``taus`` are those of the inner law times a ratio: many steps with loss over without.
    """

    inner: Law
    loss: float

    @classmethod
    def of(cls, inner: Law, loss: float, domains: int) -> Law:
        """The law itself where nothing is lost.

        Parameters
        ----------
        inner : Law
        loss : float
        domains : int
            How many there are.
        """
        if loss <= 0.0 or inner.depth == 0:
            return inner
        uncertainty, basis = inner.uncertainty, inner.basis
        law = cls(inner.depth, (1.0,) * domains, uncertainty, basis, inner, loss)
        taus = tuple(
            inner.tau_of(domain) * _drawn_tau(law, domain) / _drawn_tau(inner, domain)
            for domain in range(domains)
        )
        return cls(inner.depth, taus, uncertainty, basis, inner, loss)

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`; acceptance by context is taken where it would be without loss."""
        drawn = self.inner.sampler(seed, ids, tokens, domains, prompts)
        keys = request_keys(seed, ids, LOSS)

        def sample(counts: Ints) -> Sample:
            steps = drawn.sample(counts)
            return steps._replace(accepted=thinned(steps.accepted, keys, counts, self.loss))

        return Sampler(drawn.guess, sample)


def _drawn_tau(law: Law, domain: int) -> float:
    """Tokens a step of many requests of one domain."""
    ids = np.arange(DRAWN_REQUESTS)
    tokens, domains = np.full(DRAWN_REQUESTS, DRAWN_TOKENS), np.full(DRAWN_REQUESTS, domain)
    return 1.0 + float(law.paths(0, ids, tokens, domains).accepted.mean())
