"""The text that parts are trained on: the target's own, kept as it comes, split by sequence."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from tiny_llama import tiny_network
from trained_cases import NEW_TOKENS, RUN, STOP, random_prompts, written

from calibration.decoding.heads import corpus as corpora
from calibration.decoding.heads.corpus import Corpus, drop_states
from calibration.decoding.heads.data import Vocabulary, batch_of, shuffled
from models.strict_yaml import InputError

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def network():
    return tiny_network()


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(corpora, "BATCH", 4)


def test_the_target_writes_what_it_decodes_greedily_and_states_are_its_own(network, tmp_path):
    for one in written(tmp_path, network, 12):
        tokens = one.written.tokens
        everything = network.model(torch.tensor([tokens]), output_hidden_states=True)
        states = everything.hidden_states[-1][0, :-1]
        assert torch.allclose(one.states.float(), states, rtol=0.01, atol=0.02)
        own = len(one.written.prompt) - 1
        greedy = everything.logits[0, own:-1].argmax(dim=-1)
        assert tuple(greedy.tolist()) == one.written.text == tuple(one.choices[own:].tolist())
        assert len(one.written.text) == NEW_TOKENS or one.written.text[-1] == STOP


def test_one_sequence_in_eight_of_each_domain_is_held_out(network, tmp_path):
    examples = written(tmp_path, network, 64)
    for domain in "ab":
        held_out = [one.written.held_out for one in examples if one.written.domain == domain]
        assert held_out == [place % 8 == 3 for place in range(32)]
    trained, kept = (
        {one.written.tokens for one in examples if one.written.held_out is side}
        for side in (False, True)
    )
    assert not trained & kept
    assert "no sequence is on both sides" in (tmp_path / "corpus.jsonl").read_text().split("\n")[0]


def test_an_interrupted_text_goes_on_to_the_same_bytes(network, tmp_path, small_batches):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    Corpus(whole, RUN).write(network, random_prompts(10), 6, {STOP})

    def interrupt(_: str, done: int, __: int) -> None:
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Corpus(torn, RUN).write(network, random_prompts(10), 6, {STOP}, interrupt)
    with (torn / "corpus.jsonl").open("a") as file:
        file.write('[["a", false, [1')
    again = Corpus(torn, RUN)
    assert len(again.sequences) == 4
    first = (torn / "states-0000.safetensors").stat().st_mtime_ns
    again.write(network, random_prompts(10), 6, {STOP})
    assert (torn / "states-0000.safetensors").stat().st_mtime_ns == first
    for file in sorted(whole.iterdir()):
        assert (torn / file.name).read_bytes() == file.read_bytes(), file.name


def test_text_of_another_run_is_refused_and_left(network, tmp_path):
    written(tmp_path, network, 2)
    before = (tmp_path / "corpus.jsonl").read_bytes()
    with pytest.raises(InputError, match="is text of another target or other options"):
        Corpus(tmp_path, {"target": "other"})
    assert (tmp_path / "corpus.jsonl").read_bytes() == before
    (tmp_path / "corpus.jsonl").write_text("nothing\n")
    with pytest.raises(InputError, match="holds no text that can be read"):
        Corpus(tmp_path, RUN)


def test_text_without_its_states_says_how_to_start_anew(network, tmp_path):
    written(tmp_path, network, 2)
    drop_states(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["corpus.jsonl"]
    with pytest.raises(InputError, match="has no hidden states any more"):
        Corpus(tmp_path, RUN).examples()


def test_a_batch_is_padded_at_its_ends_and_knows_what_the_target_wrote(network, tmp_path):
    examples = written(tmp_path, network, 6)
    batch = batch_of(examples)
    assert batch.tokens.shape[1] == batch.states.shape[1] + 1 == batch.real.shape[1] + 1
    for row, one in enumerate(examples):
        length, prompt = len(one.choices), len(one.written.prompt)
        assert batch.tokens[row, : length + 1].tolist() == list(one.written.tokens)
        assert batch.real[row].tolist() == [place < length for place in range(len(batch.real[row]))]
        wrote = batch.tokens[row, 1:][batch.own[row]].tolist()
        assert tuple(wrote) == one.written.text
        assert int(batch.own[row].nonzero()[0]) == prompt - 1


def test_every_pass_has_all_sequences_in_another_order(network, tmp_path):
    examples = written(tmp_path, network, 20)
    orders = [
        [one.written.tokens for batch in shuffled(examples, seed) for one in batch]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(one.written.tokens for one in examples)


def test_losses_over_the_tokens_that_occur_are_those_over_all_if_all_occur(network, tmp_path):
    head = network.model.get_output_embeddings().weight
    examples = written(tmp_path, network, 6)
    words = Vocabulary(examples, head)
    states, tokens = torch.randn(5, head.shape[1]), torch.tensor([4, 9, 30, 60, 96])
    over_all = torch.nn.functional.cross_entropy(states @ head.T, tokens)
    assert torch.allclose(words.cross_entropy(states, tokens), over_all)


def test_only_rows_of_tokens_that_occur_are_kept(network, tmp_path, monkeypatch):
    monkeypatch.setattr("calibration.decoding.heads.data.OTHERS", 0)
    examples = written(tmp_path, network, 2)
    words = Vocabulary(examples, network.model.get_output_embeddings().weight)
    occur = {token for one in examples for token in (*one.written.tokens, *one.choices.tolist())}
    assert words.ids.tolist() == sorted(occur)
    head = json.loads((tmp_path / "corpus.jsonl").read_text().split("\n")[0])
    assert head["run"] == RUN
