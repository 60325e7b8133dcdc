"""How far a prediction may be off: scales of the step time, and bands made of re-runs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from models import catalog
from models.acceptance import Acceptance
from models.profile import Residual
from models.schema import Basis
from sim.setup import Setup

Z = 1.645
"""Standard normal quantile of a 90 % interval."""

_WORST: tuple[Basis, ...] = ("validated", "extrapolated", "assumed")


class Scale(NamedTuple):
    """Factors on the step time at both ends of the band, and what they rest on."""

    lo: float
    hi: float
    level: float
    basis: Basis


def step_scale(setup: Setup, query_tokens: float) -> Scale:
    """Both ends of the step time of a strategy at ``query_tokens`` a step.

    The step residual of the profile and the uncertainty of tau are taken as independent; an error
    of tau acts on latency like the same relative error of the step time. Synchronisation points
    that asynchronous speculation still has only make steps longer.
    """
    deployment, strategy, law = setup.deployment, setup.strategy, setup.law
    engine, profile = deployment.engine, deployment.profile
    residual = profile.residual(strategy.band_family, engine.family, query_tokens)
    tau = Z * law.uncertainty
    hi = math.exp(math.hypot(math.log(residual.hi), tau))
    if strategy.drafted and engine.is_async(strategy.kind):
        hi *= 1 + engine.sync_point_band
    lo = math.exp(-math.hypot(math.log(residual.lo), tau))
    return Scale(lo, hi, profile.level, _basis(setup, residual))


def _basis(setup: Setup, residual: Residual) -> Basis:
    """The weakest of everything the prediction rests on."""
    deployment, strategy = setup.deployment, setup.strategy
    bases: list[Basis] = [residual.basis, deployment.profile_basis]
    if strategy.drafted:
        bases += [setup.law.basis, deployment.engine.draft_basis]
        if deployment.engine.is_async(strategy.kind):
            # Speculation was scored on synchronous engines only.
            bases.append("extrapolated")
        acceptance = getattr(strategy, "acceptance", None)
        if acceptance is not None and _measured_elsewhere(acceptance, deployment.target.name):
            bases.append("extrapolated")
    if setup.hypothetical:
        bases.append("assumed")
    return max(bases, key=_WORST.index)


def _measured_elsewhere(acceptance: Acceptance, target: str) -> bool:
    """Whether a catalogue entry of another target model stands in, in any domain."""
    named = acceptance.catalog
    if named is not None and catalog.entry("acceptance", named)["target"] != target:
        return True
    domains = (acceptance.by_domain or {}).values()
    return any(_measured_elsewhere(inner, target) for inner in domains)


def latency_band(
    value: float | None, fast: float | None, slow: float | None, scale: Scale
) -> dict[str, Any] | None:
    """Interval of a latency and its re-runs; no upper bound where the slow one saturates."""
    lo, hi = _span(value, fast, slow)
    return None if lo is None else _band(lo, None if slow is None else hi, scale)


def gain_band(
    value: float | None, fast: float | None, slow: float | None, scale: Scale
) -> dict[str, Any] | None:
    """Interval of a speedup or rate; no lower bound where the slow re-run saturates."""
    lo, hi = _span(value, fast, slow)
    return None if hi is None else _band(None if slow is None else lo, hi, scale)


def _span(value: float | None, *ends: float | None) -> tuple[float | None, float | None]:
    """Smallest and largest: a faster step does not always mean an earlier first token."""
    if value is None:
        return None, None
    known = [value, *(end for end in ends if end is not None)]
    return min(known), max(known)


def _band(lo: float | None, hi: float | None, scale: Scale) -> dict[str, Any]:
    return {"lo": lo, "hi": hi, "level": scale.level, "basis": scale.basis}
