"""Decoders of one sequence on tiny random models: they give what plain decoding gives."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from oracles import OracleHeads, OracleLayer
from streams import accepted, generate, one_torch_thread, plain, prompts_of
from tiny_llama import VOCABULARY, tiny_network

from calibration.decoding.decoder import Watch
from calibration.decoding.eagle import Eagle
from calibration.decoding.heads.modules import Eagle as EagleLayer
from calibration.decoding.heads.modules import eagle_layer, medusa_heads
from calibration.decoding.lookahead import Lookahead
from calibration.decoding.medusa import DEFAULT_TREE, Medusa
from calibration.decoding.ngram import Ngram
from calibration.decoding.verify import accepted_chain
from models.strategies import strategy_types
from models.trees import chain, make_tree

pytestmark = pytest.mark.extras

FEW = 7
"""A vocabulary in which many guesses are right by chance."""

TOKENS = 24

SHAPES = {
    "ngram-1": lambda network: Ngram(network, 1),
    "ngram-6": lambda network: Ngram(network, 6, longest=4, shortest=2),
    "lookahead-small": lambda network: Lookahead(network, 3, 2, 1),
    "lookahead-deep": lambda network: Lookahead(network, 4, 6, 3),
    "lookahead": lambda network: Lookahead(network, 5, 4, 7),
    "medusa-chain": lambda network: Medusa(network, medusa_heads(network, 3), chain(3)),
    "medusa": lambda network: Medusa(network, shaken(network, 4), DEFAULT_TREE),
    "medusa-wide": lambda network: Medusa(network, shaken(network, 2), make_tree([5, 4])),
    "eagle-1": lambda network: Eagle(network, eagle_layer(network), 1),
    "eagle-5": lambda network: Eagle(network, eagle_layer(network), 5),
}


def shaken(network, count):
    """Heads that differ from each other."""
    heads = medusa_heads(network, count)
    for number, block in enumerate(heads.blocks):
        torch.nn.init.normal_(block.weight, generator=torch.Generator().manual_seed(number))
    return heads


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads only wait for each other in models this small."""
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def networks():
    return {size: tiny_network(vocab_size=size) for size in (FEW, VOCABULARY)}


@pytest.fixture(scope="module")
def plain_texts(networks):
    return {
        size: [plain(network, prompt, TOKENS) for prompt in prompts_of(size)]
        for size, network in networks.items()
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [FEW, VOCABULARY])
def test_every_decoder_gives_the_tokens_of_plain_decoding(shape, size, networks, plain_texts):
    decoder = SHAPES[shape](networks[size])
    runs = [generate(decoder, prompt, TOKENS) for prompt in prompts_of(size)]
    assert [run.tokens[0] for run in runs] == plain_texts[size]
    if size == FEW:
        assert max(max(accepted(run)) for run in runs) > 0
        assert min(min(accepted(run)) for run in runs) == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_say_what_a_step_did(shape, networks):
    run = generate(SHAPES[shape](networks[FEW]), prompt := prompts_of(FEW)[1])
    context = len(prompt) + 1
    for step in run.steps:
        (row,) = step.rows
        assert len(row.tokens) == row.accepted + 1
        assert row.width == row.drafted + 1
        assert row.context == context
        context += len(row.tokens)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kv_cache_holds_what_a_prefill_of_the_text_gives(shape, networks):
    network = networks[FEW]
    decoder, watch = SHAPES[shape](network), Watch(time.perf_counter)
    decoder.prefill([prompts_of(FEW)[2]], [3], watch)
    for _ in range(12):
        decoder.step(watch)
        same_as_prefilled(decoder.stream)


def same_as_prefilled(stream):
    fresh = stream.target.new_cache(1)
    stream.target.prefill([stream.tokens[:-1]], fresh)
    assert stream.cache.lengths == fresh.lengths == [len(stream.tokens) - 1]
    end = fresh.longest
    for mine, other in ((stream.cache.keys, fresh.keys), (stream.cache.values, fresh.values)):
        assert torch.allclose(mine[:, :, :, :end], other[:, :, :, :end], atol=1e-3)


def test_the_eagle_layer_keeps_the_kv_of_true_features_only(networks):
    network, layer = networks[FEW], eagle_layer(networks[FEW], seed=1)
    decoder, watch = Eagle(network, layer, 4), Watch(time.perf_counter)
    decoder.prefill([prompts_of(FEW)[0]], [0], watch)
    taken, at_work = 0, EagleLayer(network, layer)
    for _ in range(40):
        before = len(decoder.stream.tokens)
        (row,) = decoder.step(watch)
        taken += row.accepted
        features = network.hidden([decoder.stream.tokens[: before - 1]], network.new_cache(1))
        fresh = at_work.new_cache(1)
        at_work.prefill([decoder.stream.tokens[1:before]], [features], fresh)
        own = decoder._cache
        assert own.lengths == fresh.lengths
        end = fresh.longest
        assert torch.allclose(own.keys[..., :end, :], fresh.keys[..., :end, :], atol=1e-3)
        assert torch.allclose(own.values[..., :end, :], fresh.values[..., :end, :], atol=1e-3)
    assert taken > 3


@pytest.fixture(scope="module")
def readable():
    """Hidden states of this one can say any logits; a text of it, longer than what is decoded."""
    network = tiny_network(seed=1, vocab_size=31)
    prompt = prompts_of(31)[5]
    return network, prompt, [*prompt, *plain(network, prompt, 60)]


@pytest.mark.parametrize("k", [1, 3, 7])
def test_an_eagle_layer_that_is_always_right_has_every_draft_accepted(k, readable):
    network, prompt, text = readable
    run = generate(Eagle(network, OracleLayer(network, text), k), prompt, 41)
    assert list(run.tokens[0]) == text[len(prompt) : len(prompt) + 41]
    assert set(accepted(run)) == {k}
    assert len(run.steps) == -(-40 // (k + 1))


def test_an_eagle_chain_ends_where_the_layer_is_wrong(readable):
    network, prompt, text = readable
    start = len(prompt)
    wrong = [start + place for place in (3, 4, 12)]
    run = generate(Eagle(network, OracleLayer(network, text, wrong), 4), prompt, 16)
    assert list(run.tokens[0]) == text[start : start + 16]
    assert accepted(run) == [2, 0, 4, 2, 4]


def test_medusa_heads_that_are_always_right_have_the_longest_path_accepted(readable):
    network, prompt, text = readable
    heads = OracleHeads(network, text, 4, lambda place, head: 0)
    run = generate(Medusa(network, heads), prompt, 41)
    assert list(run.tokens[0]) == text[len(prompt) : len(prompt) + 41]
    assert set(accepted(run)) == {4}
    assert {step.rows[0].ranks for step in run.steps} == {(0, 0, 0, 0)}


def test_a_stop_token_inside_an_accepted_run_ends_the_text(readable):
    network, prompt, text = readable
    own = text[len(prompt) :]
    place = next(place for place in range(1, 60) if own[place] not in own[:place] and place % 5 > 1)
    stop = {own[place]}
    run = generate(Eagle(network, OracleLayer(network, text), 4), prompt, 50, stop)
    assert list(run.tokens[0]) == own[: place + 1]
    assert run.steps[-1].rows[0].accepted == 4
    assert run.steps[-1].emitted[0] < 5


@pytest.mark.parametrize("shape", SHAPES)
def test_the_strategy_of_a_decoder_is_a_block_of_a_scenario(shape, networks):
    decoder = SHAPES[shape](networks[FEW])
    strategy = strategy_types()[decoder.strategy["kind"]].model_validate(decoder.strategy)
    run = generate(decoder, prompts_of(FEW)[0], 20)
    assert max(step.rows[0].drafted for step in run.steps) <= strategy.drafted
    assert max(accepted(run)) <= strategy.depth


def test_decoders_of_one_sequence_take_one_prompt(networks):
    with pytest.raises(ValueError):
        Ngram(networks[FEW]).prefill([[1], [2]], [0, 0], Watch(time.perf_counter))


def test_decoders_can_take_turns_on_one_sequence(networks, plain_texts):
    network, prompt = networks[FEW], prompts_of(FEW)[0]
    watch = Watch(time.perf_counter)
    eagle = SHAPES["eagle-5"](network)
    others = [SHAPES[shape](network) for shape in ("ngram-6", "lookahead")]
    eagle.prefill([prompt], [0], watch)
    for other in others:
        other.begin(eagle.stream, 0, watch)
    for _ in range(4):
        for one in (eagle, *others):
            one.step(watch)
    tokens = eagle.stream.tokens[len(prompt) :]
    same_as_prefilled(eagle.stream)
    assert tuple(tokens[:TOKENS]) == plain_texts[FEW][0][: len(tokens)]


@pytest.mark.parametrize(
    ("drafts", "targets", "count"),
    [([], [4], 0), ([4], [4, 5], 1), ([3, 5], [4, 5, 6], 0), ([4, 6, 6], [4, 5, 6, 7], 1)],
)
def test_a_chain_is_accepted_up_to_the_first_wrong_draft(drafts, targets, count):
    assert accepted_chain(drafts, targets) == count
