"""The population of requests: where its logits sit so that the measured means come out.

A request's level ``z ~ N(0, 1)`` shifts the logit of every probability by ``spread z``. Measured
rates are step-weighted: over requests of equal length a request counts as ``1 / tau(z)``, so the
population's tau is the harmonic mean ``1 / E[1 / tau(z)]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from models.paths import Floats

NODES, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()
"""Quadrature of a standard normal level."""

_FAR = 60.0
_HALVINGS = 60
_ROUNDS = 200
_STRIDE = 2.0
_CLOSE = 1e-10

Shape = Callable[[Floats], Floats]
"""Survival at shifted logits: shift of shape (n,) -> P(accepted >= j) of shape (n, depth)."""


def sigmoid(x: Floats) -> Floats:
    """Logistic function without overflow."""
    half: Floats = 0.5 * (1.0 + np.tanh(0.5 * x))
    return half


def logit(p: Sequence[float] | Floats) -> Floats:
    """Inverse of `sigmoid`; 0 and 1 become minus and plus infinity."""
    values = np.asarray(p, dtype=np.float64)
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(values) - np.log1p(-values)
    return odds


def cumulative(logits: Floats, shift: Floats) -> Floats:
    """Survival of conditional acceptance logits, all shifted alike: shape (n, depth)."""
    survival: Floats = np.cumprod(sigmoid(logits + shift[:, None]), axis=1)
    return survival


def guess_survival(alpha: Floats, depth: int, g: int, every: float, found: float) -> Floats:
    """P(accepted >= i) with ``g`` guesses: ``(1 - (1 - found alpha**i)**g) / every``.

    Bracket of Fu et al., arXiv 2402.02057, who spread one good speculation over ``every`` steps;
    with a binomial number of guesses the power becomes its generating function.
    """
    powers = found * alpha[:, None] ** np.arange(1, depth + 1)
    survival: Floats = (1.0 - (1.0 - powers) ** g) / every
    return survival


def population(shape: Shape, shift: float, spread: float) -> tuple[Floats, Floats]:
    """Survival at the quadrature nodes of ``z``, and the step weight of each node."""
    survival = shape(shift + spread * NODES)
    steps = WEIGHTS / (1.0 + survival.sum(axis=1))
    return survival, steps


def population_tau(shape: Shape, shift: float, spread: float) -> float:
    """Step-weighted tau over requests of equal length: ``1 / E[1 / tau(z)]``."""
    return float(1.0 / population(shape, shift, spread)[1].sum())


def located(shape: Shape, spread: float, tau: float) -> float:
    """Logit shift at which the population's tau is ``tau``, by bisection."""
    low, high = -_FAR, _FAR
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if population_tau(shape, middle, spread) < tau:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


class NgramLogits(NamedTuple):
    """Logits of prompt lookup: when a match is found, and what becomes of it.

    Attributes
    ----------
    enter : float64, shape (n,)
        Of P(match | the step before was no match accepted in full).
    stay : float64, shape (n,)
        Of P(match | the step before was a match accepted in full): the copied passage goes on.
    accepted : float64, shape (n, k)
        Of P(draft token accepted | match, all before it were).
    """

    enter: Floats
    stay: Floats
    accepted: Floats

    def shifted(self, by: Floats | float) -> NgramLogits:
        """All three shifted alike, ``by`` a number or one a row."""
        column = np.reshape(by, (-1, 1))
        return NgramLogits(self.enter + by, self.stay + by, self.accepted + column)

    def rates(self) -> NgramRates:
        """Probabilities of each row; ``stay`` is never below ``enter``."""
        enter = sigmoid(self.enter)
        stay = np.maximum(enter, sigmoid(self.stay))
        inside: Floats = np.cumprod(sigmoid(self.accepted), axis=1)
        gain, end = stay - enter, inside[:, -1]
        full = end * enter / (1.0 - end * gain)
        return NgramRates(enter, stay, inside, full, enter + full * gain)


class NgramRates(NamedTuple):
    """Probabilities of `NgramLogits`, and the stationary shares they lead to.

    Attributes
    ----------
    enter, stay : float64, shape (n,)
        As in `NgramLogits`.
    survival : float64, shape (n, k)
        P(accepted >= j | match).
    full : float64, shape (n,)
        Share of steps with a match accepted in full.
    match : float64, shape (n,)
        Share of steps with a match.
    """

    enter: Floats
    stay: Floats
    survival: Floats
    full: Floats
    match: Floats

    @property
    def unconditional(self) -> Floats:
        """P(accepted >= j) over all steps, with and without a match."""
        every: Floats = self.match[:, None] * self.survival
        return every


def ngram_located(share: float, stay: float, survival: Floats, spread: float) -> NgramLogits:
    """Logits whose step-weighted population has this share of matches, stay rate and tau.

    Parameters
    ----------
    share : float
        Share of steps with a match.
    stay : float
        P(match | match accepted in full at the step before).
    survival : float64, shape (k,)
        P(accepted >= j | match).
    spread : float
        Standard deviation of a request's logits.
    """
    conditional = survival / np.concatenate(([1.0], survival[:-1]))
    target = logit([share, stay, float(survival.mean())])
    at = NgramLogits(target[:1], target[1:2], logit(conditional)[None, :])
    for _ in range(_ROUNDS):
        move = np.clip(target - logit(_ngram_means(at, spread)), -_STRIDE, _STRIDE)
        at = NgramLogits(at.enter + move[0], at.stay + move[1], at.accepted + move[2])
        if np.abs(move).max() < _CLOSE:
            break
    return at


def _ngram_means(at: NgramLogits, spread: float) -> Floats:
    """Step-weighted share of matches, stay rate, and mean survival given a match."""
    rates = at.shifted(spread * NODES).rates()
    steps = WEIGHTS / (1.0 + rates.unconditional.sum(axis=1))
    matches, full = steps * rates.match, steps * rates.full
    return np.array(
        [
            matches.sum() / steps.sum(),
            (full * rates.stay).sum() / full.sum(),
            (matches * rates.survival.mean(axis=1)).sum() / matches.sum(),
        ]
    )
