"""Fit of n-gram lookup: how often a match is found, goes on, and what is accepted of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.acceptance.fit import Fit, Stated
from calibration.acceptance.maximum import (
    LEAST_SPREAD,
    LOGIT_SD,
    Objective,
    maximum,
    normal_prior,
    spread_prior,
)
from calibration.acceptance.nodes import request_nodes
from calibration.acceptance.trace import Trace
from models.acceptance_block import SPREAD
from models.acceptance_rows import NGRAM_STAY
from models.paths import Floats
from models.population import NgramLogits, logit

FAR_LOGIT, FAR_SPREAD = 9.0, 2.5
_SPACING = 0.1
_EDGE = 1e-4
_Z, _WEIGHTS = request_nodes(_SPACING)


class Tried(NamedTuple):
    """How often each thing happened or not, by request: shape (n, 2 + levels).

    Columns: a match after a step that was no match accepted in full, a match after one that was,
    then each draft token of a match.
    """

    happened: Floats
    failed: Floats


def fit_lookup(trace: Trace, depth: int) -> Fit:
    """Fit the law of n-gram lookup to one domain by maximum likelihood with weak priors.

    Given a request's level all it shows is independent, so the likelihood is a product; the match
    of a request's first step is taken as given. Priors (assumptions, see ``maximum``): logits
    normal(0, 4), spread half-normal(1) times itself.

    Parameters
    ----------
    trace : Trace
        A step with a match has ``drafted`` above 0. With fewer than four requests only the rates
        are fitted; the spread is the default's.
    depth : int
        Tokens of a match, K.
    """
    tried = lookups(trace, depth)
    seen = tried.happened.sum(0), (tried.happened + tried.failed).sum(0)
    start = np.append(logit((seen[0] + 0.5) / (seen[1] + 1.0)), 0.3)
    upper = np.array([*[FAR_LOGIT] * (start.size - 1), FAR_SPREAD])
    lower = np.array([*[-FAR_LOGIT] * (start.size - 1), LEAST_SPREAD])
    assumed: tuple[str, ...] = ()
    if seen[1][1] == 0:
        assumed += ("match_stay",)
        start[1] = lower[1] = upper[1] = float(logit([NGRAM_STAY])[0])
    if trace.few:
        assumed += ("spread",)
        start[-1] = lower[-1] = upper[-1] = SPREAD
    best = maximum(_posterior(tried), start, lower, upper)

    def state(vector: Floats) -> Stated:
        stated = _stated(vector, depth)
        return {key: value for key, value in stated.items() if key not in assumed}

    return Fit(best, state, independent_matches, assumed=assumed)


def lookups(trace: Trace, depth: int) -> Tried:
    """Count what happened in the steps of each request; levels nobody reached are left out."""
    match = trace.drafted > 0
    whole = match & (trace.accepted == trace.drafted)
    later = np.ones(trace.steps, dtype=bool)
    later[trace.offsets[:-1]] = False
    after_whole = np.concatenate(([False], whole[:-1]))
    asked = [later & ~after_whole, later & after_whole]
    happened, failed = [one & match for one in asked], [one & ~match for one in asked]
    for level in range(depth):
        offered = match & (trace.drafted > level) & (trace.accepted >= level)
        if level == 0 or offered.any():
            happened.append(offered & (trace.accepted > level))
            failed.append(offered & (trace.accepted == level))
    by_request = [np.stack([trace.sums(one) for one in kind], 1) for kind in (happened, failed)]
    return Tried(*by_request)


def _posterior(tried: Tried) -> Objective:
    def objective(vector: Floats) -> tuple[float, Floats]:
        logits = vector[:-1] + vector[-1] * _Z[:, None]
        happens, fails = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
        joint = tried.happened @ happens.T + tried.failed @ fails.T + np.log(_WEIGHTS)
        each = np.logaddexp.reduce(joint, axis=1)
        levels = np.exp(joint - each[:, None])
        by_level = levels.T @ tried.happened * np.exp(fails)
        by_level -= levels.T @ tried.failed * np.exp(happens)
        slope = np.append(by_level.sum(0), float(_Z @ by_level.sum(1)))
        priors = normal_prior(vector[:-1], LOGIT_SD), spread_prior(float(vector[-1]))
        value = float(each.sum()) + sum(prior for prior, _ in priors)
        return value, slope + np.concatenate([own for _, own in priors])

    return objective


def _stated(vector: Floats, depth: int) -> Stated:
    """Step-weighted shares of the population, as a measurement states them."""
    spread = max(0.0, float(vector[-1]))
    levels = np.concatenate((vector[2:-1], np.repeat(vector[-2], depth - vector[2:-1].size)))
    rates = NgramLogits(vector[:1], vector[1:2], levels[None, :]).shifted(spread * _Z).rates()
    steps = _WEIGHTS / (1.0 + rates.unconditional.sum(axis=1))
    matches, full = steps * rates.match, steps * rates.full
    survival = matches @ rates.survival / matches.sum()
    alphas = survival / np.concatenate(([1.0], survival[:-1]))
    return {
        "match_rate": _inside(matches.sum() / steps.sum()),
        "match_stay": _inside(full @ rates.stay / full.sum()),
        "alpha_by_pos": alphas.tolist(),
        "spread": spread,
    }


def _inside(share: float) -> float:
    return float(np.clip(share, _EDGE, 1.0 - _EDGE))


def independent_matches(stated: Stated) -> Stated:
    """The same share of matches and rates, with matches that do not go on."""
    rate = stated["match_rate"]
    alphas = stated["alpha_by_pos"]
    return {"match_rate": rate, "match_stay": rate, "alpha_by_pos": alphas, "spread": 0.0}
