"""How far a prediction may be off: scales of the step time, and what they rest on."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from models import catalog
from models.acceptance import Acceptance
from models.acceptance_file import read
from models.gemm import US
from models.residuals import LEVEL, Residual
from models.schema import Basis, weakest
from models.strategies import Strategy
from sim.setup import Setup

Z = 1.645
"""Standard normal quantile of a 90 % interval."""


class Scale(NamedTuple):
    """Factors on the step time at both ends of the band, and what they rest on.

    ``lo`` and ``hi`` act on latencies; ``gain_lo`` and ``gain_hi`` on the speedup, in which the
    errors common to plain decoding cancel.
    """

    lo: float
    hi: float
    gain_lo: float
    gain_hi: float
    level: float
    basis: Basis


def step_scale(setup: Setup, query_tokens: float) -> Scale:
    """Both ends of the step time of a strategy at ``query_tokens`` a step.

    Speculation was scored on speedups, so its latencies carry the residual of plain decoding as
    well. Residuals and the uncertainty of tau are taken as independent; an error of tau acts on
    latency like the same relative error of the step time. Synchronisation points that asynchronous
    speculation still has only make steps longer. Elsewhere than on the GPUs of the runs, the error
    of the kernels comes on top.
    """
    deployment, strategy = setup.deployment, setup.strategy
    engine, weights, rows = deployment.engine, deployment.weights, deployment.residuals
    plain = rows.of_step("plain", engine.family, weights, query_tokens)
    lo, hi = kernel_errors(setup, plain, query_tokens)
    basis = step_basis(setup, query_tokens)
    if not strategy.drafted:
        return Scale(_widened(plain.lo, lo), _widened(plain.hi, hi), 1.0, 1.0, LEVEL, basis)
    each = [
        rows.of_step(family, engine.family, weights, query_tokens) for family in families(strategy)
    ]
    own_lo, own_hi = min(own.lo for own in each), max(own.hi for own in each)
    tau = Z * max(law.uncertainty for law in setup.laws)
    waits = 1 + engine.sync_point_band if setup.is_async else 1.0
    return Scale(
        _widened(_together(plain.lo, own_lo, tau), lo),
        waits * _widened(_together(plain.hi, own_hi, tau), hi),
        _together(1.0, own_lo, tau),
        waits * _together(1.0, own_hi, tau),
        LEVEL,
        basis,
    )


def kernel_errors(setup: Setup, runs: Residual, query_tokens: float) -> tuple[float, float]:
    """Ends of the error of a layer, or else of its GEMMs; none on the GPUs of the runs."""
    deployment = setup.deployment
    accelerator = deployment.accelerator
    if accelerator.name in runs.scored_devices:
        return 1.0, 1.0
    dtype = accelerator.compute_dtype(deployment.weights)
    for operation in ("layer", "gemm"):
        error = deployment.profile.kernel_residual(operation, dtype, query_tokens)
        if error is not None:
            return min(error.lo, 1.0), max(error.hi, 1.0)
    return 1.0, 1.0


def _widened(end: float, by: float) -> float:
    """One end of a band with an independent error of the same sign on top."""
    return end if by == 1.0 else _together(1.0, by, math.log(end))


def _together(plain: float, own: float, tau: float) -> float:
    """Independent relative errors of one sign, combined in logarithms."""
    size = math.sqrt(math.log(plain) ** 2 + math.log(own) ** 2 + tau**2)
    return math.exp(-size if own < 1 else size)


def step_basis(setup: Setup, query_tokens: float) -> Basis:
    """The weakest of everything the prediction rests on."""
    deployment, strategy = setup.deployment, setup.strategy
    engine, weights, target = deployment.engine, deployment.weights, deployment.target
    device, mixture = deployment.accelerator.name, bool(target.experts)
    residuals = (
        deployment.residuals.of_step(family, engine.family, weights, query_tokens)
        for family in families(strategy)
    )
    bases = [own.basis_for(engine.name, weights, mixture, device) for own in residuals]
    bases.append(deployment.profile_basis)
    if query_tokens > deployment.profile.valid.m[1]:
        bases.append("extrapolated")
    if strategy.drafted:
        bases += [*(law.basis for law in setup.laws), engine.draft_basis]
        stated = (part.resolved_acceptance() for part in strategy.parts.values())
        if any(measured_elsewhere(acceptance, target.name) for acceptance in stated):
            bases.append("extrapolated")
    if engine.given:
        bases.append("extrapolated")
    if setup.hypothetical or deployment.beyond_engine(strategy):
        bases.append("assumed")
    return weakest(bases)


def families(strategy: Strategy) -> list[str]:
    """Whose residuals speak for it: every drafting mode's, the widest of which counts."""
    drafting = [mode.band_family for mode in strategy.modes if mode.drafted]
    return list(dict.fromkeys(drafting or [strategy.band_family]))


def measured_elsewhere(acceptance: Acceptance | None, target: str) -> bool:
    """Whether figures of another target model stand in, in any domain."""
    if acceptance is None:
        return False
    named = acceptance.catalog
    if named is not None and catalog.entry("acceptance", named)["target"] != target:
        return True
    if acceptance.file is not None and read(acceptance.file).target != target:
        return True
    domains = (acceptance.by_domain or {}).values()
    return any(measured_elsewhere(inner, target) for inner in domains)


def interval(
    value: float | None, *ends: float | None, scale: Scale, open_above: bool
) -> dict[str, Any] | None:
    """Span of a value and its re-runs: a faster step does not always mean an earlier token.

    Parameters
    ----------
    value : float or None
        The prediction; None has no interval.
    ends : float or None
        The re-runs; None where one saturates.
    scale : Scale
        Gives level and basis.
    open_above : bool
        A saturated end leaves the interval without an upper bound (latencies), else without a
        lower one (speedup, rates).
    """
    if value is None:
        return None
    known = [value, *(end for end in ends if end is not None)]
    lo: float | None = min(known)
    hi: float | None = max(known)
    if None in ends:
        lo, hi = (lo, None) if open_above else (None, hi)
    return {"lo": lo, "hi": hi, "level": scale.level, "basis": scale.basis}


def with_request(
    band: dict[str, Any] | None, value: float | None, setup: Setup
) -> dict[str, Any] | None:
    """A TTFT band widened by the uncertainty of a request's time outside the engine."""
    se = setup.deployment.engine.request_us.se
    if band is None or value is None or se is None:
        return band
    half_s = Z * se * US
    wider = dict(band)
    for end, sign in (("lo", -1), ("hi", 1)):
        if band[end] is not None:
            wider[end] = max(value + sign * math.hypot(band[end] - value, half_s), 0.0)
    return wider


def with_prefill(
    band: dict[str, Any] | None, setup: Setup, computed_share: float
) -> dict[str, Any] | None:
    """A TTFT band widened by the residual of prefill, for the share of prompts not cached."""
    if band is None:
        return None
    deployment = setup.deployment
    residual = deployment.residuals.of_prefill(deployment.engine.family, deployment.weights)
    wider = dict(band)
    if band["lo"] is not None:
        wider["lo"] = band["lo"] * (1 + (residual.lo - 1) * computed_share)
    if band["hi"] is not None:
        wider["hi"] = band["hi"] * (1 + (residual.hi - 1) * computed_share)
    if computed_share > 0:
        wider["basis"] = weakest([band["basis"], residual.basis])
    return wider
