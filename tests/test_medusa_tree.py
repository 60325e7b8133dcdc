"""The tree a Medusa step verifies: its mask, what is accepted of it, what is recorded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from oracles import OracleHeads
from streams import accepted, generate, one_torch_thread, plain, prompts_of
from tiny_llama import tiny_network

from calibration.decoding.heads.modules import medusa_heads
from calibration.decoding.medusa import DEFAULT_TREE, DraftTree, Medusa
from calibration.decoding.strategies import Knobs, make
from models.schema import ModelError
from models.trees import checked_tree, make_tree, tree_depth

pytestmark = pytest.mark.extras

SIZE = 31

GUESSES = [[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def network():
    return tiny_network(seed=1, vocab_size=SIZE)


@pytest.mark.parametrize("tree", [DEFAULT_TREE, make_tree("medusa_63"), make_tree([2, 3, 1])])
def test_a_node_sees_the_text_and_its_ancestors_and_nothing_else(tree, network):
    draft, prompt = DraftTree(tree), prompts_of(SIZE)[6]
    guesses = [[(7 * rank + level) % SIZE for rank in range(10)] for level in range(4)]
    cache = network.new_cache(1)
    network.prefill([prompt], cache)
    tokens = draft.tokens(3, guesses)
    together = network.hidden([tokens], cache, draft.depths, draft.seen)[0]
    for place, path in enumerate(draft.paths, 1):
        line = [3, *(guesses[level][rank] for level, rank in enumerate(path))]
        alone = network.hidden([[*prompt, *line]], network.new_cache(1))[0, -1]
        assert torch.allclose(together[place], alone, atol=1e-3)


def test_nodes_may_be_given_in_any_order():
    tree = checked_tree([(0, 1), (1,), (0, 1, 0), (0,)])
    draft = DraftTree(tree)
    assert draft.paths == ((0,), (1,), (0, 1), (0, 1, 0))
    assert draft.depths == (0, 1, 1, 2, 3)
    assert draft.seen.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]


@pytest.mark.parametrize(
    ("chosen", "places", "ranks"),
    [
        # Nodes: 1 (0), 2 (1), 3 (0,0), 4 (0,2), 5 (1,0), 6 (0,2,1); place 0 is the current token.
        ([99, 0, 0, 0, 0, 0, 0], [0], [None]),
        ([12, 0, 0, 0, 0, 0, 0], [0], [2]),
        ([11, 0, 21, 0, 0, 0, 0], [0, 2], [1, 1]),
        ([11, 0, 20, 0, 0, 30, 0], [0, 2, 5], [1, 0, 0]),
        ([10, 22, 0, 0, 31, 0, 0], [0, 1, 4, 6], [0, 2, 1]),
        ([10, 22, 0, 0, 33, 0, 0], [0, 1, 4], [0, 2, 3]),
        ([10, 22, 0, 0, 99, 0, 0], [0, 1, 4], [0, 2, None]),
    ],
)
def test_the_longest_path_of_the_targets_choices_is_accepted(chosen, places, ranks):
    draft = DraftTree(make_tree([[0], [1], [0, 0], [0, 2], [1, 0], [0, 2, 1]]))
    assert draft.accept(GUESSES, chosen) == (places, ranks)


def test_a_rank_beyond_those_looked_through_counts_as_none_even_if_the_tree_has_it():
    draft = DraftTree(make_tree([12]))
    assert draft.accept([list(range(12))], [11] + [0] * 12) == ([0, 12], [None])


def test_ranks_and_acceptance_follow_from_what_the_heads_guess(network):
    prompt = prompts_of(SIZE)[5]
    text = [*prompt, *plain(network, prompt, 60)]

    def rank(place: int, head: int) -> int:
        return (0, 0, 1, 0, 2, 0, 0, 11, 1)[(place * 5 + head * 3) % 9]

    heads = OracleHeads(network, text, 4, rank)
    run = generate(Medusa(network, heads), prompt, 41)
    assert list(run.tokens[0]) == text[len(prompt) : len(prompt) + 41]
    for step in run.steps:
        (row,) = step.rows
        told = [rank(row.context + head, head) for head in range(4)]
        depth = max(
            depth for depth in range(5) if depth == 0 or tuple(told[:depth]) in DEFAULT_TREE
        )
        assert row.accepted == depth
        known = tuple(one if one < 10 else None for one in told)
        assert row.ranks == known[: depth + 1]
        assert (row.drafted, row.width) == (22, 23)
    assert len(set(accepted(run))) > 2


def test_the_63_nodes_of_the_medusa_paper_decode_as_plain_decoding_does(network):
    tree = make_tree("medusa_63")
    for prompt in prompts_of(SIZE)[::5]:
        run = generate(Medusa(network, medusa_heads(network, 4), tree), prompt, 12)
        assert run.tokens[0] == plain(network, prompt, 12)
        assert run.steps[0].rows[0].drafted == 63


def test_the_usual_tree_is_cut_to_the_heads_there_are(network):
    parts = SimpleNamespace(medusa=lambda: medusa_heads(network, 2))
    decoder = make("medusa", network, parts, Knobs())
    tree = [tuple(path) for path in decoder.strategy["tree"]]
    assert tree == [path for path in DEFAULT_TREE if len(path) <= 2]
    prompt = prompts_of(SIZE)[0]
    assert generate(decoder, prompt, 12).tokens[0] == plain(network, prompt, 12)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (((0,), (0, 0), (0, 0, 0)), "a tree of depth 3 needs as many heads, got 2"),
        (((0,), (999,)), f"a tree of 1000 guesses a head, got a vocabulary of {SIZE}"),
    ],
)
def test_a_tree_that_these_heads_cannot_guess_names_its_option(network, tree, said):
    parts = SimpleNamespace(medusa=lambda: medusa_heads(network, 2))
    with pytest.raises(ModelError, match=said) as refused:
        make("medusa", network, parts, Knobs(tree=tree))
    assert refused.value.key == "--tree"


def test_a_tree_deeper_than_there_are_heads_is_refused(network):
    assert tree_depth(DEFAULT_TREE) == 4
    with pytest.raises(ValueError, match="a tree of depth 4 needs as many heads, got 3"):
        Medusa(network, medusa_heads(network, 3), DEFAULT_TREE)
