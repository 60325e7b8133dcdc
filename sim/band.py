"""How far a prediction may be off: scales of the step time, and bands made of re-runs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

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
    if setup.hypothetical:
        bases.append("assumed")
    return max(bases, key=_WORST.index)


def latency_band(
    value: float | None, fast: float | None, slow: float | None, scale: Scale
) -> dict[str, Any] | None:
    """Interval of a latency between its re-runs; no upper bound where the slow one saturates."""
    if value is None:
        return None
    lo = min(value, fast if fast is not None else value)
    hi = None if slow is None else max(value, slow)
    return {"lo": lo, "hi": hi, "level": scale.level, "basis": scale.basis}


def gain_band(
    value: float | None, fast: float | None, slow: float | None, scale: Scale
) -> dict[str, Any] | None:
    """Interval of a speedup or rate; no lower bound where the slow re-run saturates."""
    if value is None:
        return None
    hi = max(value, fast if fast is not None else value)
    lo = None if slow is None else min(value, slow)
    return {"lo": lo, "hi": hi, "level": scale.level, "basis": scale.basis}
