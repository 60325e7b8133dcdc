"""Training of parts on a tiny target: it helps, it resumes, and its accuracies are true."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from trained_cases import learnable_network, written

from calibration.decoding.heads import train
from calibration.decoding.heads.data import Vocabulary, batch_of
from calibration.decoding.heads.modules import Eagle
from calibration.decoding.heads.parts import DraftPart, EaglePart, MedusaPart, Pace
from calibration.decoding.heads.train import Training

pytestmark = pytest.mark.extras

PARTS = ("medusa", "eagle", "draft")


@pytest.fixture(scope="module")
def network():
    return learnable_network()


@pytest.fixture(scope="module")
def examples(network, tmp_path_factory):
    return written(tmp_path_factory.mktemp("text"), network)


@pytest.fixture
def make(network, examples):
    words = Vocabulary(examples, network.model.get_output_embeddings().weight)
    makers = {
        "medusa": lambda: MedusaPart(network, words, 3),
        "eagle": lambda: EaglePart(network, words, 0),
        "draft": lambda: DraftPart(network, words, 1),
    }

    def one(name: str, rate: float = 0.01, passes: int = 4):
        made = makers[name]()
        made.pace = Pace(rate, passes)
        return made

    return one


def weights_of(part) -> list[bytes]:
    return [one.detach().numpy().tobytes() for one in part.weights().values()]


@pytest.mark.parametrize("name", PARTS)
def test_training_lowers_held_out_loss_and_guesses_better(name, make, examples, tmp_path):
    training = Training(make(name), examples, tmp_path / "x")
    before = sum(training.accuracies().values())
    state = training.run(60)
    assert state.stopped in ("passes", "held-out loss")
    assert state.best_loss < 0.97 * state.first_loss
    assert training.held_out_loss() == pytest.approx(state.best_loss)
    assert sum(training.accuracies().values()) > before


@pytest.mark.parametrize("name", PARTS)
def test_the_target_itself_is_left_as_it_is(name, make, examples, network, tmp_path):
    before = {key: one.clone() for key, one in network.model.state_dict().items()}
    Training(make(name, passes=1), examples, tmp_path / "x").run(60)
    for key, one in network.model.state_dict().items():
        assert torch.equal(one, before[key]), key


@pytest.mark.parametrize("name", PARTS)
def test_an_interrupted_training_goes_on_to_the_same_bytes(
    name, make, examples, tmp_path, monkeypatch
):
    whole, first, second = (make(name, passes=2) for _ in range(3))
    monkeypatch.setattr(train, "CHECKPOINT_S", 0.0)
    expected = Training(whole, examples, tmp_path / "whole").run(60)

    def interrupt(done: int, _: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Training(first, examples, tmp_path / "torn").run(60, interrupt)
    again = Training(second, examples, tmp_path / "torn")
    assert again.state.step == 5
    state = again.run(60)
    assert (state.step, state.best_loss) == (expected.step, expected.best_loss)
    assert weights_of(second) == weights_of(whole)


def test_a_training_kept_for_another_part_is_begun_anew(make, examples, tmp_path):
    Training(make("medusa"), examples, tmp_path / "x", run={"heads": 2}).run(60)
    assert Training(make("medusa"), examples, tmp_path / "x", run={"heads": 2}).state.step
    assert not Training(make("medusa"), examples, tmp_path / "x", run={"heads": 3}).state.step


def test_a_training_ends_when_its_time_is_over_with_the_best_weights_so_far(
    make, examples, tmp_path
):
    ticks = iter(range(1000))
    training = Training(make("medusa"), examples, tmp_path / "x", now=lambda: float(next(ticks)))
    state = training.run(12)
    assert state.stopped == "time"
    assert 0 < state.step < training.steps
    assert state.spent_s >= 12
    assert training.held_out_loss() == pytest.approx(state.best_loss)


def test_a_training_ends_when_held_out_loss_only_rises(make, examples, tmp_path):
    part = make("medusa", rate=3.0, passes=30)
    training = Training(part, examples, tmp_path / "x")
    state = training.run(60)
    assert state.stopped == "held-out loss"
    assert state.step < training.steps
    assert training.held_out_loss() == pytest.approx(state.best_loss)


def test_accuracies_of_medusa_heads_are_those_of_guesses_one_by_one(network, make, examples):
    part = make("medusa")
    part.module.blocks[1].weight.data.normal_(generator=torch.Generator().manual_seed(1))
    few = examples[:5]
    for head, (right, guesses) in enumerate(part.right(batch_of(few))):
        pairs = [
            (one.states[place].float(), one.written.tokens[place + 2 + head])
            for one in few
            for place in range(len(one.written.prompt) - 1, len(one.choices) - 1 - head)
        ]
        said = [int(network.logits(part.module(state)[head]).argmax()) for state, _ in pairs]
        assert guesses == len(pairs)
        assert right == sum(a == b for a, (_, b) in zip(said, pairs, strict=True))


def test_accuracies_of_an_eagle_layer_are_those_of_chains_decoded_one_by_one(
    network, make, examples
):
    part = make("eagle")
    few = examples[:3]
    eagle, sums = Eagle(network, part.module), [[0, 0] for _ in part.labels]
    for one in few:
        tokens, states = one.written.tokens, one.states[None].float()
        for place in range(len(one.written.prompt) - 1, len(one.choices)):
            cache = eagle.new_cache(1)
            feature = eagle.features([tokens[1 : place + 2]], states[:, : place + 1], cache)[:, -1:]
            cache.commit([range(place + 1)])
            for step, total in enumerate(sums):
                if place + 2 + step >= len(tokens):
                    break
                total[0] += int(network.logits(feature).argmax()) == tokens[place + 2 + step]
                total[1] += 1
                feature = eagle.features([[tokens[place + 2 + step]]], feature, cache)
                cache.commit([[0]])
    found = part.right(batch_of(few))
    assert [guesses for _, guesses in found] == [guesses for _, guesses in sums]
    for (right, _), (expected, _) in zip(found, sums, strict=True):
        assert abs(right - expected) <= 1


def test_a_draft_of_nearly_all_layers_says_nearly_what_its_target_says(network, examples, make):
    words = Vocabulary(examples, network.model.get_output_embeddings().weight)
    shares = []
    for layers in (1, 3):
        ((right, guesses),) = DraftPart(network, words, layers).right(batch_of(examples[:8]))
        shares.append(right / guesses)
    assert shares[1] == 1.0 > shares[0]
