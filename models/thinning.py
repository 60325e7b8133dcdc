"""Draft tokens refused although the target says yes: what cut or quantised KV costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from models.kv_policy import AnyPolicy
from models.laws import Law, Summary
from models.paths import (
    LOSS,
    Floats,
    Ints,
    Keys,
    Sample,
    Sampler,
    request_keys,
    step_uniforms,
)

DRAWN_REQUESTS, DRAWN_TOKENS = 1024, 256
"""Requests and tokens of each domain from which the mean of a thinned law is taken."""


def thinned(accepted: Ints, keys: Keys, counts: Ints, loss: Floats | float) -> Ints:
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
    loss : float, or float64 of shape (sum(counts),)
        0 changes nothing, 1 refuses everything.
    """
    if not np.any(loss):
        return accepted
    left = np.log1p(-step_uniforms(keys, counts))
    with np.errstate(divide="ignore", invalid="ignore"):
        before = np.where(np.asarray(loss) > 0.0, left / np.log1p(-np.asarray(loss)), np.inf)
    # At a loss of 1 the quotient is 0, without a loss it is infinite.
    kept: Ints = np.minimum(accepted, before).astype(np.int64)
    return kept


def contexts(accepted: Ints, prompts: Ints, counts: Ints) -> Ints:
    """Context before each step of requests that emit ``accepted + 1`` tokens a step, flat."""
    before = np.cumsum(accepted + 1) - (accepted + 1)
    begin = np.repeat(np.cumsum(counts) - counts, counts)
    return before - before[begin] + np.repeat(prompts + 1, counts)


@dataclass(frozen=True)
class ThinnedLaw(Summary):
    """A law whose accepted tokens are refused at a rate.

    Its ``taus`` are those of the inner law times a ratio: many steps with loss over without.
    Steps whose prompt nobody says, as those, count as cut.

    Attributes
    ----------
    inner : Law
    loss : float
        Of every step: of quantised KV.
    policy : AnyPolicy or None
        Its loss comes on top in steps whose context it cuts.
    uncut : Law or None
        The law of steps it leaves whole; None without a policy.
    """

    inner: Law
    loss: float
    policy: AnyPolicy | None = None
    uncut: Law | None = None

    @property
    def cut_loss(self) -> float:
        """Chance of a refusal where the policy cuts: both losses, independent."""
        extra = self.policy.acceptance_loss if self.policy else 0.0
        return self.loss + extra - self.loss * extra

    def tau_at(self, context: int) -> float:
        """Tokens a step after a prefill of ``context`` tokens."""
        at = np.array([context])
        whole = self.policy is not None and not self.policy.cut(at, at).any()
        return self.uncut.tau if whole and self.uncut is not None else self.tau

    @classmethod
    def of(cls, inner: Law, loss: float, domains: int, policy: AnyPolicy | None = None) -> Law:
        """The law itself where nothing is lost.

        Parameters
        ----------
        inner : Law
        loss : float
            Of every step.
        domains : int
            How many there are.
        policy : AnyPolicy or None
            Its loss is of the steps it cuts.
        """
        if policy is not None and policy.acceptance_loss <= 0.0:
            policy = None
        if (loss <= 0.0 and policy is None) or inner.depth == 0:
            return inner
        uncut = None if policy is None else cls.of(inner, loss, domains)
        uncertainty, basis, ones = inner.uncertainty, inner.basis, (1.0,) * domains
        law = cls(inner.depth, ones, uncertainty, basis, inner, loss, policy, uncut)
        taus = tuple(
            inner.tau_of(domain) * _drawn_tau(law, domain) / _drawn_tau(inner, domain)
            for domain in range(domains)
        )
        return replace(law, taus=taus)

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`; acceptance by context is taken where it would be without loss.

        Where a policy cuts is exact for a sequence that stays in one mode: contexts grow, so up
        to its first cut step they follow from steps that are not cut. A sequence that switches
        draws every mode as if it had been in that one from the start.
        """
        drawn = self.inner.sampler(seed, ids, tokens, domains, prompts)
        keys = request_keys(seed, ids, LOSS)

        def sample(counts: Ints) -> Sample:
            steps = drawn.sample(counts)
            if self.policy is None or prompts is None:
                kept = thinned(steps.accepted, keys, counts, self.cut_loss)
                return steps._replace(accepted=kept)
            whole = thinned(steps.accepted, keys, counts, self.loss)
            context = contexts(whole, prompts, counts)
            cut = self.policy.cut(np.repeat(prompts, counts), context)
            loss = np.where(cut, self.cut_loss, self.loss)
            return steps._replace(accepted=thinned(steps.accepted, keys, counts, loss))

        return Sampler(drawn.guess, sample)


def _drawn_tau(law: Law, domain: int) -> float:
    """Tokens a step of many requests of one domain."""
    ids = np.arange(DRAWN_REQUESTS)
    tokens, domains = np.full(DRAWN_REQUESTS, DRAWN_TOKENS), np.full(DRAWN_REQUESTS, domain)
    return 1.0 + float(law.paths(0, ids, tokens, domains).accepted.mean())
