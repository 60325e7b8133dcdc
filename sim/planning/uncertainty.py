"""From errors of inputs to a distribution of the GPUs needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator

from models.residuals import LEVEL
from sim.band import Z
from sim.planning.errors import Error
from sim.scenario.distributions import Floats

DRAWS = 20_000
ACTS = ("step_s", "decode_s", "prefill_s", "capacity", "demand")
LEAST_SHARE = 0.1
"""Nobody buys ten times the GPUs: another configuration is bought then."""

INPUTS = (
    "demand",
    "step time",
    "kernel times",
    "prefill time",
    "strategy",
    "acceptance",
    "request time",
    "simulation",
)
"""Each draws from a substream of its own, so plans that share an input share its draws."""


class Curve:
    """What a replica holds by the factor on a part of its step times, over what it holds at 1.

    Parameters
    ----------
    points : sequence of (float, float or None)
        Factor and capacity; None: not even an idle replica holds the SLO. 1 must be there.

    Notes
    -----
    Monotone cubics (Fritsch and Carlson 1980) through the logarithms, straight beyond the ends.
    Between the slowest factor with a capacity and the next without, the edge is taken at their
    geometric mean; a replica that holds less than ``LEAST_SHARE`` is taken as holding nothing.
    """

    def __init__(self, points: Sequence[tuple[float, float | None]]) -> None:
        known = sorted((math.log(at), math.log(value)) for at, value in points if value)
        lost = [math.log(at) for at, value in points if not value]
        at, value = np.array(known).T
        self._edge = (at[-1] + min(lost)) / 2 if lost else math.inf
        self._ends = at[0], at[-1]
        middle = value[int(np.argmin(np.abs(at)))]
        self._values: PchipInterpolator | None = None
        if len(at) > 1:
            self._values = PchipInterpolator(at, value - middle)
            self._slopes = self._values.derivative()

    def __call__(self, factor: Floats) -> Floats:
        """Capacity over that at factor 1, of the factor's shape; 0 where there is none."""
        at = np.log(factor)
        if self._values is None:
            return np.where(at < self._edge, 1.0 / factor, 0.0)
        inside = np.clip(at, *self._ends)
        found = self._values(inside) + self._slopes(inside) * (at - inside)
        share = np.where(at < self._edge, np.exp(found), 0.0)
        return np.where(share < LEAST_SHARE, 0.0, share)


class Curves(NamedTuple):
    """A replica's capacity by the factor on its decode steps, and on what prompts add to them.

    The two are taken as independent of each other, in logarithms.
    """

    decode: Curve
    prefill: Curve


class Rule(NamedTuple):
    """How the GPUs of a fleet follow from what its replicas hold.

    All but ``spare`` of the replicas share the peak evenly, each holding as much as in the fleet
    that was simulated.

    Attributes
    ----------
    replicas, tp : int
        Of the fleet simulated.
    spare : int
        Replicas it must do without while one is down.
    held_req_s, peak_req_s : float
        Largest peak that fleet holds, and the peak of the demand [1/s].
    least : int
        Fewest replicas.
    """

    replicas: int
    tp: int
    spare: int
    held_req_s: float
    peak_req_s: float
    least: int

    def gpus(self, capacity: Floats, demand: Floats) -> Floats:
        """GPUs as real numbers, infinite where a replica holds nothing.

        Parameters
        ----------
        capacity, demand : float64
            What a replica holds and what is asked, over the prediction.
        """
        each = self.held_req_s / max(self.replicas - self.spare, 1)
        with np.errstate(divide="ignore"):
            sharing = self.peak_req_s * demand / (each * capacity)
        return self.tp * np.maximum(self.spare + sharing, self.least)

    def whole(self, gpus: Floats) -> Floats:
        """GPUs of whole replicas."""
        return self.tp * np.ceil(np.round(gpus / self.tp, 9))


class Outlook(NamedTuple):
    """What is known of the GPUs needed.

    Attributes
    ----------
    lo : int
    hi : int or None
        5 % and 95 % of the draws; None where no number is enough.
    confidence : float
        Share of the draws in which the fleet is enough.
    asked : int or None
        GPUs that are enough in the share asked for.
    capacity : (float, float)
        5 % and 95 % of what a replica holds, over the prediction.
    """

    lo: int
    hi: int | None
    confidence: float
    asked: int | None
    capacity: tuple[float, ...]


def outlook(
    errors: Sequence[Error],
    curves: Curves,
    rule: Rule,
    seed: int,
    confidence: float | None = None,
    draws: int = DRAWS,
) -> Outlook:
    """Draw all inputs at once, and count the GPUs each draw needs."""
    deviates = {error.input: _deviates(error.input, seed, draws) for error in errors}
    capacity, demand = drawn(errors, curves, deviates, draws)
    gpus = rule.whole(rule.gpus(capacity, demand))
    below, above = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    lo, hi = _quantile(gpus, below), _quantile(gpus, above)
    enough = float((gpus <= rule.tp * rule.replicas).mean())
    asked = None if confidence is None else _quantile(gpus, confidence)
    held = tuple(float(value) for value in np.quantile(capacity, (below, above)))
    return Outlook(lo if lo is not None else rule.tp * rule.least, hi, enough, asked, held)


def drawn(
    errors: Sequence[Error],
    curves: Curves,
    deviates: dict[str, Floats],
    draws: int,
) -> tuple[Floats, Floats]:
    """What a replica holds and what is asked, over the prediction, both of shape (draws,).

    ``deviates`` are standard normal ones of each input that moves.
    """
    factors = {name: np.ones(draws) for name in ACTS}
    for error in errors:
        z = deviates.get(error.input)
        if z is not None:
            ends = np.where(z < 0, math.log(error.lo), math.log(error.hi))
            factors[error.acts_on] *= np.exp(np.abs(z) / Z * ends)
    capacity = curves.decode(factors["step_s"] * factors["decode_s"])
    capacity *= curves.prefill(factors["step_s"] * factors["prefill_s"])
    return capacity * factors["capacity"], factors["demand"]


def _deviates(name: str, seed: int, draws: int) -> Floats:
    key = np.random.SeedSequence(seed, spawn_key=(0x91A4, INPUTS.index(name)))
    return np.random.default_rng(key).standard_normal(draws)


def _quantile(gpus: Floats, share: float) -> int | None:
    """Fewest GPUs that are enough in a share of the draws; None where none are."""
    value = float(np.quantile(gpus, share, method="inverted_cdf"))
    return None if math.isinf(value) else round(value)


def tornado(errors: Sequence[Error], curves: Curves, rule: Rule) -> list[dict[str, object]]:
    """Each input alone from its 5 % to its 95 %, the one that moves the GPUs most first.

    Where a replica then holds nothing, ``open`` is true and the GPUs are those of the least that is
    taken as anything.
    """
    rows = []
    most = float(rule.gpus(np.array([LEAST_SHARE]), np.ones(1))[0])
    for error in errors:
        deviates = {error.input: np.array([-Z, Z])}
        ends = rule.gpus(*drawn(errors, curves, deviates, 2))
        lo, hi = (min(float(value), most) for value in ends)
        row: dict[str, object] = {
            "input": error.input,
            "what": error.what,
            "basis": error.basis,
            "lo": error.lo,
            "hi": error.hi,
            "gpus_lo": lo,
            "gpus_hi": hi,
            "open": bool(np.isinf(ends).any()),
        }
        rows.append((abs(hi - lo), row))
    rows.sort(key=lambda pair: -pair[0])
    return [row for _, row in rows]
