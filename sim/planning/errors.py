"""What a plan may be off by, input by input: how far, and on what basis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from models.schema import Basis, weakest
from sim.band import Z, families, kernel_errors, measured_elsewhere
from sim.setup import Setup


class Error(NamedTuple):
    """The error of one input.

    Attributes
    ----------
    input : str
        What it is of.
    what : str
        What it rests on, and what would be measured.
    basis : str
    lo, hi : float
        Its 5 % and 95 % quantile over the prediction.
    acts_on : str
        ``step_s``: a factor on every step time; ``decode_s``: on steps without what prompts add;
        ``prefill_s``: on what they add; ``capacity``: on what a replica holds; ``demand``: on the
        requests that come.
    """

    input: str
    what: str
    basis: str
    lo: float
    hi: float
    acts_on: str = "step_s"


def together(errors: Iterable[Error], *acting: str) -> tuple[float, float]:
    """Ends of all errors that act on one of these, as independent ones, in logarithms."""
    mine = [error for error in errors if error.acts_on in acting]
    lo, hi = (
        math.sqrt(sum(math.log(getattr(error, end)) ** 2 for error in mine)) for end in ("lo", "hi")
    )
    return math.exp(-lo), math.exp(hi)


def step_errors(setup: Setup, query_tokens: float) -> list[Error]:
    """Errors of the step time at ``query_tokens`` a step, those of its band taken apart.

    Parameters
    ----------
    setup : Setup
    query_tokens : float
        Query tokens of a decode step at the busiest.
    """
    deployment, strategy = setup.deployment, setup.strategy
    engine, weights, rows = deployment.engine, deployment.weights, deployment.residuals
    name, mixture = deployment.accelerator.name, bool(deployment.target.experts)
    plain = rows.of_step("plain", engine.family, weights, query_tokens)
    basis = weakest(
        [plain.basis_for(engine.name, weights, mixture, name), deployment.profile_basis]
    )
    found = [
        Error(
            "step time",
            f"decode steps of {engine.name} on {name}: {plain.source}",
            basis,
            plain.lo,
            plain.hi,
        )
    ]
    lo, hi = kernel_errors(setup, plain, query_tokens)
    if (lo, hi) != (1.0, 1.0):
        what = f"kernels of {name}, on which no serving run was scored"
        found.append(Error("kernel times", what, deployment.profile_basis, lo, hi))
    if strategy.drafted:
        found += _of_drafting(setup, query_tokens)
    prefill = rows.of_prefill(engine.family, weights)
    what = f"what prompts add to steps: {prefill.source}"
    found.append(Error("prefill time", what, prefill.basis, prefill.lo, prefill.hi, "prefill_s"))
    return found


def _of_drafting(setup: Setup, query_tokens: float) -> list[Error]:
    """Errors of what a strategy adds: its own steps, and the tokens it gets out of one."""
    deployment, strategy = setup.deployment, setup.strategy
    engine, weights, rows = deployment.engine, deployment.weights, deployment.residuals
    each = [
        rows.of_step(family, engine.family, weights, query_tokens) for family in families(strategy)
    ]
    widest = max(each, key=lambda row: row.hi / row.lo)
    lo, hi = min(row.lo for row in each), max(row.hi for row in each)
    waits = 1 + engine.sync_point_band if setup.is_async else 1.0
    target, name = deployment.target, deployment.accelerator.name
    bases = [row.basis_for(engine.name, weights, bool(target.experts), name) for row in each]
    bases += [engine.draft_basis, "assumed" if setup.hypothetical else "validated"]
    what = f"drafting and verifying of {strategy.name}: {widest.source}"
    found = [Error("strategy", what, weakest(bases), lo, hi * waits, "decode_s")]
    law = max(setup.laws, key=lambda law: law.uncertainty)
    if law.uncertainty:
        half = math.exp(Z * law.uncertainty)
        what = f"tokens a step of {strategy.name}; `speccast calibrate acceptance` fits your own"
        found.append(Error("acceptance", what, _law_basis(setup), 1 / half, half, "decode_s"))
    return found


def _law_basis(setup: Setup) -> Basis:
    """As the acceptance was stated; another model's figures say less."""
    target = setup.deployment.target.name
    stated = [part.resolved_acceptance() for part in setup.strategy.parts.values()]
    elsewhere = any(measured_elsewhere(one, target) for one in stated)
    bases: list[Basis] = [law.basis for law in setup.laws]
    return weakest([*bases, "extrapolated" if elsewhere else "validated"])


def demand_error(uncertainty: float | None) -> Error | None:
    """That of the requests that come, where one is stated."""
    if not uncertainty:
        return None
    half = math.exp(Z * math.sqrt(math.log1p(uncertainty**2)))
    what = "requests that will come, as stated; your own forecast's record says how far off"
    return Error("demand", what, "assumed", 1 / half, half, "demand")
