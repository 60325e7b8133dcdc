"""Drawn acceptance against the equations of its law."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import KIND
from passages import WEIGHTS, Stated, close, draw, of_each, opening, shares, theory_of, walk
from scipy.stats import chi2_contingency, chisquare, ks_2samp
from server import Cost, closed_loop, serve

from models import catalog

ENGINE = catalog.engine("vllm_0.15")
RATES = (0.72, 0.61, 0.66)
SPREAD = Stated(RATES, spread=0.8)
PASSAGES = Stated(RATES, spread=0.5, step_spread=1.1, memory=0.85)
STICKY = Stated((0.8, 0.55), step_spread=1.6, memory=0.95)
FRESH = Stated(RATES, step_spread=1.3)
SLOPED = Stated(RATES, slope=-0.6, reference=512.0, range=(256.0, 2048.0))
ALL = Stated(RATES, 0.9, 1.0, 0.7, -0.9, 64.0, (24.0, 300.0))
LAWS = {"spread": SPREAD, "passages": PASSAGES, "sticky": STICKY, "fresh": FRESH, "all": ALL}


def strategy_of(stated: Stated, kind: str = "draft_model"):
    """A strategy that drafts as many tokens as have rates."""
    k = len(stated.rates)
    shape = {
        "draft_model": {"draft": "llama-68m", "k": k},
        "eagle": {"k": k},
        "medusa": {"heads": k, "tree": [2] * k},
        "lookahead": {"w": 4, "n": k + 1, "g": 4},
    }
    return KIND[kind](acceptance=stated.block, **shape[kind])


def law_of(stated: Stated, kind: str = "draft_model"):
    return strategy_of(stated, kind).law(ENGINE, ("code",))


# What a measurement states comes out of a large population


@pytest.mark.parametrize("kind", ["draft_model", "eagle", "medusa", "lookahead"])
@pytest.mark.parametrize("name", ["spread", "passages", "sticky", "fresh"])
def test_the_stated_rates_are_shares_of_all_steps(name, kind):
    stated = LAWS[name]
    law = law_of(stated, kind)
    theory = theory_of(stated)
    assert law.tau == pytest.approx(theory.tau, abs=1e-6)
    assert law.tau_of(0) == pytest.approx(theory.tau, abs=1e-6)
    paths = draw(law, 4000, 600)
    steps = np.diff(paths.offsets)
    reached = steps
    for level, rate in enumerate(stated.rates, 1):
        passed = of_each(paths, paths.accepted >= level)
        shares(passed, reached, rate, 0.025)
        reached = passed
    shares(of_each(paths, paths.accepted + 1), steps, theory.tau, 0.025)


def test_the_loop_of_the_equations_keeps_them_too():
    """Else a comparison with it says little."""
    theory, random = theory_of(PASSAGES), np.random.default_rng(3)
    walks = [walk(theory, random, 100, 200) for _ in range(400)]
    steps = np.array([len(one) for one in walks])
    shares(np.array([sum(one) + len(one) for one in walks]), steps, theory.tau, 0.05)
    assert theory.tau == pytest.approx(1.0 + 0.72 * (1.0 + 0.61 * (1.0 + 0.66)))


# What happens within a request, and between requests

STEPS = 60


@pytest.fixture(scope="module")
def openings():
    """The first steps of every request by name: all requests count alike."""
    return {
        name: opening(draw(law_of(LAWS[name]), 12_000, STEPS * 4), STEPS)
        for name in ("spread", "passages", "sticky", "fresh")
    }


@pytest.mark.parametrize("name", ["spread", "passages", "sticky", "fresh"])
def test_two_steps_in_a_row_are_both_accepted_in_full_as_often_as_passages_say(openings, name):
    theory, accepted = theory_of(LAWS[name]), openings[name]
    whole = accepted == len(LAWS[name].rates)
    close((whole[:, 1:] & whole[:, :-1]).mean(axis=1), theory.both_whole, 0.05)
    close(accepted.mean(axis=1), theory.mean, 0.05)


@pytest.mark.parametrize("lag", [1, 3, 10])
@pytest.mark.parametrize("name", ["spread", "passages", "sticky"])
def test_counts_of_two_steps_are_as_alike_as_passages_last(openings, name, lag):
    theory = theory_of(LAWS[name])
    around = openings[name] - theory.mean
    close((around[:, lag:] * around[:, :-lag]).mean(axis=1), theory.covariance(lag), 0.11)
    close((around**2).mean(axis=1), theory.variance, 0.02)
    found = (around[:, lag:] * around[:, :-lag]).mean() / (around**2).mean()
    assert found == pytest.approx(theory.covariance(lag) / theory.variance, abs=0.01)


@pytest.mark.parametrize("name", ["spread", "passages", "sticky", "fresh"])
@pytest.mark.parametrize("steps", [10, STEPS])
def test_requests_differ_as_much_as_levels_and_passages_say(openings, name, steps):
    theory = theory_of(LAWS[name])
    means = openings[name][:, :steps].mean(axis=1)
    close((means - theory.mean) ** 2, theory.variance_of_the_mean(steps), 0.07)


def pair_table(accepted):
    """How often each count follows each, over pairs that do not overlap."""
    first, then = accepted[:, 0:-1:2].ravel(), accepted[:, 1::2].ravel()
    return np.histogram2d(first, then, bins=np.arange(accepted.max() + 2) - 0.5)[0]


def test_without_memory_the_steps_of_a_request_are_independent(openings):
    assert chi2_contingency(pair_table(openings["fresh"])).pvalue > 1e-3
    assert chi2_contingency(pair_table(openings["sticky"])).pvalue < 1e-30
    survival = np.einsum("z,zej,e->j", WEIGHTS, theory_of(FRESH).survival(), WEIGHTS)
    expected = -np.diff([1.0, *survival, 0.0])
    found = np.bincount(openings["fresh"].ravel())
    assert chisquare(found, expected * found.sum()).pvalue > 1e-3


def test_with_levels_but_no_memory_all_lags_are_alike():
    stated = PASSAGES._replace(memory=0.0)
    theory = theory_of(stated)
    around = opening(draw(law_of(stated), 12_000, STEPS * 4), STEPS) - theory.mean
    for lag in (1, 7):
        close((around[:, lag:] * around[:, :-lag]).mean(axis=1), theory.of_requests, 0.2)


# Context


@pytest.mark.parametrize(
    ("prompt", "doublings"),
    [(511, 0.0), (1023, 1.0), (2047, 2.0), (255, -1.0), (90_000, 2.0), (8, -1.0)],
)
def test_a_context_of_twice_the_reference_shifts_every_logit_by_the_slope(prompt, doublings):
    """Before the first step it is the prompt and the first token."""
    paths = draw(law_of(SLOPED), 100_000, 1, prompt)
    reached = np.full(100_000, True)
    for level, rate in enumerate(RATES, 1):
        odds = rate / (1.0 - rate) * np.exp(-0.6 * doublings)
        passed = paths.accepted >= level
        close(passed[reached], odds / (1.0 + odds), 0.05)
        reached = passed


STEADY = ALL._replace(spread=0.0, step_spread=0.0, memory=0.0)
ROUGH = Stated((0.75,), 0.0, 3.0, 0.0, -3.0, 64.0, (8.0, 4096.0))


@pytest.mark.parametrize("prompt", [20, 150])
@pytest.mark.parametrize("stated", [ALL, STEADY, ROUGH], ids=["all", "steady", "rough"])
def test_the_context_grows_by_what_the_request_emits_a_step(prompt, stated):
    theory = theory_of(stated)
    accepted = opening(draw(law_of(stated), 15_000, 60 * 4, prompt), 60)
    expected = WEIGHTS @ theory.means_at(prompt, range(60))
    errors = accepted.std(axis=0) / np.sqrt(15_000)
    scores = (accepted.mean(axis=0) - expected) / errors
    assert np.abs(scores).max() < 4.5
    # Steps of a request move together: the bound is of one step, not of sixty.
    assert abs(np.mean(scores)) < 4.0
    assert expected[59] < expected[0] - 0.1


def test_the_context_of_a_fast_request_grows_faster():
    """So a slope that falls brings requests closer together: what later steps have in common."""
    stated = Stated(RATES, 1.5, 1.5, 0.0, -1.5, 64.0, (8.0, 4096.0))
    theory, prompt = theory_of(stated), 4
    accepted = opening(draw(law_of(stated), 20_000, 60 * 4, prompt), 60)
    blocks = [range(20, 40), range(40, 60)]
    found = np.prod([accepted[:, block].mean(axis=1) for block in blocks], axis=0)
    means = np.prod([theory.means_at(prompt, block).mean(axis=1) for block in blocks], axis=0)
    close(found, float(WEIGHTS @ means), 0.05)


def test_a_slope_leaves_the_rates_at_the_reference_as_stated():
    flat, sloped = law_of(ALL._replace(slope=0.0)), law_of(ALL)
    assert sloped.tau == pytest.approx(flat.tau, abs=1e-9)
    held = ALL._replace(range=(64.0, 64.0))
    (a, b) = (draw(law, 300, 100) for law in (flat, law_of(held)))
    assert (a.accepted == b.accepted).all()


@pytest.mark.parametrize("prompt", [30, 400])
def test_everything_at_once_is_drawn_as_the_loop_of_the_equations_draws_it(prompt):
    theory, random = theory_of(ALL), np.random.default_rng(prompt)
    walks = [walk(theory, random, prompt, 120) for _ in range(700)]
    paths = draw(law_of(ALL), 20_000, 120, prompt)
    starts, steps = paths.offsets[:-1], np.diff(paths.offsets)
    assert ks_2samp([len(one) for one in walks], steps).pvalue > 1e-3
    for early, late in ((0, 10), (15, 30)):
        drawn = [paths.accepted[a + early : a + late].mean() for a in starts[steps >= late]]
        walked = [np.mean(one[early:late]) for one in walks if len(one) >= late]
        assert ks_2samp(walked, drawn).pvalue > 1e-3


# Accounting

TOKENS = np.array([0, 1, 2, 250, 0, 7, 33, 1000, 0, 60])


@pytest.mark.parametrize("name", LAWS)
def test_every_request_emits_what_is_asked_and_only_its_last_step_is_cut(name):
    law = law_of(LAWS[name])
    ids = np.arange(TOKENS.size)
    paths = law.paths(5, ids, TOKENS, np.zeros_like(ids), 20 + 7 * ids)
    assert paths.offsets[-1] == paths.emitted.size == paths.accepted.size
    for r, wanted in enumerate(TOKENS):
        part = slice(paths.offsets[r], paths.offsets[r + 1])
        emitted, accepted = paths.emitted[part], paths.accepted[part]
        assert emitted.sum() == wanted and (emitted >= 1).all()
        assert (emitted[:-1] == accepted[:-1] + 1).all() and (emitted <= accepted + 1).all()


@pytest.mark.parametrize("name", LAWS)
def test_fewer_tokens_are_the_beginning_of_the_same_path_alone_or_in_company(name):
    law = law_of(LAWS[name])
    ids = np.array([9, 2, 77, 4])
    prompts, domains = np.array([30, 400, 90, 12]), np.zeros(4, dtype=np.int64)
    whole = law.paths(1, ids, np.array([900, 40, 300, 0]), domains, prompts)
    for tokens in (1, 13, 200, 299):
        alone = law.paths(1, ids[2:3], np.array([tokens]), domains[2:3], prompts[2:3])
        there = whole.accepted[whole.offsets[2] :][: alone.accepted.size]
        assert (alone.accepted == there).all()
    again = law.paths(1, ids[::-1], np.array([0, 300, 40, 900]), domains, prompts[::-1])
    for r in range(4):
        mine = whole.accepted[whole.offsets[r] : whole.offsets[r + 1]]
        assert (mine == again.accepted[again.offsets[3 - r] : again.offsets[4 - r]]).all()


def test_domains_drawn_together_are_as_if_drawn_apart():
    """Each with its own spreads, memory and slope, whatever the requests beside it."""
    blocks = {"code": PASSAGES, "prose": ALL, "maths": FRESH}
    shape = {"draft": "llama-68m", "k": 3}
    acceptance = {"by_domain": {name: stated.block for name, stated in blocks.items()}}
    law = KIND["draft_model"](acceptance=acceptance, **shape).law(ENGINE, tuple(blocks))
    ids, domains = np.arange(300), np.arange(300) % 3
    tokens, prompts = 20 + ids, 10 + 3 * ids
    together = law.paths(9, ids, tokens, domains, prompts)
    for number, stated in enumerate(blocks.values()):
        mine = np.flatnonzero(domains == number)
        apart = law_of(stated).paths(9, mine, tokens[mine], 0 * mine, prompts[mine])
        pieces = [together.accepted[slice(*together.offsets[[r, r + 1]])] for r in mine]
        assert (np.concatenate(pieces) == apart.accepted).all()
        assert law.tau_of(number) == pytest.approx(theory_of(stated).tau, abs=1e-6)
    assert law.tau == pytest.approx(3 / sum(1 / theory_of(one).tau for one in blocks.values()))


def test_lookahead_is_as_wide_as_its_pool_whatever_is_accepted():
    strategy = KIND["lookahead"](w=4, n=4, g=6, found_share=0.4, acceptance=PASSAGES.block)
    paths = draw(strategy.law(ENGINE, ("code",)), 2000, 200)
    found = paths.width / 3 - 4
    close(found, 6 * 0.4, 0.01)
    assert np.var(found) == pytest.approx(6 * 0.4 * 0.6, rel=0.02)
    assert abs(np.corrcoef(found, paths.accepted)[0, 1]) < 0.01
    shares(
        of_each(paths, paths.accepted + 1), np.diff(paths.offsets), theory_of(PASSAGES).tau, 0.03
    )


# In an engine


def test_the_engine_draws_each_request_at_its_own_context():
    law, requests = law_of(ALL), closed_loop(4, 200)
    requests.output_tokens[:] = 101
    requests.prompt_tokens[:] = np.where(np.arange(200) % 2, 400, 20)
    run = serve(requests, Cost(0.01), law, max_num_seqs=4)
    asked = np.arange(200), np.full(200, 100), requests.domain
    drawn = np.diff(law.paths(1, *asked, requests.prompt_tokens).offsets)
    assert list(run.log.n_steps) == drawn.tolist()
    assert drawn[1::2].mean() > 1.15 * drawn[::2].mean()
