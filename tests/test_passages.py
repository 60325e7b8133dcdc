"""Acceptance that varies from passage to passage and with the context, from its equations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.acceptance import Acceptance, chain_law, lookahead_law, ngram_law, tree_law
from models.passages import passage_levels, solved
from models.paths import STEP, request_keys, request_normals, step_uniforms
from models.population import NODES, WEIGHTS, logit, sigmoid
from models.schema import ModelError
from models.trees import make_tree
from tests.drawing import HEADS, MATCHES, ONE, drawn, measured_tau

RATES = (0.62, 0.55, 0.48)
CONTEXT = {"context_reference": 512, "context_range": [64, 4096]}
FITTED = {"alpha_by_pos": RATES, "spread": 0.3, "step_spread": 0.8, "step_memory": 0.7}
LAWS = {
    "chain": chain_law(Acceptance(**FITTED), 3, ONE),
    "sloped": chain_law(Acceptance(**FITTED, context_slope=-0.3, **CONTEXT), 3, ONE),
    "only_slope": chain_law(Acceptance(tau=2.0, context_slope=0.2, **CONTEXT), 3, ONE),
    "tree": tree_law(Acceptance(heads=HEADS, step_spread=0.5), make_tree([3, 2, 1]), ONE),
    "matches": ngram_law(Acceptance(**MATCHES, step_spread=0.8, step_memory=0.7), 3, ONE),
    "pool": lookahead_law(Acceptance(**FITTED), 4, 7, 7, ONE, found_share=0.4),
}


def population_rates(logits, spread, step_spread):
    """Step-weighted conditional rates of the population, by quadrature."""
    shift = spread * NODES[:, None] + step_spread * NODES
    survival = np.cumprod(sigmoid(np.asarray(logits)[:, None, None] + shift), axis=0)
    tau = 1 + (survival * WEIGHTS).sum(axis=(0, 2))
    shares = [(WEIGHTS / tau * (level * WEIGHTS).sum(axis=1)).sum() for level in survival]
    return np.array(shares) / np.array([(WEIGHTS / tau).sum(), *shares[:-1]]), 1 + sum(shares) / (
        WEIGHTS / tau
    ).sum()


def by_position(accepted, depth=3):
    reached = [(accepted >= i).sum() for i in range(depth + 1)]
    return np.array(reached[1:]) / np.array(reached[:-1])


# What was there before


def test_a_block_without_variation_draws_what_its_equations_say():
    ids, seed, tokens = np.arange(50), 4, 90
    law = chain_law(Acceptance(alpha_by_pos=RATES, spread=0.4), 3, ONE)
    paths = law.paths(seed, ids, np.full(50, tokens), 0 * ids, np.full(50, 300))
    keys, levels = request_keys(seed, ids, STEP), request_normals(seed, ids)
    for r in ids:
        survival = np.cumprod(sigmoid(law.logits[0] + 0.4 * levels[r]))
        uniforms = step_uniforms(keys[r : r + 1], np.array([tokens]))
        accepted = (uniforms[:, None] < survival).sum(axis=1)
        steps = 1 + np.searchsorted(np.cumsum(accepted + 1), tokens)
        assert paths.accepted[paths.offsets[r] : paths.offsets[r + 1]].tolist() == (
            accepted[:steps].tolist()
        )
    assert np.ptp(law.logits[0] - logit(RATES)) < 1e-12


def test_no_variation_within_requests_draws_the_same_steps_by_both_laws():
    steady = chain_law(Acceptance(alpha_by_pos=RATES, spread=0.4, step_spread=0), 3, ONE)
    flat = {"context_slope": 0.0, **CONTEXT}
    sloped = chain_law(Acceptance(alpha_by_pos=RATES, spread=0.4, step_spread=0, **flat), 3, ONE)
    assert type(steady) is not type(sloped)
    assert (drawn(steady, 300).accepted == drawn(sloped, 300).accepted).all()
    mixed = Acceptance(
        alpha_by_pos=RATES, spread=0.4, by_domain={"chat": {"alpha": 0.5, "step_spread": 0.5}}
    )
    passages = chain_law(mixed, 3, ("all", "chat"))
    plain = chain_law(Acceptance(alpha_by_pos=RATES, spread=0.4), 3, ONE)
    assert type(passages) is not type(plain)
    assert (drawn(passages, 300).accepted == drawn(plain, 300).accepted).all()


# Rates by position


@pytest.mark.parametrize("spread", [0.0, 0.4, 1.2])
@pytest.mark.parametrize("step_spread", [0.0, 0.7, 1.5])
def test_rates_by_position_hold_exactly_in_the_population(spread, step_spread):
    block = Acceptance(alpha_by_pos=RATES, spread=spread, step_spread=step_spread)
    law = chain_law(block, 3, ONE)
    rates, tau = population_rates(law.logits[0], spread, step_spread)
    assert rates == pytest.approx(RATES, abs=1e-9)
    assert law.tau == pytest.approx(tau) == pytest.approx(1 + np.cumprod(RATES).sum())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.001, 0.999), min_size=1, max_size=8),
    st.floats(0, 1.5),
    st.floats(0, 2),
)
def test_any_rates_are_solved(rates, spread, step_spread):
    found, _ = population_rates(solved(logit(rates), spread, step_spread), spread, step_spread)
    assert found == pytest.approx(rates, abs=1e-7)


def test_rates_of_zero_and_one_stay():
    law = chain_law(Acceptance(alpha_by_pos=[1.0, 0.5, 0.0, 0.3], step_spread=0.6), 4, ONE)
    paths = drawn(law, 200)
    assert set(paths.accepted) == {1, 2}
    assert law.tau == pytest.approx(2.5)


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_drawn_rates_are_those_stated(memory):
    law = chain_law(Acceptance(**{**FITTED, "step_memory": memory}), 3, ONE)
    paths = drawn(law, 3000, tokens=1500)
    assert by_position(paths.accepted) == pytest.approx(RATES, abs=0.004)
    assert measured_tau(paths) == pytest.approx(law.tau, rel=0.005)


def test_a_tau_and_heads_hold_with_passages_too():
    for law, tau in (
        (chain_law(Acceptance(tau=2.3, step_spread=1.0), 4, ONE), 2.3),
        (LAWS["tree"], tree_law(Acceptance(heads=HEADS, spread=0), make_tree([3, 2, 1]), ONE).tau),
    ):
        assert law.tau == pytest.approx(tau, abs=1e-6)
        assert measured_tau(drawn(law, 3000, tokens=600)) == pytest.approx(tau, rel=0.01)


def test_another_length_keeps_the_logits_solved_where_it_was_measured():
    whole, short, longer = (chain_law(Acceptance(**FITTED), k, ONE) for k in (3, 2, 5))
    assert (short.logits[0] == whole.logits[0, :2]).all()
    assert (longer.logits[0, 3:] == whole.logits[0, 2]).all()
    assert short.tau < whole.tau < longer.tau
    assert whole.basis == short.basis == "validated" and longer.basis == "extrapolated"


# Passages


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_levels_are_normal_and_remembered(memory):
    levels = passage_levels(2, np.arange(3000), np.full(3000, 200), np.full(3000, memory))
    by_request = levels.reshape(3000, 200)
    assert abs(levels.mean()) < 0.02 and levels.std() == pytest.approx(1, abs=0.02)
    for lag in (1, 2, 5):
        found = (by_request[:, lag:] * by_request[:, :-lag]).mean()
        assert found == pytest.approx(memory**lag, abs=0.02)
    assert by_request[:, 0].std() == pytest.approx(1, abs=0.05)


def test_a_loop_over_steps_gives_the_same_levels():
    counts, memory = np.array([0, 40, 1, 60]), np.array([0.5, 0.9, 0.5, 0.3])
    levels = passage_levels(7, np.arange(4), counts, memory)
    alone = [
        passage_levels(7, np.array([r]), counts[r : r + 1], memory[r : r + 1]) for r in range(4)
    ]
    assert (np.concatenate(alone) == levels).all()
    passages = [np.unique(part).size for part in alone]
    assert passages[0] == 0 and passages[2] == 1
    assert passages[1] < 15 < 30 < passages[3]


def test_memory_makes_acceptance_come_in_runs():
    def lagged(memory):
        block = {**FITTED, "spread": 0.0, "step_spread": 1.5, "step_memory": memory}
        accepted = drawn(chain_law(Acceptance(**block), 3, ONE), 400, tokens=800).accepted
        return np.corrcoef(accepted[1:], accepted[:-1])[0, 1]

    assert abs(lagged(0.0)) < 0.02
    assert lagged(0.9) > 0.2


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(LAWS)),
    st.integers(0, 2**40),
    st.integers(1, 120),
    st.integers(0, 300),
    st.integers(1, 5000),
    st.integers(0, 10**6),
)
def test_the_first_steps_do_not_depend_on_how_many_follow(name, seed, few, more, prompt, number):
    law = LAWS[name]
    ids, prompts = np.array([number, number + 1]), np.array([prompt, 77])
    short, long = (
        law.paths(seed, ids, np.array([n, 5]), 0 * ids, prompts) for n in (few, few + more)
    )
    steps = int(short.offsets[1])
    assert (long.accepted[:steps] == short.accepted[:steps]).all()
    assert short.emitted[:steps].sum() == few
    alone = law.paths(seed, ids[:1], np.array([few]), 0 * ids[:1], prompts[:1])
    assert (alone.accepted == short.accepted[:steps]).all()
    if short.width is not None:
        assert (long.width[:steps] == short.width[:steps]).all()


# Context


def drawn_at(law, prompt, tokens=2, requests=60_000):
    ids = np.arange(requests)
    return law.paths(5, ids, np.full(requests, tokens), 0 * ids, np.full(requests, prompt))


def test_the_context_moves_acceptance_by_the_stated_logit_and_is_clipped():
    block = {"alpha_by_pos": [0.6], "spread": 0, "step_spread": 0, "context_slope": -0.4}
    law = chain_law(Acceptance(**block, **CONTEXT), 1, ONE)
    for prompt, doublings in ((511, 0), (2047, 2), (127, -2), (10, -3), (50_000, 3)):
        expected = sigmoid(logit([0.6]) - 0.4 * doublings)[0]
        assert drawn_at(law, prompt, 1).accepted.mean() == pytest.approx(expected, abs=0.006)
    without = law.paths(5, np.arange(9000), np.full(9000, 1), np.zeros(9000, dtype=int))
    assert without.accepted.mean() == pytest.approx(0.6, abs=0.015)


def test_the_context_grows_as_the_request_does():
    block = {"alpha_by_pos": [0.5], "spread": 0, "step_spread": 0, "context_slope": 1.0}
    law = chain_law(Acceptance(**block, **CONTEXT), 1, ONE)
    requests, prompt, steps = 20_000, 63, 64
    ids = np.arange(requests)
    paths = law.paths(5, ids, np.full(requests, 150), 0 * ids, np.full(requests, prompt))
    by_step = np.stack([paths.accepted[paths.offsets[:-1] + t] for t in (0, steps)])
    contexts = np.array([prompt + 1, prompt + 1 + steps * 1.5])
    expected = sigmoid(np.log2(contexts / 512))
    assert by_step.mean(axis=1) == pytest.approx(expected, abs=0.012)


# Lookahead


def test_lookahead_by_position_takes_rates_of_all_guesses_and_the_width_of_the_pool():
    law = LAWS["pool"]
    paths = drawn(law, 2000, tokens=600)
    assert by_position(paths.accepted) == pytest.approx(RATES, abs=0.006)
    found = paths.width / 3 - 7
    assert found.mean() == pytest.approx(0.4 * 7, rel=0.02) and found.max() <= 7
    full = lookahead_law(Acceptance(**FITTED), 4, 7, 7, ONE)
    assert drawn(full, 20).width is None
    assert full.tau == law.tau == pytest.approx(1 + np.cumprod(RATES).sum())
    plain = lookahead_law(Acceptance(alpha_by_pos=RATES), 4, 7, 7, ONE)
    assert plain.tau == pytest.approx(full.tau)


# Refusals


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"tau": 2, "step_memory": 0.5}, "step_memory needs step_spread"),
        ({"tau": 2, "step_spread": 0.5, "step_memory": 1.0}, "less than 1"),
        ({"tau": 2, "step_spread": -0.5}, "greater than or equal to 0"),
        ({"tau": 2, "context_slope": 0.1}, "context_slope needs context_reference"),
        (
            {"tau": 2, "context_slope": 0.1, "context_reference": 9},
            "context_slope needs context_range",
        ),
        ({"tau": 2, "context_range": [1, 2]}, "context_range needs context_slope"),
        (
            {"tau": 2, "context_slope": 0.1, "context_reference": 9, "context_range": [9, 3]},
            "must not fall, got 9 to 3",
        ),
        ({**MATCHES, "context_slope": 0.1, **CONTEXT}, "context_slope says nothing"),
    ],
)
def test_half_stated_variation_is_refused(block, message):
    with pytest.raises(ValueError, match=message):
        Acceptance(**block)


def test_laws_that_do_not_know_a_variation_refuse_it():
    slope = Acceptance(tau=1.5, context_slope=0.1, **CONTEXT)
    for law, key, message in (
        (
            lambda: ngram_law(slope, 3, ONE),
            "acceptance.context_slope",
            "nothing about n-gram",
        ),
        (
            lambda: lookahead_law(slope, 4, 5, 5, ONE),
            "acceptance.context_slope",
            "acceptance of one guess",
        ),
        (
            lambda: lookahead_law(
                Acceptance(alpha_by_pos=RATES, by_domain={"chat": {"tau": 1.5}}),
                *(4, 5, 5),
                ("all", "chat"),
            ),
            "acceptance",
            "in every domain, or in none",
        ),
        (
            lambda: lookahead_law(Acceptance(alpha_by_pos=RATES, good_every=2), 4, 5, 5, ONE),
            "acceptance.good_every",
            "says nothing about rates by position",
        ),
    ):
        with pytest.raises(ModelError, match=message) as error:
            law()
        assert error.value.key == key
