from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from models import catalog
from models.acceptance import (
    Acceptance,
    chain_law,
    lookahead_law,
    ngram_law,
    tree_law,
)
from models.paths import (
    request_normals,
)
from models.population import guess_survival, logit
from models.schema import ModelError
from models.trees import make_tree
from tests.drawing import HEADS, MATCHES, ONE, drawn, measured_tau

# Theory: expectations against enumeration


def test_iid_chain_is_the_textbook_formula():
    law = chain_law(Acceptance(alpha=0.7, spread=0), 4, ONE)
    assert law.tau == pytest.approx((1 - 0.7**5) / (1 - 0.7))


def test_chain_by_position_equals_enumeration():
    rates = (0.8, 0.5, 0.9)
    tau = 0.0
    for outcome in product((0, 1), repeat=3):
        probability = np.prod([a if x else 1 - a for a, x in zip(rates, outcome, strict=True)])
        tau += probability * (1 + int(np.cumprod(outcome).sum()))
    conditional = chain_law(Acceptance(alpha_by_pos=rates, spread=0), 3, ONE)
    shares = Acceptance(alpha_by_pos=[0.8, 0.4, 0.36], conditional=False, spread=0)
    assert conditional.tau == pytest.approx(tau)
    assert chain_law(shares, 3, ONE).tau == pytest.approx(tau)
    assert chain_law(shares, 2, ONE).tau == pytest.approx(1 + 0.8 + 0.4)


def test_lookahead_bracket_equals_enumeration_of_guesses():
    """Each of g guesses is right up to some depth; the best one counts."""
    alpha, depth, g = 0.4, 3, 2
    length = [alpha**i * (1 - alpha if i < depth else 1) for i in range(depth + 1)]
    expected = sum(
        np.prod([length[i] for i in best]) * (1 + max(best))
        for best in product(range(depth + 1), repeat=g)
    )
    law = lookahead_law(Acceptance(alpha=alpha, spread=0), depth + 1, g, 5, ONE)
    assert law.tau == pytest.approx(expected)
    sometimes = Acceptance(alpha=alpha, spread=0, good_every=2.0)
    assert lookahead_law(sometimes, depth + 1, g, 5, ONE).tau == pytest.approx(
        (2.0 - 1 + expected) / 2.0
    )


def test_binomial_number_of_guesses_averages_to_its_generating_function():
    alpha, g, found = np.array([0.5]), 4, 0.3
    weights = [0.7**4, 4 * 0.3 * 0.7**3, 6 * 0.09 * 0.49, 4 * 0.027 * 0.7, 0.3**4]
    mean = sum(w * guess_survival(alpha, 3, i, 1.0, 1.0) for i, w in enumerate(weights))
    assert guess_survival(alpha, 3, g, 1.0, found) == pytest.approx(mean)


def test_spread_leaves_tau_where_it_was_measured():
    for spread in (0.0, 0.4, 1.0):
        law = chain_law(Acceptance(tau=2.6, spread=spread), 4, ONE)
        assert law.tau == pytest.approx(2.6, abs=1e-6)
        levels = request_normals(0, np.arange(200_000))
        survival = law.survival(0, np.arange(200_000), np.zeros(200_000, dtype=int))
        harmonic = 1 / np.mean(1 / (1 + survival.sum(axis=1)))
        assert harmonic == pytest.approx(2.6, rel=0.005)
        assert np.std(logit(survival[:, 0])) == pytest.approx(spread, abs=0.01)
        assert abs(levels.mean()) < 0.01 and levels.std() == pytest.approx(1, abs=0.01)


def test_tau_at_another_k_is_solved_there():
    at_three = Acceptance(tau_at_k=2.4, at_k=3)
    assert chain_law(at_three, 3, ONE).tau == pytest.approx(2.4)
    longer, shorter = chain_law(at_three, 6, ONE), chain_law(at_three, 1, ONE)
    assert shorter.tau < 2.0 < 2.4 < longer.tau
    assert longer.basis == shorter.basis == "extrapolated"
    assert longer.uncertainty == shorter.uncertainty > 0.01
    assert chain_law(Acceptance(tau_at_k=2.4), 3, ONE).basis == "validated"


# The block: domains, catalogue, refusals


def test_domains_override_and_the_whole_is_their_harmonic_mean():
    block = Acceptance(tau=3.0, spread=0.2, by_domain={"sql": {"tau": 2.0}})
    law = chain_law(block, 3, ("chat", "sql"))
    assert (law.tau_of(0), law.tau_of(1)) == pytest.approx((3.0, 2.0))
    assert law.tau == pytest.approx(2 / (1 / 3 + 1 / 2))
    assert measured_tau(drawn(law, domain=1)) == pytest.approx(2.0, rel=0.01)
    assert block.for_domain("sql").spread == 0.2
    only = Acceptance(by_domain={"sql": {"tau": 2.0}})
    assert chain_law(only, 3, ("sql",)).tau == pytest.approx(2.0)
    with pytest.raises(ModelError, match="no acceptance for domain 'chat'"):
        chain_law(only, 3, ("chat",))


def test_catalogue_entry_yields_to_what_the_user_adds():
    plain = Acceptance(catalog="eagle_llama31_8b").for_domain("gsm8k")
    assert plain.alpha_by_pos[0] == 0.684 and plain.basis == "validated"
    assert plain.uncertainty == 0.01
    assert Acceptance(catalog="eagle_llama31_8b").for_domain("poems").uncertainty == 0.09
    changed = Acceptance(catalog="eagle_llama31_8b", spread=0.0, basis="assumed")
    assert changed.for_domain("gsm8k").spread == 0.0
    assert chain_law(changed, 3, ("gsm8k",)).basis == "assumed"
    with pytest.raises(ModelError, match="eagle_llama31_8b"):
        chain_law(Acceptance(catalog="eagle_lama31_8b"), 3, ONE)


@pytest.mark.parametrize("name", catalog.names("acceptance"))
def test_catalogue_entries_state_acceptance_with_a_source(name):
    entry = catalog.entry("acceptance", name)
    assert entry["source"] and entry["title"] and entry["measured_with"] and entry["basis"]
    for domain in ("all", *entry["acceptance"].get("by_domain", {})):
        assert Acceptance(catalog=name).for_domain(domain).catalog is None


@pytest.mark.parametrize(("model", "tau"), [("7b", 2.565), ("13b", 2.639), ("33b", 2.514)])
def test_medusa_entries_give_the_published_tau_of_their_tree(model, tau):
    block = Acceptance(catalog=f"medusa1_vicuna_{model}_mtbench")
    assert tree_law(block, make_tree("medusa_63"), ONE).tau == pytest.approx(tau, abs=5e-4)


@pytest.mark.parametrize(
    ("domain", "eagle", "ngram"),
    [
        ("gsm8k", 2.412, 1.162),
        ("cnn_dm", 2.330, 1.335),
        ("sharegpt", 2.307, 1.270),
        ("instructcoder", 2.690, 1.735),
    ],
)
def test_trace_entries_give_the_tau_of_the_traces(domain, eagle, ngram):
    chain = Acceptance(catalog="eagle_llama31_8b")
    lookup = Acceptance(catalog="ngram_llama31_8b")
    assert chain_law(chain, 3, (domain,)).tau == pytest.approx(eagle, rel=0.003)
    assert ngram_law(lookup, 3, (domain,)).tau == pytest.approx(ngram, rel=0.003)


def test_heads_of_a_chain_are_its_first_ranks():
    law = chain_law(Acceptance(heads=HEADS, spread=0), 3, ONE)
    assert law.tau == pytest.approx(1 + 0.55 + 0.55 * 0.4 + 0.55 * 0.4 * 0.3)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({}, "state acceptance by one of"),
        ({"tau": 2.0, "alpha": 0.5}, "one way, got tau and alpha"),
        ({"tau": 0.5}, "greater than or equal to 1"),
        ({"alpha": 1.2}, "less than or equal to 1"),
        ({"alpha_by_pos": [0.5, 1.5]}, "between 0 and 1, got 1.5"),
        ({"alpha_by_pos": [0.5, 0.6], "conditional": False}, "cannot rise"),
        ({"heads": [[0.6, 0.7]]}, "sum to 1.3"),
        ({"match_rate": 0.2}, "needs alpha or alpha_by_pos"),
        ({"tau": 2.0, "at_k": 3}, "at_k says nothing"),
        ({"tau": 2.0, "match_stay": 0.5}, "match_stay says nothing"),
        ({"tau": 2.0, "colour": 1}, "colour"),
    ],
)
def test_contradictory_blocks_are_refused(block, message):
    with pytest.raises(ValidationError, match=message):
        Acceptance(**block)


def test_statements_that_do_not_fit_the_strategy_are_refused():
    tree = make_tree([2, 2])
    for law, key, message in (
        (lambda: chain_law(Acceptance(tau=4.5), 3, ONE), "acceptance.tau", "at most 4 tokens"),
        (lambda: ngram_law(Acceptance(tau=4.5), 3, ONE), "acceptance.tau", "at most 4 tokens"),
        (lambda: chain_law(Acceptance(tau_at_k=4.5, at_k=3), 9, ONE), "acceptance.tau_at_k", "4"),
        (lambda: chain_law(Acceptance(**MATCHES), 3, ONE), "acceptance.match_rate", "n-gram"),
        (
            lambda: tree_law(Acceptance(tau_at_k=2, at_k=2), tree, ONE),
            "acceptance.tau_at_k",
            "tree",
        ),
        (lambda: lookahead_law(Acceptance(heads=HEADS), 5, 5, 5, ONE), "acceptance", "takes tau"),
        (lambda: ngram_law(Acceptance(alpha=0.5), 3, ONE), "acceptance", "takes tau"),
        (
            lambda: lookahead_law(Acceptance(tau=4, good_every=2), 5, 5, 5, ONE),
            "acceptance.tau",
            "can reach 3",
        ),
    ):
        with pytest.raises(ModelError, match=message) as error:
            law()
        assert error.value.key == key


def test_extremes_never_and_always_accept():
    never, always = chain_law(Acceptance(tau=1), 3, ONE), chain_law(Acceptance(tau=4), 3, ONE)
    assert drawn(never, 20).accepted.max() == 0
    assert drawn(always, 20).accepted.min() == 3
    fixed = chain_law(Acceptance(alpha_by_pos=[1.0, 1.0, 0.0]), 3, ONE)
    assert set(drawn(fixed, 20).accepted) == {2}
