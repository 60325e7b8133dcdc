"""What a plan may be off by, input by input: how far, on what basis, and what measuring it takes."""

from __future__ import annotations

import math
from typing import NamedTuple

from models.schema import Basis, weakest
from sim.band import Z, families, kernel_errors, measured_elsewhere
from sim.planning.traffic import Traffic
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
        ``step_s``: a factor on every step time; ``capacity``: on what a replica holds;
        ``demand``: on the requests that come.
    """

    input: str
    what: str
    basis: str
    lo: float
    hi: float
    acts_on: str = "step_s"

    def at(self, z: float) -> float:
        """Its factor ``z`` standard normal deviates from the middle: lognormal, by side."""
        return math.exp(abs(z) / Z * math.log(self.lo if z < 0 else self.hi))


def step_errors(setup: Setup, query_tokens: float, prefill_share: float) -> list[Error]:
    """Errors of the step time at ``query_tokens`` a step, those of its band taken apart.

    Parameters
    ----------
    setup : Setup
    query_tokens : float
        Query tokens of a decode step at the busiest.
    prefill_share : float
        Share of a replica's time that computes prompts: the error of prefill is one of so much of
        the step time.
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
    share_lo, share_hi = (1 + (end - 1) * prefill_share for end in (prefill.lo, prefill.hi))
    what = f"prompts, {prefill_share:.0%} of a replica's busy time: {prefill.source}"
    found.append(Error("prefill time", what, prefill.basis, share_lo, share_hi))
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
    found = [Error("strategy", what, weakest(bases), lo, hi * waits)]
    law = max(setup.laws, key=lambda law: law.uncertainty)
    if law.uncertainty:
        half = math.exp(Z * law.uncertainty)
        what = f"tokens a step of {strategy.name}; `speccast calibrate acceptance` fits your own"
        found.append(Error("acceptance", what, _law_basis(setup), 1 / half, half))
    return found


def _law_basis(setup: Setup) -> Basis:
    """As the acceptance was stated; another model's figures say less."""
    target = setup.deployment.target.name
    stated = [part.resolved_acceptance() for part in setup.strategy.parts.values()]
    elsewhere = any(measured_elsewhere(one, target) for one in stated)
    bases: list[Basis] = [law.basis for law in setup.laws]
    return weakest([*bases, "extrapolated" if elsewhere else "validated"])


def prefill_share(setup: Setup, traffic: Traffic, batch: float, rate_req_s: float) -> float:
    """Share of a replica's time that prompts add to its steps, at a batch and a rate."""
    output, prompt = float(traffic.output_tokens.mean()), float(traffic.prompt_tokens.mean())
    cached = float(traffic.cached_tokens.mean()) if setup.rules.prefix_cache else 0.0
    n = max(1, min(round(batch), setup.rules.max_num_seqs))
    context, width = prompt + output / 2, setup.rules.width
    decoding = n, n * context, n * width, n * context * width
    tokens = max(1, min(round(prompt - cached), setup.rules.max_num_batched_tokens))
    pairs = tokens * cached + tokens**2 / 2
    alone = setup.step_time.mixed(*decoding)
    beside = setup.step_time.mixed(*decoding, tokens, cached + tokens, pairs, 1)
    return min(max(rate_req_s * (beside - alone), 0.0), 1.0)


def demand_error(uncertainty: float | None) -> Error | None:
    """That of the requests that come, where one is stated."""
    if not uncertainty:
        return None
    half = math.exp(Z * math.sqrt(math.log1p(uncertainty**2)))
    what = "requests that will come, as stated; your own forecast's record says how far off"
    return Error("demand", what, "assumed", 1 / half, half, "demand")


def noise_error(value: float, lo: float, hi: float) -> Error | None:
    """That of simulating for a limited time: the t-interval of a replica's capacity."""
    if not lo < value < hi or lo <= 0:
        return None
    what = "chance of the runs simulated: run.replications narrows it"
    return Error("simulation", what, "measured", lo / value, hi / value, "capacity")
