from __future__ import annotations

import numpy as np
import pytest

from models.acceptance import (
    Acceptance,
    chain_law,
    lookahead_law,
    ngram_law,
    plain_law,
    tree_law,
)
from models.lookup import match_steps
from models.paths import (
    SECOND,
    STEP,
    Sample,
    accepted_below,
    draw_paths,
    request_keys,
    step_uniforms,
    uniforms_at,
)
from models.population import NgramLogits, logit
from models.trees import make_tree
from tests.drawing import HEADS, MATCHES, ONE, drawn, measured_tau

LAWS = {
    "plain": plain_law(),
    "chain": chain_law(Acceptance(tau=2.4), 3, ONE),
    "tree": tree_law(Acceptance(heads=HEADS), make_tree([3, 2, 1]), ONE),
    "lookahead": lookahead_law(Acceptance(tau=1.7), 5, 15, 15, ONE),
    "lookahead_half": lookahead_law(Acceptance(tau=1.7), 5, 15, 15, ONE, found_share=0.5),
    "ngram": ngram_law(Acceptance(**MATCHES), 3, ONE),
}


@pytest.mark.parametrize("name", LAWS)
def test_drawn_tau_is_the_laws(name):
    law = LAWS[name]
    assert measured_tau(drawn(law)) == pytest.approx(law.tau, rel=0.01)


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_drawn_tau_is_the_input_with_and_without_spread(spread):
    paths = drawn(chain_law(Acceptance(tau=2.5, spread=spread), 3, ONE), tokens=1000)
    assert measured_tau(paths) == pytest.approx(2.5, rel=0.01)
    by_request = np.diff(paths.offsets)
    noise = 0.02 if spread == 0 else 0.08
    assert (by_request.std() / by_request.mean() > 0.08) == (spread > 0)
    assert by_request.std() / by_request.mean() > noise


@pytest.mark.parametrize("name", LAWS)
def test_every_request_emits_its_tokens_and_only_its_last_step_is_cut(name):
    tokens = np.array([0, 1, 2, 250, 0, 7, 33, 1000, 0])
    law = LAWS[name]
    paths = law.paths(11, np.arange(tokens.size), tokens, np.zeros(tokens.size, dtype=int))
    for r, wanted in enumerate(tokens):
        part = slice(paths.offsets[r], paths.offsets[r + 1])
        emitted, accepted = paths.emitted[part], paths.accepted[part]
        assert emitted.sum() == wanted
        assert (emitted >= 1).all() and (accepted <= law.depth).all()
        assert (emitted[:-1] == accepted[:-1] + 1).all()
        assert (emitted <= accepted + 1).all()


@pytest.mark.parametrize("name", LAWS)
def test_any_order_and_any_chunk_draws_the_same_paths(name):
    law, random = LAWS[name], np.random.default_rng(2)
    ids = random.permutation(60)
    tokens, domains = 1 + 13 * ids % 97, np.zeros(60, dtype=int)
    whole = law.paths(5, ids, tokens, domains)
    for cut in (1, 7, 60):
        parts = [
            law.paths(5, ids[i : i + cut], tokens[i : i + cut], domains[i : i + cut])
            for i in range(0, 60, cut)
        ]
        for field in ("emitted", "accepted", "drafted", "width"):
            pieces = [getattr(part, field) for part in parts]
            if getattr(whole, field) is None:
                assert pieces[0] is None
            else:
                assert (np.concatenate(pieces) == getattr(whole, field)).all()
    other = law.paths(6, ids, tokens, domains)
    assert (
        law.depth == 0
        or other.emitted.size != whole.emitted.size
        or (other.emitted != whole.emitted).any()
    )


def test_a_longer_answer_continues_the_same_path():
    law = LAWS["ngram"]
    short = law.paths(1, np.array([4]), np.array([40]), np.array([0]))
    long = law.paths(1, np.array([4]), np.array([400]), np.array([0]))
    steps = short.accepted.size
    assert (long.accepted[:steps] == short.accepted).all()


def test_too_few_steps_at_first_are_drawn_again():
    keys, tokens = request_keys(1, np.arange(30), STEP), np.arange(30) * 3
    survival = np.tile([0.7, 0.4], (30, 1))

    def sample(counts):
        return Sample(accepted_below(step_uniforms(keys, counts), survival, counts))

    enough = draw_paths(tokens, tokens, sample)
    for fewer in (1, 2, 3):
        again = draw_paths(tokens, tokens // fewer // 2, sample)
        assert (again.offsets == enough.offsets).all()
        assert (again.emitted == enough.emitted).all()


def test_no_requests_is_no_steps():
    none = np.zeros(0, dtype=np.int64)
    for law in LAWS.values():
        assert law.paths(1, none, none, none).emitted.size == 0


def test_uniforms_are_uniform_and_independent_of_neighbours():
    counts = np.full(400, 250)
    keys = request_keys(1, np.arange(400), STEP)
    u = step_uniforms(keys, counts).reshape(400, 250)
    assert ((u >= 0) & (u < 1)).all()
    assert np.histogram(u, 20)[0].std() / 5000 < 0.03
    for a, b in ((u[:, 1:], u[:, :-1]), (u[1:], u[:-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.01
    assert (uniforms_at(keys[3:4], np.arange(250)) == u[3]).all()
    assert (request_keys(1, np.arange(400), SECOND) != keys).all()
    assert (request_keys(2, np.arange(400), STEP) != keys).all()


def test_width_of_lookahead_follows_the_guesses_found():
    assert drawn(LAWS["lookahead"], 5).width is None
    paths = drawn(LAWS["lookahead_half"], 400)
    found = paths.width / 4 - 15
    assert found.min() >= 0 and found.max() <= 15 and found.mean() == pytest.approx(7.5, rel=0.02)
    assert np.var(found) == pytest.approx(15 * 0.25, rel=0.05)
    many, few = paths.accepted[found >= 9], paths.accepted[found <= 6]
    assert many.mean() > few.mean() + 0.05


def test_forward_fill_equals_a_loop_over_steps():
    at = NgramLogits(logit([0.2, 0.05]), logit([0.7, 0.9]), logit([[0.6, 0.8], [0.9, 0.9]]))
    rates, counts = at.rates(), np.array([300, 500])
    keys, second = request_keys(9, np.arange(2), STEP), request_keys(9, np.arange(2), SECOND)
    accepted, matched = match_steps(rates, counts, keys, second)
    expected = []
    for r, count in enumerate(counts):
        first = step_uniforms(keys[r : r + 1], counts[r : r + 1])
        inside = step_uniforms(second[r : r + 1], counts[r : r + 1])
        whole = False
        for step in range(count):
            chance = rates.match[r] if step == 0 else (rates.stay if whole else rates.enter)[r]
            match = first[step] < chance
            taken = int((inside[step] < rates.survival[r]).sum()) if match else 0
            whole = match and taken == 2
            expected.append((taken, int(match)))
    assert list(zip(accepted.tolist(), matched.tolist(), strict=True)) == expected


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_match_share_tau_and_persistence_come_out(spread):
    law = ngram_law(Acceptance(**MATCHES, spread=spread), 3, ONE)
    assert law.tau == pytest.approx(1 + 0.25 * (0.6 + 0.42 + 0.315), abs=1e-6)
    paths = drawn(law, tokens=1000)
    matched = paths.drafted > 0
    assert matched.mean() == pytest.approx(0.25, rel=0.02)
    assert measured_tau(paths) == pytest.approx(law.tau, rel=0.01)
    last = np.zeros(matched.size, dtype=bool)
    last[paths.offsets[1:] - 1] = True
    whole = (paths.accepted == 3) & ~last
    assert matched[np.flatnonzero(whole) + 1].mean() == pytest.approx(0.8, abs=0.01)
    assert paths.accepted[~matched].max() == 0
    assert set(np.unique(paths.drafted)) == {0, 3}
    assert (paths.width == 1 + paths.drafted).all()


def test_the_first_step_matches_as_often_as_any_other():
    law = ngram_law(Acceptance(**MATCHES, spread=0), 3, ONE)
    first = drawn(law, 20_000, tokens=1)
    assert (first.drafted > 0).mean() == pytest.approx(0.25, abs=0.01)


def test_full_width_drafts_every_step_but_accepts_the_same():
    narrow, wide = (ngram_law(Acceptance(**MATCHES), 3, ONE, full_width=f) for f in (False, True))
    a, b = drawn(narrow, 50), drawn(wide, 50)
    assert b.drafted is None and b.width is None
    assert (a.accepted == b.accepted).all()


def test_ngram_tau_alone_takes_the_published_shape():
    for tau in (1.05, 1.4, 2.5, 3.9):
        law = ngram_law(Acceptance(tau=tau), 3, ONE)
        assert law.tau == pytest.approx(tau, abs=1e-6)
        assert measured_tau(drawn(law, 3000)) == pytest.approx(tau, rel=0.02)
