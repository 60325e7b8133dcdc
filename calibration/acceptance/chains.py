"""Fit of chains, trees and lookahead: rates by level, spreads, memory of steps, context."""

from __future__ import annotations

import numpy as np

from calibration.acceptance.fit import Fit, Stated
from calibration.acceptance.hidden import Levels
from calibration.acceptance.likelihood import Outcomes, Parameters, log_likelihood, outcomes
from calibration.acceptance.maximum import (
    LEAST_SPREAD,
    LOGIT_SD,
    SLOPE_SD,
    SPREAD_SD,
    Maximum,
    Objective,
    maximum,
    memory_prior,
    normal_prior,
    spread_prior,
)
from calibration.acceptance.nodes import passage_nodes, request_nodes, spacing_for
from calibration.acceptance.trace import Trace
from models.acceptance_block import SPREAD
from models.paths import Floats
from models.population import cumulative, logit, population

PASSAGE_POINTS = 13
FAR_LOGIT, FAR_SPREAD, FAR_SLOPE = 9.0, 2.5, 2.0
MEMORY_RANGE = 0.01, 0.98
NO_PASSAGES = 0.05
"""Below this step spread the data know no passages, and their length means nothing."""
CLEAR = 2.0
"""Standard errors from 0 at which a context slope is used."""
STARTS = ((0.4, 0.3), (0.4, 0.8), (1.0, 0.3), (1.0, 0.8))
_E, _E_WEIGHTS = passage_nodes(PASSAGE_POINTS)


def fit_levels(trace: Trace, depth: int, chain: bool) -> Fit:
    """Fit the law of chains and trees to one domain by maximum likelihood with weak priors.

    Priors (assumptions, see ``maximum``): logits normal(0, 4); spreads half-normal(1), that
    between requests times itself; context slope normal(0, 0.3); step memory ``m (1 - m)``.

    Parameters
    ----------
    trace : Trace
        With fewer than four requests only the rates are fitted; the spread is the default's.
    depth : int
        Most draft tokens a step accepts. Levels that were never reached get the last rate measured.
    chain : bool
        Steps may have drafted fewer tokens than ``depth``; a tree always has all its levels.
    """
    reached = int(min(depth, trace.accepted.max() + 1))
    data = outcomes(trace, reached, chain)
    start = Parameters(_rates(data), 0.3, 0.0, 0.0, 0.0).vector()
    levels = Levels(*request_nodes(_spacing(data, start)), _E, _E_WEIGHTS)
    objective = _posterior(data, levels)
    if trace.few:
        fixed = np.array([SPREAD, 0.0, 0.0, 0.0])
        best = _maximum(objective, np.concatenate((start[:-4], fixed)), 0)
        return _fit(best, data, depth, None, assumed=("spread", "step_spread", "step_memory"))
    best = _maximum(objective, _best_start(objective, start), 4)
    slope = _slope(best)
    used = slope[1] is not None and abs(slope[0]) > CLEAR * slope[1]
    if not used:
        best = _maximum(objective, np.append(best.vector[:-1], 0.0), 3)
    if best.vector[-3] < NO_PASSAGES:
        flat = best.vector.copy()
        flat[-3:-1] = 0.0
        best = _maximum(objective, flat, 1, slope=used)
    return _fit(best, data, depth, slope, used=used)


def _rates(data: Outcomes) -> Floats:
    """Raw logits by level, half an observation added on either side."""
    size = 2 * data.depth + 1
    seen = np.bincount(data.codes % size, minlength=size)
    reached = seen[: data.depth + 1].copy()
    reached[: data.depth] += seen[data.depth + 1 :]
    passed = reached[::-1].cumsum()[::-1][1:]
    rates: Floats = (passed + 0.5) / (passed + seen[: data.depth] + 1.0)
    return logit(rates)


def _spacing(data: Outcomes, start: Floats) -> float:
    """Fine enough for the longest request at a spread of 1 (see ``nodes``)."""
    survival = cumulative(start[None, :-4], np.zeros(1))[0]
    before = np.concatenate(([1.0], survival[:-1]))
    rates = survival / before
    told = float((before * rates * (1.0 - rates)).sum()) * float(data.lengths.max())
    return spacing_for(told)


def _posterior(data: Outcomes, levels: Levels) -> Objective:
    flat = levels._replace(e=np.zeros(1), e_weights=np.ones(1))

    def objective(vector: Floats) -> tuple[float, Floats]:
        at = Parameters.of(vector)
        no_passages = at.step_spread == 0.0 == at.step_memory
        value, slope = log_likelihood(data, at, flat if no_passages else levels)
        priors = [
            normal_prior(at.logits, LOGIT_SD),
            spread_prior(at.spread),
            normal_prior(vector[-3:-2], SPREAD_SD),
            memory_prior(at.step_memory),
            normal_prior(vector[-1:], SLOPE_SD),
        ]
        value += sum(prior for prior, _ in priors)
        return value, slope + np.concatenate([own for _, own in priors])

    return objective


def _best_start(objective: Objective, start: Floats) -> Floats:
    """The likeliest of a few short and long, weak and strong passages."""
    tried = [np.concatenate((start[:-3], pair, (0.0,))) for pair in STARTS]
    return max(tried, key=lambda vector: objective(vector)[0])


def _maximum(objective: Objective, start: Floats, free: int, slope: bool | None = None) -> Maximum:
    """With the first ``free`` of spread, step spread, memory and slope; the rest stays put."""
    n = start.size - 4
    lower = np.array([*[-FAR_LOGIT] * n, LEAST_SPREAD, 0.0, MEMORY_RANGE[0], -FAR_SLOPE])
    upper = np.array([*[FAR_LOGIT] * n, FAR_SPREAD, FAR_SPREAD, MEMORY_RANGE[1], FAR_SLOPE])
    held = np.arange(start.size) >= n + free
    if slope:
        held[-1] = False
    lower[held] = upper[held] = start[held]
    return maximum(objective, start, lower, upper)


def _slope(best: Maximum) -> tuple[float, float | None]:
    error = float(np.sqrt(best.covariance[-1, -1])) if best.known[-1] else None
    return float(best.vector[-1]), error


def _fit(
    best: Maximum,
    data: Outcomes,
    depth: int,
    slope: tuple[float, float | None] | None,
    used: bool = False,
    assumed: tuple[str, ...] = (),
) -> Fit:
    def state(vector: Floats) -> Stated:
        at = _within(Parameters.of(vector))
        alphas = population_rates(at.logits, at.spread, at.step_spread).tolist()
        stated: Stated = {"alpha_by_pos": alphas + alphas[-1:] * (depth - len(alphas))}
        others = {key: getattr(at, key) for key in ("spread", "step_spread", "step_memory")}
        stated |= {key: value for key, value in others.items() if key not in assumed}
        if used:
            stated["context_slope"] = at.context_slope
        return stated

    return Fit(best, state, independent_steps, slope, assumed)


def _within(at: Parameters) -> Parameters:
    """Parameters that a draw has carried over a bound, put back on it."""
    return at._replace(
        spread=max(0.0, at.spread),
        step_spread=max(0.0, at.step_spread),
        step_memory=min(max(0.0, at.step_memory), MEMORY_RANGE[1]),
    )


def independent_steps(stated: Stated) -> Stated:
    """The same rates by level, the same in every step of every request."""
    return {"alpha_by_pos": stated["alpha_by_pos"], "spread": 0.0}


def population_rates(logits: Floats, spread: float, step_spread: float) -> Floats:
    """Step-weighted P(accepted | all before were) of the population, shape (depth,).

    Over requests of equal length, which count as ``1 / tau``, and over all passages of each.
    """

    def shape(shift: Floats) -> Floats:
        shifts = shift[:, None] + step_spread * _E
        by_passage = cumulative(logits, shifts.ravel()).reshape(*shifts.shape, -1)
        averaged: Floats = np.einsum("qej,e->qj", by_passage, _E_WEIGHTS)
        return averaged

    survival, steps = population(shape, 0.0, spread)
    mean = steps @ survival / steps.sum()
    rates: Floats = mean / np.concatenate(([1.0], mean[:-1]))
    return rates
