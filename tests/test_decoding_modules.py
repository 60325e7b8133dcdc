"""The trained parts of a target, on a tiny random one: shapes, caches, what they share."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from tiny_llama import tiny_network

from calibration.decoding.heads.modules import (
    Eagle,
    draft_layers,
    eagle_layer,
    medusa_heads,
    own_parameters,
    truncated,
)
from calibration.decoding.network import Network

pytestmark = pytest.mark.extras

TOKENS = [5, 8, 13, 21, 34, 55, 89]


@pytest.fixture
def network() -> Network:
    return tiny_network()


def states(network: Network, tokens: list[int]):
    return network.hidden([tokens], network.new_cache(1))


def test_untrained_medusa_heads_pass_hidden_states_on(network):
    heads = medusa_heads(network, 3)
    hidden = states(network, TOKENS)
    assert heads(hidden).shape == (3, 1, len(TOKENS), 32)
    assert torch.equal(heads(hidden)[2], hidden)
    assert network.logits(heads(hidden)).shape == (3, 1, len(TOKENS), 97)


def test_a_medusa_head_adds_a_residual_block(network):
    heads, hidden = medusa_heads(network, 2), states(network, TOKENS)
    heads.blocks[1].bias.fill_(1.0)
    assert torch.allclose(heads(hidden)[1] - hidden, torch.sigmoid(torch.ones(1)))


def test_an_eagle_layer_fed_piece_by_piece_gives_what_it_gives_at_once(network):
    eagle = Eagle(network, eagle_layer(network, seed=1))
    hidden = states(network, TOKENS)
    at_once = eagle.features([TOKENS[1:]], hidden[:, :-1], eagle.new_cache(1))
    cache, pieces = eagle.new_cache(1), []
    for first, last in ((0, 3), (3, 4), (4, 6)):
        out = eagle.features([TOKENS[first + 1 : last + 1]], hidden[:, first:last], cache)
        cache.commit([list(range(last - first))])
        pieces.append(out)
    assert torch.allclose(torch.cat(pieces, dim=1), at_once, atol=1e-4)
    assert not torch.allclose(at_once[:, 1:], at_once[:, :-1])


def test_rejected_pairs_of_an_eagle_layer_leave_nothing_behind(network):
    eagle = Eagle(network, eagle_layer(network, seed=1))
    hidden = states(network, TOKENS)
    cache = eagle.new_cache(1)
    eagle.features([TOKENS[1:3]], hidden[:, :2], cache)
    cache.commit([[0, 1]])
    eagle.features([[96, 96]], hidden[:, :2], cache)
    cache.commit([[]])
    again = eagle.features([TOKENS[3:]], hidden[:, 2:-1], cache)
    at_once = eagle.features([TOKENS[1:]], hidden[:, :-1], eagle.new_cache(1))
    assert torch.allclose(again, at_once[:, 2:], atol=1e-4)


def test_eagle_rows_of_their_own_lengths_are_prefilled_as_if_alone(network):
    eagle = Eagle(network, eagle_layer(network, seed=1))
    long, short = states(network, TOKENS), states(network, TOKENS[:3])
    cache = eagle.new_cache(2)
    rows = eagle.prefill([TOKENS[1:], TOKENS[1:3]], [long[:, :-1], short[:, :-1]], cache)
    assert cache.lengths == [6, 2]
    assert [one.shape[1] for one in rows] == [6, 2]
    both = eagle.features([[1], [2]], torch.cat((long[:, -1:], short[:, -1:])), cache)
    alone = eagle.new_cache(1)
    eagle.prefill([TOKENS[1:3]], [short[:, :-1]], alone)
    assert torch.allclose(both[1:], eagle.features([[2]], short[:, -1:], alone), atol=1e-4)


def test_the_seed_of_an_eagle_layer_decides_its_weights_and_no_others(network):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (eagle_layer(network, seed).fc.weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


def test_a_truncated_draft_is_the_first_layers_of_its_target(network):
    draft = Network(truncated(network, 2))
    out = draft.hidden([TOKENS], draft.new_cache(1))
    body = network.model.get_decoder()
    places = torch.arange(len(TOKENS))[None]
    x = network.model.get_input_embeddings()(torch.tensor([TOKENS]))
    turned = body.rotary_emb(x, position_ids=places)
    for layer in body.layers[:2]:
        x = layer(x, position_embeddings=turned, position_ids=places)
    assert torch.allclose(out, body.norm(x), atol=1e-4)
    assert torch.equal(draft.logits(out), network.logits(out))


def test_a_draft_shares_embeddings_and_lm_head_and_copies_the_rest(network):
    draft = truncated(network, 1)
    assert draft.get_input_embeddings() is network.model.get_input_embeddings()
    assert draft.get_output_embeddings() is network.model.get_output_embeddings()
    own = own_parameters(draft)
    assert {name.split(".")[1] for name in own} == {"layers", "norm"}
    theirs = {id(one) for one in network.model.parameters()}
    assert not theirs & {id(one) for one in own.values()}
    assert draft.config.num_hidden_layers == 1
    assert network.model.config.num_hidden_layers == 3


def test_a_draft_has_about_a_sixth_of_the_layers():
    assert [draft_layers(layers) for layers in (1, 3, 12, 30, 32)] == [1, 1, 1, 4, 4]
