"""Drawn acceptance against the equations of its law, and replayed acceptance against its record."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from by_hand import KIND
from invariants import run as run_scenario
from passages import WEIGHTS, Stated, Theory, close, opening, walk
from scipy.stats import chi2_contingency, chisquare, ks_2samp
from server import Cost, closed_loop, serve

from models import catalog
from models.strict_yaml import load_yaml
from sim.scenario.build import build
from sim.scenario.load import parse_scenario
from sim.setup import prepare

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


def draw(law, requests: int, tokens: int, prompt: int = 511, seed: int = 7):
    ids, full = np.arange(requests), np.full
    return law.paths(seed, ids, full(requests, tokens), np.zeros_like(ids), full(requests, prompt))


def of_each(paths, values):
    """Sums over the steps of each request."""
    return np.add.reduceat(values.astype(np.int64), paths.offsets[:-1])


def shares(of, among, expected: float, precision: float) -> None:
    """A ratio of sums over independent requests."""
    close(expected + (of - expected * among) / among.mean(), expected, precision)


# What a measurement states comes out of a large population


@pytest.mark.parametrize("kind", ["draft_model", "eagle", "medusa", "lookahead"])
@pytest.mark.parametrize("name", ["spread", "passages", "sticky", "fresh"])
def test_the_stated_rates_are_shares_of_all_steps(name, kind):
    stated = LAWS[name]
    law = law_of(stated, kind)
    theory = Theory(stated)
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
    theory, random = Theory(PASSAGES), np.random.default_rng(3)
    walks = [walk(theory, random, 100, 200) for _ in range(400)]
    steps = np.array([len(one) for one in walks])
    shares(np.array([sum(one) + len(one) for one in walks]), steps, theory.tau, 0.05)
    assert theory.tau == pytest.approx(1.0 + 0.72 * (1.0 + 0.61 * (1.0 + 0.66)))


# What happens within a request, and between requests

STEPS = 120


@pytest.fixture(scope="module")
def openings():
    """The first steps of every request by name: all requests count alike."""
    return {
        name: opening(draw(law_of(LAWS[name]), 12_000, STEPS * 4), STEPS)
        for name in ("spread", "passages", "sticky", "fresh")
    }


@pytest.mark.parametrize("name", ["spread", "passages", "sticky", "fresh"])
def test_two_steps_in_a_row_are_both_accepted_in_full_as_often_as_passages_say(openings, name):
    theory, accepted = Theory(LAWS[name]), openings[name]
    whole = accepted == len(LAWS[name].rates)
    close((whole[:, 1:] & whole[:, :-1]).mean(axis=1), theory.both_whole, 0.05)
    close(accepted.mean(axis=1), theory.mean, 0.05)


@pytest.mark.parametrize("lag", [1, 3, 10])
@pytest.mark.parametrize("name", ["spread", "passages", "sticky"])
def test_counts_of_two_steps_are_as_alike_as_passages_last(openings, name, lag):
    theory = Theory(LAWS[name])
    around = openings[name] - theory.mean
    close((around[:, lag:] * around[:, :-lag]).mean(axis=1), theory.covariance(lag), 0.11)
    close((around**2).mean(axis=1), theory.variance, 0.02)
    found = (around[:, lag:] * around[:, :-lag]).mean() / (around**2).mean()
    assert found == pytest.approx(theory.covariance(lag) / theory.variance, abs=0.01)


@pytest.mark.parametrize("name", ["spread", "passages", "sticky", "fresh"])
@pytest.mark.parametrize("steps", [10, STEPS])
def test_requests_differ_as_much_as_levels_and_passages_say(openings, name, steps):
    theory = Theory(LAWS[name])
    means = openings[name][:, :steps].mean(axis=1)
    close((means - theory.mean) ** 2, theory.variance_of_the_mean(steps), 0.07)


def pair_table(accepted):
    """How often each count follows each, over pairs that do not overlap."""
    first, then = accepted[:, 0:-1:2].ravel(), accepted[:, 1::2].ravel()
    return np.histogram2d(first, then, bins=np.arange(accepted.max() + 2) - 0.5)[0]


def test_without_memory_the_steps_of_a_request_are_independent(openings):
    assert chi2_contingency(pair_table(openings["fresh"])).pvalue > 1e-3
    assert chi2_contingency(pair_table(openings["sticky"])).pvalue < 1e-30
    survival = np.einsum("z,zej,e->j", WEIGHTS, Theory(FRESH).survival(), WEIGHTS)
    expected = -np.diff([1.0, *survival, 0.0])
    found = np.bincount(openings["fresh"].ravel())
    assert chisquare(found, expected * found.sum()).pvalue > 1e-3


def test_with_levels_but_no_memory_all_lags_are_alike():
    stated = PASSAGES._replace(memory=0.0)
    theory = Theory(stated)
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


@pytest.mark.parametrize("prompt", [20, 63, 150])
@pytest.mark.parametrize("stated", [ALL, ALL._replace(spread=0.0, step_spread=0.0, memory=0.0)])
def test_the_context_grows_by_what_the_request_emits_a_step(prompt, stated):
    theory = Theory(stated)
    accepted = opening(draw(law_of(stated), 15_000, 60 * 4, prompt), 60)
    scores = [
        (accepted[:, step].mean() - theory.mean_at(prompt, step))
        / (accepted[:, step].std() / np.sqrt(15_000))
        for step in range(60)
    ]
    assert np.abs(scores).max() < 4.5
    # Steps of a request move together: the bound is of one step, not of sixty.
    assert abs(np.mean(scores)) < 4.0
    assert theory.mean_at(prompt, 59) < theory.mean_at(prompt, 0) - 0.1


def test_a_slope_leaves_the_rates_at_the_reference_as_stated():
    flat, sloped = law_of(ALL._replace(slope=0.0)), law_of(ALL)
    assert sloped.tau == pytest.approx(flat.tau, abs=1e-9)
    held = ALL._replace(range=(64.0, 64.0))
    (a, b) = (draw(law, 300, 100) for law in (flat, law_of(held)))
    assert (a.accepted == b.accepted).all()


@pytest.mark.parametrize("prompt", [30, 400])
def test_everything_at_once_is_drawn_as_the_loop_of_the_equations_draws_it(prompt):
    theory, random = Theory(ALL), np.random.default_rng(prompt)
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


def any_law(name: str, tmp_path):
    return replayed(tmp_path) if name == "replay" else law_of(LAWS[name])


@pytest.mark.parametrize("name", [*LAWS, "replay"])
def test_every_request_emits_what_is_asked_and_only_its_last_step_is_cut(name, tmp_path):
    law = any_law(name, tmp_path)
    ids = np.arange(TOKENS.size)
    paths = law.paths(5, ids, TOKENS, np.zeros_like(ids), 20 + 7 * ids)
    assert paths.offsets[-1] == paths.emitted.size == paths.accepted.size
    for r, wanted in enumerate(TOKENS):
        part = slice(paths.offsets[r], paths.offsets[r + 1])
        emitted, accepted = paths.emitted[part], paths.accepted[part]
        assert emitted.sum() == wanted and (emitted >= 1).all()
        assert (emitted[:-1] == accepted[:-1] + 1).all() and (emitted <= accepted + 1).all()


@pytest.mark.parametrize("name", [*LAWS, "replay"])
def test_fewer_tokens_are_the_beginning_of_the_same_path_alone_or_in_company(name, tmp_path):
    law = any_law(name, tmp_path)
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


# Replay

RECORD = """\
version: 1
title: By hand
target: llama-2-7b
date: '2026-01-01'
source: made up
entries:
  chain:
    strategy: {kind: draft_model, draft: llama-68m, k: 3}
    tau: {code: {value: %(tau).9f, lo: 1.0, hi: 4.0, steps: %(steps)d, requests: %(requests)d}}
    standard_errors: {code: {alpha_by_pos: [0.1, 0.1, 0.1]}}
    acceptance: {by_domain: {code: {alpha_by_pos: [0.5, 0.5, 0.5], spread: 0.0, basis: validated}}}
    replay: {code: {accepted: [%(accepted)s]}}
"""
SCENARIO = """\
hardware: {gpu: a100_80g_sxm}
model: {transformer: llama-2-7b}
engine: {name: vllm_0.15, max_num_seqs: 1}
workload:
  arrivals: {kind: closed_loop, users: 1}
  requests: 12
  streams:
    - domain: code
      prompt_tokens: {kind: fixed, value: 16}
      output_tokens: {kind: fixed, value: 201}
strategies:
  - {kind: draft_model, draft: llama-68m, k: 3, acceptance: {file: %s, entry: chain, replay: true}}
run: {warmup: 0, band: false}
"""
EVEN = ("3 3 3 3 3", "0 1 0 2 0 1 0 0 0 0 0 0 0 0 0 0", "1 2 1 2 1 2 1 2")
"""Twenty tokens each, as where every answer has the same length."""
UNEVEN = ("3 3", "0 1 0 2 0 1 0 0 0 0 0 0 0 0 0 0 1 0 0 1 0 0 0", "1 2 1 2 1 2 1 2")


def counts(record):
    return [[int(count) for count in one.split()] for one in record]


def recorded_tau(record) -> float:
    return 1.0 + float(np.mean(np.concatenate(counts(record))))


def scenario(tmp_path, record=EVEN) -> str:
    path = tmp_path / "acceptance.yaml"
    accepted = ", ".join(f'"{one}"' for one in record)
    steps, requests = sum(map(len, counts(record))), len(record)
    about = {"accepted": accepted, "steps": steps, "requests": requests}
    path.write_text(RECORD % {**about, "tau": recorded_tau(record)})
    return SCENARIO % path


def replayed(tmp_path, record=EVEN):
    file = parse_scenario(load_yaml(scenario(tmp_path, record), "scenario.yaml"), [])
    point = file.points[0].scenario
    strategy = next(one for one in point.strategies if one.kind == "draft_model")
    return prepare(build(point), strategy, point.workload.domain_names).law


@pytest.mark.parametrize("record", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_a_long_replay_has_the_recorded_tau(record, tmp_path):
    law = replayed(tmp_path, record)
    assert law.tau == pytest.approx(recorded_tau(record), abs=1e-9)
    for tokens in (60, 2000):
        paths = draw(law, 6000, tokens)
        shares(of_each(paths, paths.accepted + 1), np.diff(paths.offsets), law.tau, 0.05)


@pytest.mark.parametrize("record", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_a_replayed_request_does_what_recorded_ones_did_in_their_order(record, tmp_path):
    """Within a recorded request steps follow as they did; only its end may meet a beginning."""
    recorded = counts(record)
    within = {pair for one in recorded for pair in pairwise(one)}
    seams = {(one[-1], other[0]) for one in recorded for other in recorded}
    paths = draw(replayed(tmp_path, record), 400, 15)
    for r in range(400):
        mine = paths.accepted[paths.offsets[r] : paths.offsets[r + 1]].tolist()
        assert set(mine) <= set(np.concatenate(recorded).tolist())
        assert all(pair in within | seams for pair in pairwise(mine))
    firsts = Counter(paths.accepted[paths.offsets[:-1]].tolist())
    assert len(firsts) >= 3, "requests replay different recorded ones"


def test_one_recorded_request_is_replayed_over_and_over(tmp_path):
    cycle = "0 2 1 3 0 0 1"
    law = replayed(tmp_path, (cycle,))
    paths = draw(law, 20, 500)
    around = (counts((cycle,))[0]) * 200
    turns = [around[start : start + 400] for start in range(7)]
    for r in range(20):
        mine = paths.accepted[paths.offsets[r] : paths.offsets[r + 1]].tolist()
        assert any(mine == turn[: len(mine)] for turn in turns)


# From end to end


def test_a_lone_user_waits_for_the_steps_of_the_replay(tmp_path):
    """With steps of one length TPOT is that length times steps over tokens."""
    law, requests = replayed(tmp_path), closed_loop(1, 60)
    requests.output_tokens[:] = 201
    run = serve(requests, Cost(0.01), law)
    paths = law.paths(1, np.arange(60), np.full(60, 200), requests.domain, requests.prompt_tokens)
    decode_s = np.array(run.log.finish_s) - np.array(run.log.first_token_s)
    assert decode_s == pytest.approx(0.01 * np.diff(paths.offsets), rel=1e-9)
    whole = [len(counts((one,))[0]) for one in EVEN]
    assert set(np.round(decode_s / 0.01).astype(int)) <= set(range(min(whole) * 8, max(whole) * 12))


def test_tpot_of_a_scenario_is_the_time_of_its_replayed_steps_over_its_tokens(tmp_path):
    """One user: no queue, no prefill of anyone else in a step, and each step can be priced."""
    text = scenario(tmp_path)
    (ran,) = [one for one in run_scenario(text) if one.setup.strategy.kind == "draft_model"]
    requests, steps = ran.requests, ran.steps
    decoding = steps["n_decode"] == 1
    emitted = steps["emitted"][decoding]
    assert emitted.sum() == 12 * 200
    seconds, at = [], 0
    for number in range(12):
        mine = emitted[at : at + requests["n_steps"][number]]
        at += mine.size
        assert mine.sum() == 200
        contexts = 17 + np.cumsum(mine) - mine
        took = [ran.setup.step_time.decode(1, int(context)) for context in contexts]
        seconds.append(sum(took))
        passed = requests["finish_s"][number] - requests["first_token_s"][number]
        assert passed == pytest.approx(sum(took), rel=1e-9)
    assert ran.row["tpot_s"]["mean"] == pytest.approx(np.mean(seconds) / 200, rel=1e-9)
    uncut = 1.0 + requests["accepted"].sum() / requests["n_steps"].sum()
    assert ran.row["tau"] == pytest.approx(uncut, rel=1e-9)
