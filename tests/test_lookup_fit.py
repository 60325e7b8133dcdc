"""The fit of prompt lookup: known parameters come back, and its likelihood is that of the law."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance_oracle import MatchTruth, trace

from calibration.acceptance.hidden import Levels
from calibration.acceptance.lookup import fit_lookup
from calibration.acceptance.lookup_likelihood import lookup_likelihood, tries
from calibration.acceptance.nodes import passage_nodes, request_nodes
from calibration.acceptance.trace import Trace
from models.acceptance_block import SPREAD, Acceptance
from models.acceptance_rows import NGRAM_STAY

LOOKUP = MatchTruth(-1.5, 1.5, (1.0, 1.2, 1.5), spread=0.4)
PASSAGES = LOOKUP._replace(step_spread=1.2, step_memory=0.9)
LEVELS = Levels(*request_nodes(0.8), *passage_nodes(5))
ANY = np.array([-0.5, 1.2, 0.5, 0.2, -0.3, 0.4, 0.8, 0.6])


def short(requests: list[list[tuple[int, int]]]) -> Trace:
    """A trace from the accepted and drafted counts of each step."""
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in requests])))
    accepted, drafted = np.array([step for one in requests for step in one], dtype=np.int64).T
    return Trace(offsets, accepted, drafted, np.arange(accepted.size) + 100)


# Matches of less than three tokens, after one in full and not, and where a request begins.
UNEVEN = short(
    [
        [(0, 3), (3, 3), (1, 3), (0, 0), (0, 0)],
        [(2, 2), (1, 2), (1, 1), (0, 0), (0, 1)],
        [(0, 0), (2, 3)],
        [(3, 3)],
    ]
)


def plain_likelihood(recorded: Trace, vector, levels: Levels) -> float:
    """The same by looping over requests, levels and steps."""
    enter, stay, *accepted, spread, step_spread, memory = vector
    total = 0.0
    for start, end in zip(recorded.offsets[:-1], recorded.offsets[1:], strict=True):
        of_request = 0.0
        for z, z_weight in zip(levels.z, levels.z_weights, strict=True):
            state, whole = levels.e_weights.copy(), False
            for i in range(start, end):
                if i > start:
                    state = memory * state + (1 - memory) * state.sum() * levels.e_weights
                shift = spread * z + step_spread * levels.e
                drafted, taken = recorded.drafted[i], recorded.accepted[i]
                if i > start:
                    p = 1 / (1 + np.exp(-(stay if whole else enter) - shift))
                    state = state * (p if drafted else 1 - p)
                for level in range(min(taken + 1, drafted)):
                    p = 1 / (1 + np.exp(-accepted[level] - shift))
                    state = state * (p if level < taken else 1 - p)
                whole = drafted > 0 and taken == drafted
            of_request += z_weight * state.sum()
        total += np.log(of_request)
    return total


def test_the_likelihood_is_the_sum_over_all_levels_step_by_step():
    value, _ = lookup_likelihood(tries(UNEVEN), ANY, LEVELS)
    assert value == pytest.approx(plain_likelihood(UNEVEN, ANY, LEVELS), rel=1e-12)


def test_the_gradient_is_the_slope_of_the_likelihood():
    data = tries(UNEVEN)
    _, slope = lookup_likelihood(data, ANY, LEVELS)
    for place, step in enumerate(1e-5 * np.eye(ANY.size)):
        above, below = (
            lookup_likelihood(data, ANY + by, LEVELS, gradient=False)[0] for by in (step, -step)
        )
        assert slope[place] == pytest.approx((above - below) / 2e-5, abs=1e-7)


def test_what_happened_in_a_lookup_is_counted_from_the_second_step_on():
    steps = [(2, 2), (0, 0), (1, 2), (2, 2), (2, 2)], [(0, 0), (1, 1)]
    data = tries(short([*steps]))
    # After no full match: steps 2, 3 | 1. After one: steps 1, 4. Then first and second token.
    for start, length, happened, failed in zip(
        data.starts,
        data.lengths,
        [[2, 1, 4, 3], [1, 0, 1, 0]],
        [[0, 1, 0, 1], [0, 0, 0, 0]],
        strict=True,
    ):
        codes = data.codes[start : start + length]
        assert data.happened[codes].sum(0).tolist() == happened
        assert data.failed[codes].sum(0).tolist() == failed
    assert [own.tolist() for own in data.seen()] == [[3, 1, 5, 3], [3, 2, 5, 4]]


@pytest.mark.parametrize(("truth", "seed"), [(LOOKUP, 2), (PASSAGES, 3)])
def test_known_parameters_come_back_within_three_standard_errors(truth, seed):
    fit = fit_lookup(trace(truth, 40, 128, seed=seed), 3)
    expected = np.array([truth.enter, truth.stay, *truth.logits, *truth[3:]])
    errors = np.sqrt(np.diag(fit.best.covariance))
    asked = expected.size if truth.step_spread else expected.size - 2
    assert fit.best.known[:asked].all()
    assert (np.abs(fit.best.vector - expected) < 3 * errors)[:asked].all()
    assert fit.errors()["match_stay"] is not None


def test_what_the_block_states_are_the_shares_of_the_runs():
    recorded = trace(PASSAGES, 60, 160, seed=4)
    stated = fit_lookup(recorded, 3).stated
    match = recorded.drafted > 0
    reached = [match.sum(), *((recorded.accepted >= i).sum() for i in (1, 2, 3))]
    assert stated["match_rate"] == pytest.approx(match.mean(), rel=0.08)
    assert stated["alpha_by_pos"] == pytest.approx(np.divide(reached[1:], reached[:-1]), rel=0.05)
    assert stated["step_memory"] == pytest.approx(0.9, abs=0.08)


def test_without_passages_their_length_is_not_stated():
    stated = fit_lookup(trace(LOOKUP._replace(spread=0.2), 20, 96, seed=2), 3).stated
    assert stated["step_spread"] == stated["step_memory"] == 0.0


def test_with_two_requests_only_the_rates_are_fitted():
    fit = fit_lookup(trace(PASSAGES, 2, 48, seed=1), 3)
    assert set(fit.stated) == {"match_rate", "match_stay", "alpha_by_pos"}
    assert fit.assumed == ("spread", "step_spread", "step_memory")
    assert fit.best.vector[-3:].tolist() == [SPREAD, 0.0, 0.0]


def test_a_lookup_that_never_matched_in_full_leaves_the_stay_rate_to_the_default():
    recorded = short([[(count, 3) for count in (0, 1, 0, 0, 2, 0)]] * 5)
    fit = fit_lookup(recorded, 3)
    assert fit.assumed == ("match_stay",) and "match_stay" not in fit.stated
    assert 1.0 / (1.0 + np.exp(-fit.best.vector[1])) == pytest.approx(NGRAM_STAY)
    Acceptance.model_validate(fit.stated)


@pytest.mark.parametrize("step", [(0, 0), (3, 3), (0, 3)])
def test_one_kind_of_step_alone_still_gives_a_block(step):
    stated = fit_lookup(short([[step] * 12] * 5), 3).stated
    assert len(stated["alpha_by_pos"]) == 3
    Acceptance.model_validate(stated)
