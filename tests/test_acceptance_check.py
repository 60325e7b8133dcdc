"""Odd requests against even ones: what passes, what fails, and whether p values can be believed."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance_oracle import MatchTruth, Truth, trace

from calibration.acceptance import check as checking
from calibration.acceptance.check import Check, check, check_together, fitted_tau, samplers
from calibration.acceptance.entries import fit_of, measure
from calibration.acceptance.sampler import draw
from calibration.acceptance.statistics import (
    WINDOW,
    Counts,
    dispersion,
    distances,
    distributions,
    verdict,
    window_sums,
)
from calibration.acceptance.trace import Trace
from models.strategies import Strategy, strategy_types

BURSTY = Truth((0.8, 0.5, 0.4), spread=0.4, step_spread=1.0, step_memory=0.85)
STEADY = Truth((0.8, 0.5, 0.4))
LOOKUP = MatchTruth(-1.5, 2.5, (1.0, 1.2, 1.5), spread=0.5)
CHAIN = strategy_types()["draft_model"].model_validate({"draft": "smollm2-135m", "k": 3})
NGRAM = strategy_types()["ngram"].model_validate({"k": 3})


def checked(strategy: Strategy, recorded: Trace) -> Check:
    found = check(measure("one", "code", strategy, recorded), strategy)
    assert found is not None
    return found.check


def counts_of(recorded: Trace) -> Counts:
    return Counts(recorded.accepted, recorded.offsets)


def test_of_a_bursty_trace_the_fit_passes_and_independent_steps_fail():
    found = checked(CHAIN, trace(BURSTY, 24, 128, seed=1))
    assert found.fitted.p > 0.01
    assert found.independent.p < 0.01
    own = found.independent.by_statistic
    assert own["windows"] < 0.01 < own["steps"]
    assert found.is_independent.p < 0.01


def test_an_independent_trace_is_recognised_and_both_samplers_pass():
    found = checked(CHAIN, trace(STEADY, 16, 96, seed=3))
    assert min(one.p for one in found) > 0.01


def test_matches_that_go_on_are_told_from_matches_that_do_not():
    found = checked(NGRAM, trace(LOOKUP, 24, 128, seed=2))
    assert found.fitted.p > 0.01 > max(found.independent.p, found.is_independent.p)


def test_several_short_domains_together_show_what_each_hides():
    def of(domain: str, truth: Truth, seed: int):
        found = check(measure("one", domain, CHAIN, trace(truth, 8, 40, seed=seed)), CHAIN)
        assert found is not None
        return found

    mild = Truth((0.8, 0.5, 0.4), spread=0.3, step_spread=0.8, step_memory=0.8)
    several = [of(f"domain {seed}", mild, seed) for seed in range(10, 16)]
    together = check_together(several)
    assert sum(one.check.independent.p < 0.01 for one in several) < len(several) / 2
    assert together.independent.p < 0.01 < together.fitted.p
    steady = check_together([of(f"domain {seed}", STEADY, seed) for seed in range(20, 26)])
    assert min(one.p for one in steady) > 0.01


@pytest.mark.parametrize("kinds", [2, 4, 8])
def test_prompts_that_take_turns_in_kind_are_in_both_halves_alike(kinds):
    kind = np.arange(32) % kinds
    both = Trace(np.arange(33), kind, np.full(32, kinds), np.full(32, 100)).halves()
    for half in both:
        assert np.bincount(half.accepted).tolist() == [16 // kinds] * kinds
    odd = Trace(np.arange(9), np.arange(8), np.full(8, 8), np.full(8, 100)).halves()[0]
    assert odd.accepted.tolist() == [0, 3, 5, 6]


def test_half_of_seven_requests_is_too_few_to_check():
    assert check(measure("one", "code", CHAIN, trace(STEADY, 7, 32)), CHAIN) is None


@pytest.mark.parametrize(("strategy", "truth"), [(CHAIN, BURSTY), (NGRAM, LOOKUP)])
def test_tau_of_the_fitted_sampler_is_within_the_measured_interval(strategy, truth):
    one = measure("one", "code", strategy, trace(truth, 16, 96, seed=4))
    assert one.interval.lo < fitted_tau(one, strategy) < one.interval.hi


def test_the_permutation_test_is_right_as_often_as_it_says():
    rng = np.random.default_rng(0)
    own = (dispersion(counts_of(trace(STEADY, 8, 64, seed)), rng, 99) for seed in range(60))
    p = [verdict(one).p for one in own]
    assert 0.3 < np.mean(p) < 0.7
    assert np.mean(np.array(p) < 0.1) < 0.2


def test_a_sampler_passes_on_its_own_data_as_often_as_it_says():
    block = {"alpha_by_pos": [0.7, 0.6, 0.6], "spread": 0.4, "step_spread": 0.8, "step_memory": 0.7}
    drawn = draw(CHAIN, [block], trace(STEADY, 8, 96), 300, seed=1)
    found = [distributions(one, 3) for one in drawn]
    p = np.array([verdict(distances(found[i], found[100:])).p for i in range(100)])
    assert 0.4 < p.mean() < 0.6
    assert (p < 0.1).mean() < 0.2


def test_windows_are_whole_stretches_of_one_request():
    accepted = np.arange(2 * WINDOW + 3 + WINDOW - 1)
    offsets = np.array([0, 2 * WINDOW + 3, accepted.size])
    first, second = range(WINDOW), range(WINDOW, 2 * WINDOW)
    assert window_sums(Counts(accepted, offsets)).tolist() == [sum(first), sum(second)]


def test_a_sampler_off_its_level_fails_by_step_and_one_too_even_by_window():
    block = {"alpha_by_pos": [0.7, 0.6, 0.6], "spread": 0.0, "step_spread": 0.0}
    asked = trace(STEADY, 24, 128)
    lower = {**block, "alpha_by_pos": [0.6, 0.5, 0.5]}
    bursty = {**block, "step_spread": 1.2, "step_memory": 0.9}
    drawn, off, uneven = (draw(CHAIN, [one], asked, 99, seed=2) for one in (block, lower, bursty))
    own = [distributions(one, 3) for one in drawn]
    level = verdict(distances(distributions(off[0], 3), own)).by_statistic
    shape = verdict(distances(distributions(uneven[0], 3), own)).by_statistic
    assert level["steps"] == shape["windows"] == 0.01
    assert level["windows"] > 0.01 < shape["steps"]


@pytest.mark.parametrize(("strategy", "truth"), [(CHAIN, BURSTY), (NGRAM, LOOKUP)])
def test_independent_steps_get_the_rates_of_the_fit_with_all_their_uncertainty(strategy, truth):
    fit = fit_of(strategy, trace(truth, 12, 96, seed=6))
    fitted, independent = samplers(fit, np.random.default_rng(0))
    rates = np.array([one["alpha_by_pos"] for one in independent])
    assert rates.tolist() == [one["alpha_by_pos"] for one in fitted]
    said = np.array(fit.errors()["alpha_by_pos"], dtype=float)
    assert rates.std(axis=0) == pytest.approx(said, rel=0.4)
    # Rates of different positions are not wrong together.
    assert np.corrcoef(rates[:, 0], rates[:, 2])[0, 1] < 0.9
    assert {one["spread"] for one in independent} == {0.0}


def test_the_same_trace_gives_the_same_p_values(monkeypatch):
    monkeypatch.setattr(checking, "REPLICATES", 49)
    recorded = trace(LOOKUP, 8, 64)
    assert checked(NGRAM, recorded) == checked(NGRAM, recorded)


def test_tokens_asked_for_leave_out_half_of_what_the_last_step_accepted():
    recorded = trace(STEADY, 6, 50, seed=1)
    last = recorded.accepted[recorded.offsets[1:] - 1]
    emitted = recorded.sums(recorded.accepted + 1)
    assert recorded.tokens().tolist() == (emitted - last // 2).tolist()
    assert (recorded.tokens() > emitted - last - 1).all()
    assert (recorded.prompts() == recorded.context[recorded.offsets[:-1]] - 1).all()
