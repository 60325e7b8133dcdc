"""Fit of n-gram lookup: how often a match is found, goes on, and what is accepted of it."""

from __future__ import annotations

import numpy as np

from calibration.acceptance.chains import (
    FAR_LOGIT,
    FAR_SPREAD,
    MEMORY_RANGE,
    NO_PASSAGES,
    PASSAGE_POINTS,
    STARTS,
)
from calibration.acceptance.fit import Fit, Stated
from calibration.acceptance.hidden import Levels
from calibration.acceptance.lookup_likelihood import Tries, lookup_likelihood, tries
from calibration.acceptance.maximum import (
    LEAST_SPREAD,
    LOGIT_SD,
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
from models.acceptance_rows import NGRAM_STAY
from models.lookup_passages import match_means
from models.paths import Floats
from models.population import NgramLogits, logit

_EDGE = 1e-4
_WITHIN = ("spread", "step_spread", "step_memory")


def fit_lookup(trace: Trace, depth: int) -> Fit:
    """Fit the law of n-gram lookup to one domain by maximum likelihood with weak priors.

    Given the levels of a request and of its passages all it shows is independent, the match of its
    first step being taken as given. Priors are those of `fit_levels`.

    Parameters
    ----------
    trace : Trace
        A step with a match has ``drafted`` above 0. With fewer than four requests only the rates
        are fitted; the spread is the default's.
    depth : int
        Tokens of a match, K.
    """
    data = tries(trace)
    happened, tried = data.seen()
    rates = logit((happened + 0.5) / (tried + 1.0))
    assumed: tuple[str, ...] = ()
    if tried[1] == 0:
        assumed += ("match_stay",)
        rates[1] = logit([NGRAM_STAY])[0]
    if trace.few:
        assumed += _WITHIN
        start = np.array([*rates, SPREAD, 0.0, 0.0])
        best = _maximum(data, start, 0)
    else:
        best = _passages(data, rates)

    def state(vector: Floats) -> Stated:
        stated = _stated(vector, depth)
        return {key: value for key, value in stated.items() if key not in assumed}

    return Fit(best, state, independent_matches, assumed=assumed)


def _passages(data: Tries, rates: Floats) -> Maximum:
    """With passages, unless they do not show."""
    objective = _posterior(data)
    starts = [np.array([*rates, 0.3, *pair]) for pair in STARTS]
    best = _maximum(data, max(starts, key=lambda vector: objective(vector)[0]), 3)
    if best.vector[-2] >= NO_PASSAGES:
        return best
    return _maximum(data, np.array([*best.vector[:-2], 0.0, 0.0]), 1)


def _maximum(data: Tries, start: Floats, free: int) -> Maximum:
    """With the first ``free`` of spread, step spread and memory; the rest stays put."""
    n = start.size - 3
    lower = np.array([*[-FAR_LOGIT] * n, LEAST_SPREAD, 0.0, MEMORY_RANGE[0]])
    upper = np.array([*[FAR_LOGIT] * n, FAR_SPREAD, FAR_SPREAD, MEMORY_RANGE[1]])
    held = np.arange(start.size) >= n + free
    held[1] = data.seen()[1][1] == 0
    lower[held] = upper[held] = start[held]
    return maximum(_posterior(data), start, lower, upper)


def _posterior(data: Tries) -> Objective:
    levels = Levels(*request_nodes(_spacing(data)), *passage_nodes(PASSAGE_POINTS))
    flat = levels._replace(e=np.zeros(1), e_weights=np.ones(1))

    def objective(vector: Floats) -> tuple[float, Floats]:
        spread, *passages = (float(value) for value in vector[-3:])
        value, slope = lookup_likelihood(data, vector, levels if any(passages) else flat)
        priors = [
            normal_prior(vector[:-3], LOGIT_SD),
            spread_prior(spread),
            normal_prior(vector[-2:-1], SPREAD_SD),
            memory_prior(passages[1]),
        ]
        value += sum(prior for prior, _ in priors)
        return value, slope + np.concatenate([own for _, own in priors])

    return objective


def _spacing(data: Tries) -> float:
    """Fine enough for the longest request."""
    happened, tried = data.seen()
    told = float((happened * (tried - happened) / np.maximum(tried, 1.0)).sum())
    return spacing_for(told * float(data.lengths.max()) / data.codes.size)


def _stated(vector: Floats, depth: int) -> Stated:
    """Step-weighted shares of the population, as a measurement states them."""
    logits, within = vector[:-3], np.maximum(vector[-3:], 0.0)
    spread, step_spread, memory = (float(value) for value in within)
    memory = min(memory, MEMORY_RANGE[1])
    levels = np.concatenate((logits[2:], np.repeat(logits[-1], depth + 2 - logits.size)))
    at = NgramLogits(logits[:1], logits[1:2], levels[None, :])
    means = match_means(at, spread, step_spread, memory)
    return {
        "match_rate": _inside(means.match_rate),
        "match_stay": _inside(means.match_stay),
        "alpha_by_pos": means.alphas.tolist(),
        **dict(zip(_WITHIN, (spread, step_spread, memory), strict=True)),
    }


def _inside(share: float) -> float:
    return float(np.clip(share, _EDGE, 1.0 - _EDGE))


def independent_matches(stated: Stated) -> Stated:
    """The same share of matches and rates, with matches that do not go on."""
    rate = stated["match_rate"]
    alphas = stated["alpha_by_pos"]
    return {"match_rate": rate, "match_stay": rate, "alpha_by_pos": alphas, "spread": 0.0}
