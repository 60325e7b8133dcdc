"""Prompt lookup in passages against its own equations: a chain of levels and matches."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from drawing import MATCHES, ONE, drawn, measured_tau
from hypothesis import given, settings
from hypothesis import strategies as st

from models.acceptance import Acceptance, ngram_law
from models.lookup import NgramLaw
from models.lookup_passages import Means, NgramPassageLaw, match_means, matches_solved
from models.passages import passage_levels
from models.paths import SECOND, STEP, request_keys, request_normals, step_uniforms
from models.population import NgramLogits
from models.schema import ModelError

E = np.linspace(-6.0, 6.0, 81)
E_WEIGHTS = np.exp(-0.5 * E**2) / np.exp(-0.5 * E**2).sum()
Z, Z_WEIGHTS = E[::4], E_WEIGHTS[::4] / E_WEIGHTS[::4].sum()
RATES = (0.6, 0.7, 0.75)
MIXED = {"spread": 0.3, "step_spread": 0.9, "step_memory": 0.8}
VARIED = [
    {"spread": 0.0, "step_spread": 0.7, "step_memory": 0.0},
    MIXED,
    {"spread": 0.6, "step_spread": 1.8, "step_memory": 0.93},
]


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@cache
def law_of(spread, step_spread, step_memory, **others):
    block = {"spread": spread, "step_spread": step_spread, "step_memory": step_memory}
    return ngram_law(Acceptance(**MATCHES, **block, **others), 3, ONE)


class Chain:
    """Steps of one request as a chain of (level, whether the step before ended in full)."""

    def __init__(self, law, shift):
        at = law.logits
        by = shift + law.step_spreads[0] * E
        after = np.maximum(sigmoid(at.enter[0] + by), sigmoid(at.stay[0] + by))
        self.match = np.array([sigmoid(at.enter[0] + by), after])
        self.survival = np.cumprod(sigmoid(at.accepted[0][:, None] + by), axis=0)
        self.full = self.match * self.survival[-1]
        # From (full before, e) to (full, e of the next step), flattened with e inside.
        memory = law.step_memories[0]
        onward = memory * np.eye(E.size) + (1 - memory) * E_WEIGHTS
        into = [(1 - self.full)[..., None] * onward, self.full[..., None] * onward]
        self.step = np.concatenate(into, axis=2).reshape(2 * E.size, 2 * E.size)
        system = self.step.T - np.eye(2 * E.size)
        system[-1] = 1.0
        self.share = np.linalg.solve(system, np.eye(2 * E.size)[-1]).reshape(2, E.size)
        self.accepted = self.match * self.survival.sum(axis=0)
        self.tau = 1 + (self.share * self.accepted).sum()

    def lagged(self, lag):
        """E[match now and match ``lag`` steps later]."""
        into = self.match * self.survival[-1], self.match * (1 - self.survival[-1])
        size = E.size
        onward = self.step.reshape(2, size, 2, size)
        full = onward[:, :, 1] / self.full[..., None]
        missed = onward[:, :, 0] / (1 - self.full)[..., None]
        here = np.stack(
            [
                np.einsum("pe,peq->q", self.share * into[1], missed),
                np.einsum("pe,peq->q", self.share * into[0], full),
            ]
        ).ravel()
        for _ in range(lag - 1):
            here = here @ self.step
        return float((here.reshape(2, size) * self.match).sum())


def population(law):
    """Match share, stay rate, alphas and tau over requests of equal length."""
    chains = [Chain(law, law.spreads[0] * z) for z in Z]
    weights = Z_WEIGHTS / [one.tau for one in chains]
    weights /= weights.sum()
    reached = np.zeros(4)
    stayed = before = 0.0
    for weight, one in zip(weights, chains, strict=True):
        matched = (one.share * one.match).sum(axis=0)
        reached += weight * np.array([matched.sum(), *(one.survival * matched).sum(axis=1)])
        stayed += weight * (one.share[1] * one.match[1]).sum()
        before += weight * one.share[1].sum()
    return reached[0], stayed / before, reached[1:] / reached[:-1], 1 + reached[1:].sum()


# What a measurement states


@pytest.mark.parametrize("varied", VARIED)
def test_the_chain_of_its_equations_has_the_stated_shares(varied):
    law = law_of(**varied)
    assert isinstance(law, NgramPassageLaw)
    share, stay, alphas, tau = population(law)
    assert share == pytest.approx(0.25, abs=1e-6)
    assert stay == pytest.approx(0.8, abs=1e-6)
    assert alphas == pytest.approx(RATES, abs=1e-6)
    assert law.tau == pytest.approx(tau, abs=1e-6) == 1 + 0.25 * np.cumprod(RATES).sum()


@pytest.mark.parametrize("varied", VARIED)
def test_drawn_steps_have_the_stated_shares(varied):
    law = law_of(**varied)
    paths = drawn(law, 1500, tokens=1500)
    matched = paths.drafted > 0
    assert matched.mean() == pytest.approx(0.25, abs=0.004)
    last = np.zeros(matched.size, dtype=bool)
    last[paths.offsets[1:] - 1] = True
    whole = (paths.accepted == 3) & ~last
    assert matched[np.flatnonzero(whole) + 1].mean() == pytest.approx(0.8, abs=0.006)
    reached = [matched.sum(), *((paths.accepted >= i).sum() for i in (1, 2, 3))]
    assert np.divide(reached[1:], reached[:-1]) == pytest.approx(RATES, abs=0.006)
    assert measured_tau(paths) == pytest.approx(law.tau, rel=0.006)
    assert (paths.accepted[~matched] == 0).all()
    assert (paths.width == 1 + paths.drafted).all()


def test_matches_come_in_the_stretches_the_chain_says():
    law = law_of(0.0, 1.2, 0.9)
    exact = Chain(law, 0.0)
    paths = drawn(law, 3000, tokens=600)
    matched, number = paths.drafted > 0, np.arange(paths.drafted.size)
    ends = np.repeat(paths.offsets[1:], np.diff(paths.offsets))
    for lag in (1, 2, 5, 12):
        inside = number[number + lag < ends]
        found = (matched[inside] & matched[inside + lag]).mean()
        assert found == pytest.approx(exact.lagged(lag), rel=0.03)
    assert exact.lagged(12) > 0.25**2 * 1.15


def test_the_first_step_is_like_any_other():
    law = law_of(0.0, 1.2, 0.9)
    first = drawn(law, 60_000, tokens=1)
    assert (first.drafted > 0).mean() == pytest.approx(0.25, abs=0.006)
    assert first.accepted.mean() == pytest.approx(law.tau - 1, abs=0.012)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(-4, 3),
    st.floats(0.2, 5),
    st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    st.floats(0, 1.5),
    st.floats(0, 2.5),
    st.floats(0, 0.98),
)
def test_any_shares_of_a_population_are_solved(enter, more, accepted, spread, within, memory):
    at = NgramLogits(*(np.array([x]) for x in (enter, enter + more)), np.array([accepted]))
    stated = match_means(at, spread, within, memory)
    found = match_means(matches_solved(stated, spread, within, memory), spread, within, memory)
    assert found.logits() == pytest.approx(stated.logits(), abs=1e-6)


@pytest.mark.parametrize("rates", [(1.0, 0.5), (1.0, 1.0), (0.5, 0.0), (0.0, 0.5)])
def test_rates_of_zero_and_one_stay(rates):
    stated = Means(0.3, 0.7, np.array(rates))
    found = match_means(matches_solved(stated, 0.3, 0.8, 0.6), 0.3, 0.8, 0.6)
    assert found.match_rate == pytest.approx(0.3)
    assert found.alphas[: 1 + int(rates[0])] == pytest.approx(rates[: 1 + int(rates[0])])


# Draws


def test_a_loop_over_steps_draws_the_same():
    law, ids, seed = law_of(**MIXED), np.arange(12), 5
    paths = law.paths(seed, ids, np.full(12, 150), 0 * ids)
    keys, second = (request_keys(seed, ids, stream) for stream in (STEP, SECOND))
    for r in ids:
        steps = np.array([paths.offsets[r + 1] - paths.offsets[r]])
        one = slice(r, r + 1)
        levels = passage_levels(seed, ids[one], steps, law.step_memories)
        match, inside = step_uniforms(keys[one], steps), step_uniforms(second[one], steps)
        shift = law.spreads[0] * request_normals(seed, ids)[r]
        exact, whole = Chain(law, shift), False
        for t, (e, found, taken) in enumerate(zip(levels, match, inside, strict=True)):
            by = shift + law.step_spreads[0] * e
            enter, stay = (sigmoid(own[0] + by) for own in law.logits[:2])
            survival = np.cumprod(sigmoid(law.logits.accepted[0] + by))
            chance = stay if whole else enter
            if t == 0:
                before = np.interp(e, E, exact.share[1] / E_WEIGHTS)
                chance = enter + before * (stay - enter)
                assert abs(found - chance) > 1e-3
            accepted = int((taken < survival).sum()) if found < chance else 0
            whole = found < chance and accepted == 3
            step = paths.offsets[r] + t
            assert (paths.accepted[step], paths.drafted[step]) == (accepted, 3 * (found < chance))


def test_full_width_accepts_the_same():
    block = Acceptance(**MATCHES, **MIXED)
    wide = drawn(ngram_law(block, 3, ONE, full_width=True), 50)
    assert wide.drafted is None and wide.width is None
    assert (wide.accepted == drawn(law_of(**MIXED), 50).accepted).all()


def test_a_domain_without_passages_draws_what_it_did_before():
    mixed = Acceptance(**MATCHES, by_domain={"chat": {**MATCHES, **MIXED}})
    law = ngram_law(mixed, 3, (*ONE, "chat"))
    plain = ngram_law(Acceptance(**MATCHES), 3, ONE)
    assert isinstance(law, NgramPassageLaw) and isinstance(plain, NgramLaw)
    assert (drawn(law, 400).accepted == drawn(plain, 400).accepted).all()
    chat = ngram_law(Acceptance(**MATCHES, **MIXED), 3, ONE)
    assert (drawn(law, 400, domain=1).accepted == drawn(chat, 400).accepted).all()


def test_no_spread_within_requests_is_the_law_without_passages():
    steady = ngram_law(Acceptance(**MATCHES, spread=0.4, step_spread=0), 3, ONE)
    plain = ngram_law(Acceptance(**MATCHES, spread=0.4), 3, ONE)
    assert type(steady) is type(plain) is NgramLaw
    assert steady.tau == pytest.approx(plain.tau, abs=1e-9)
    for ours, theirs in zip(steady.logits, plain.logits, strict=True):
        assert ours == pytest.approx(theirs, abs=0.1)
    by_law = [np.bincount(drawn(law).accepted) for law in (steady, plain)]
    assert by_law[0] / by_law[0].sum() == pytest.approx(by_law[1] / by_law[1].sum(), abs=0.003)


# Other ways of stating it


def test_a_tau_alone_holds_with_passages():
    law = ngram_law(Acceptance(tau=1.9, **MIXED), 3, ONE)
    assert law.tau == pytest.approx(1.9, abs=1e-6)
    assert measured_tau(drawn(law, 3000, tokens=800)) == pytest.approx(1.9, rel=0.01)


def test_another_length_keeps_the_logits_solved_where_it_was_measured():
    laws = {k: ngram_law(Acceptance(**MATCHES, **MIXED, at_k=3), k, ONE) for k in (2, 3, 5)}
    whole = laws[3].logits.accepted[0]
    assert (laws[2].logits.accepted[0] == whole[:2]).all()
    assert laws[5].logits.accepted[0, 3:] == pytest.approx(whole[2], abs=1e-12)
    assert laws[2].tau < laws[3].tau < laws[5].tau
    assert (laws[3].basis, laws[5].basis) == ("validated", "extrapolated")
    more = {**MATCHES, "alpha_by_pos": [0.6, 0.7, 0.75, 0.9]}
    longer = ngram_law(Acceptance(**more, **MIXED, at_k=3), 4, ONE).logits.accepted[0]
    assert longer[:3] == pytest.approx(whole, abs=1e-9)
    assert longer[3] - longer[2] == pytest.approx(np.log(9 / 3))


def test_a_context_slope_is_refused():
    about = {"context_slope": 0.1, "context_reference": 9, "context_range": [1, 20]}
    with pytest.raises(ValueError, match="context_slope says nothing"):
        Acceptance(**MATCHES, **about)
    with pytest.raises(ModelError, match="nothing about n-gram"):
        ngram_law(Acceptance(tau=1.5, **about), 3, ONE)
