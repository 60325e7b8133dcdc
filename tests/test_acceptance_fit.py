"""The fit of recorded acceptance: known parameters come back, with errors that mean something."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance_oracle import Truth, trace

from calibration.acceptance.chains import fit_levels, population_rates
from calibration.acceptance.heads import head_rates
from calibration.acceptance.hidden import Levels
from calibration.acceptance.interval import acceptance_rate, ratio, tau_interval
from calibration.acceptance.likelihood import Parameters, log_likelihood, outcomes
from calibration.acceptance.nodes import passage_nodes, request_nodes
from calibration.acceptance.trace import Trace
from models.acceptance_block import Acceptance

BURSTY = Truth((0.8, 0.5, 0.4), spread=0.4, step_spread=0.9, step_memory=0.8)
SLOPING = BURSTY._replace(context_slope=-0.8, step_spread=0.5)


def short(requests: list[list[int]], drafted: int = 3) -> Trace:
    """A trace from the accepted counts of each request."""
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in requests])))
    accepted = np.array([count for one in requests for count in one], dtype=np.int64)
    context = np.arange(accepted.size) + 100
    return Trace(offsets, accepted, np.full_like(accepted, drafted), context)


def plain_likelihood(recorded: Trace, at: Parameters, levels: Levels) -> float:
    """The same by looping over requests, levels and steps."""
    total, reference = 0.0, float(np.median(recorded.context))
    for r in range(recorded.requests):
        of_request = 0.0
        for z, z_weight in zip(levels.z, levels.z_weights, strict=True):
            state = levels.e_weights.copy()
            for i in range(recorded.offsets[r], recorded.offsets[r + 1]):
                if i > recorded.offsets[r]:
                    anew = (1.0 - at.step_memory) * state.sum() * levels.e_weights
                    state = at.step_memory * state + anew
                shift = at.spread * z + at.step_spread * levels.e
                shift = shift + at.context_slope * np.log2(recorded.context[i] / reference)
                for level in range(recorded.accepted[i] + 1):
                    if level < min(at.logits.size, recorded.drafted[i]):
                        p = 1.0 / (1.0 + np.exp(-at.logits[level] - shift))
                        state = state * (p if level < recorded.accepted[i] else 1.0 - p)
            of_request += z_weight * state.sum()
        total += np.log(of_request)
    return total


LEVELS = Levels(*request_nodes(0.8), *passage_nodes(5))
ANY = Parameters(np.array([0.5, 0.2, -0.3]), 0.4, 0.8, 0.6, 0.3)


def uneven() -> Trace:
    """Requests of different lengths, steps that drafted less than the depth."""
    recorded = short([[0, 3, 1], [2], [3, 3, 0, 1, 2], [1, 1]])
    drafted = recorded.drafted.copy()
    drafted[1:6:2] = np.maximum(recorded.accepted[1:6:2], 1)
    return Trace(recorded.offsets, recorded.accepted, drafted, recorded.context * 2)


def test_the_likelihood_is_the_sum_over_all_levels_step_by_step():
    recorded = uneven()
    value, _ = log_likelihood(outcomes(recorded, 3, chain=True), ANY, LEVELS)
    assert value == pytest.approx(plain_likelihood(recorded, ANY, LEVELS), rel=1e-3)
    as_tree, _ = log_likelihood(outcomes(recorded, 3, chain=False), ANY, LEVELS)
    assert as_tree < value - 0.5


def test_the_gradient_is_the_slope_of_the_likelihood():
    data = outcomes(uneven(), 3, chain=True)
    vector = ANY.vector()
    _, slope = log_likelihood(data, ANY, LEVELS)
    for place, step in enumerate(1e-5 * np.eye(vector.size)):
        above, below = (
            log_likelihood(data, Parameters.of(vector + by), LEVELS, gradient=False)[0]
            for by in (step, -step)
        )
        assert slope[place] == pytest.approx((above - below) / 2e-5, abs=1e-5)


@pytest.mark.parametrize("truth", [BURSTY, SLOPING])
def test_known_parameters_come_back_within_three_standard_errors(truth):
    recorded = trace(truth, 24, 128, seed=5, prompts=(20, 800))
    fit = fit_levels(recorded, 3, chain=True)
    found = fit.best.vector
    reference = float(np.median(recorded.context))
    moved = truth.context_slope * np.log2(reference / truth.reference)
    expected = [*(np.array(truth.logits) + moved), *truth[1:4], truth.context_slope]
    errors = np.sqrt(np.diag(fit.best.covariance))
    for place, value in enumerate(expected):
        if fit.best.known[place]:
            assert abs(found[place] - value) < 3 * errors[place], place
    assert fit.best.known[:-1].all()
    assert ("context_slope" in fit.stated) == (truth.context_slope != 0)


def test_what_the_block_states_is_the_tau_of_the_runs():
    recorded = trace(BURSTY, 12, 96, seed=3)
    rates = fit_levels(recorded, 3, chain=True).stated["alpha_by_pos"]
    interval = tau_interval(recorded, 3)
    assert 1.0 + np.cumprod(rates).sum() == pytest.approx(interval.value, abs=interval.se)


def test_population_rates_count_a_request_by_its_steps():
    levels = np.random.default_rng(0).standard_normal((2, 200_000))
    p = 1.0 / (1.0 + np.exp(-(np.array([[0.8], [0.3]]) + 0.7 * levels[0])))
    first, both = p[0], p[0] * p[1]
    steps = 1.0 / (1.0 + first + both)
    expected = [(steps * first).sum() / steps.sum(), (steps * both).sum() / (steps * first).sum()]
    assert population_rates(np.array([0.8, 0.3]), 0.7, 0.0) == pytest.approx(expected, rel=0.005)
    # Passages average within a request: no weights of their own.
    within = (1.0 / (1.0 + np.exp(-(0.8 + 0.7 * levels[1])))).mean()
    assert population_rates(np.array([0.8]), 0.0, 0.7)[0] == pytest.approx(within, rel=0.005)


def test_standard_errors_are_as_large_as_the_scatter_of_repeated_runs():
    truth = BURSTY._replace(logits=(0.8, 0.4))
    fits = [fit_levels(trace(truth, 8, 48, seed), 2, chain=True) for seed in range(12)]
    rates = np.array([fit.stated["alpha_by_pos"] for fit in fits])
    said = np.array([fit.errors()["alpha_by_pos"] for fit in fits], dtype=float)
    assert rates.std(axis=0) == pytest.approx(said.mean(axis=0), rel=0.5)


def test_levels_nobody_reached_get_the_last_rate_measured():
    fit = fit_levels(short([[0, 1, 0, 0, 1, 0, 0, 0]] * 6), 3, chain=True)
    first, second, third = fit.stated["alpha_by_pos"]
    assert second == third < first
    assert fit.errors()["alpha_by_pos"][2] is not None


@pytest.mark.parametrize("counts", [[0] * 12, [3] * 12])
def test_acceptance_of_nothing_or_of_everything_still_gives_a_block(counts):
    fit = fit_levels(short([counts] * 5), 3, chain=True)
    assert all(0.0 < rate < 1.0 for rate in fit.stated["alpha_by_pos"])
    Acceptance.model_validate(fit.stated)


def test_with_two_requests_only_the_rates_are_fitted():
    fit = fit_levels(trace(BURSTY, 2, 48), 3, chain=True)
    assert set(fit.stated) == {"alpha_by_pos"}
    assert fit.assumed == ("spread", "step_spread", "step_memory")
    assert all(error > 0.02 for error in fit.errors()["alpha_by_pos"])


def test_without_passages_their_length_is_not_stated():
    steady = trace(Truth((0.8, 0.5), spread=0.3), 12, 96, seed=3)
    stated = fit_levels(steady, 2, chain=True).stated
    assert stated["step_spread"] == stated["step_memory"] == 0.0


def test_tau_is_a_ratio_with_requests_as_clusters():
    recorded = short([[0, 1, 2], [3, 3], [1, 1, 1, 1], [2]])
    interval = tau_interval(recorded, 3)
    assert interval.value == pytest.approx(1 + 15 / 10)
    away = np.array([6.0, 8.0, 8.0, 3.0]) - 2.5 * np.array([3, 2, 4, 1])
    assert interval.se == pytest.approx(np.sqrt(4 / 3 * (away**2).sum()) / 10)
    # Student's t of 3 degrees of freedom.
    assert interval.hi == pytest.approx(min(4.0, 2.5 + 3.1824 * interval.se), rel=1e-4)
    assert acceptance_rate(recorded) == 15 / 30
    assert ratio(np.array([3.0]), np.array([4.0])) == (0.75, None)


def test_the_interval_covers_the_truth_nineteen_times_in_twenty():
    truth = Truth((0.8, 0.4), spread=0.5, step_spread=0.8, step_memory=0.7)
    tau = tau_interval(trace(truth, 1500, 64, seed=99), 2).value
    found = [tau_interval(trace(truth, 10, 64, seed), 2) for seed in range(200)]
    assert 0.90 <= np.mean([one.lo <= tau <= one.hi for one in found]) <= 0.99


def test_one_request_has_no_standard_error_and_the_widest_interval():
    interval = tau_interval(short([[0, 1, 3]]), 3)
    assert (interval.lo, interval.hi, interval.se) == (1.0, 4.0, None)


def test_two_requests_that_agree_are_not_taken_as_exact():
    assert tau_interval(short([[0, 1, 3], [3, 1, 0]]), 3).se == pytest.approx(0.5578, abs=1e-3)


def test_head_rates_are_shares_of_the_times_a_level_was_reached():
    base = short([[1, 0], [2, 0], [0], [1]], drafted=5)
    ranks = ("0 -", "1", "0 2", "-", "-", "0 0")
    recorded = Trace(base.offsets, base.accepted, base.drafted, base.context, ranks)
    rates, errors = head_rates(recorded)
    assert rates == [[3 / 6, 1 / 6], [1 / 3, 0.0, 1 / 3]]
    by_request = np.array([1, 1, 0, 1]) - 0.5 * np.array([2, 2, 1, 1])
    assert errors[0][0] == pytest.approx(np.sqrt(4 / 3 * (by_request**2).sum()) / 6)
    assert head_rates(base) is None
