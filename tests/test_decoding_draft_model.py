"""A draft model changes how fast a text comes, never the text."""

from __future__ import annotations

import copy
import time

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from tiny_llama import tiny_network

from calibration.decoding.autoregressive import Autoregressive
from calibration.decoding.decoder import Generation, Watch, decode
from calibration.decoding.draft_model import DraftModel
from calibration.decoding.network import Network
from calibration.decoding.sampling import Sampling
from models.schema import ModelError
from models.strategies import draft_model as scenario

pytestmark = pytest.mark.extras

VOCABULARY = 17
PROMPTS = [
    [(7 * first + 3 * place + place * place) % VOCABULARY for place in range(1 + first % 9)]
    for first in range(20)
]
STOP = (3, 11)
MOST = 30


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def drafts_like_it(target: Network, noise: float) -> Network:
    """The target with noise on its head: right more often the less noise."""
    model = copy.deepcopy(target.model)
    weight = model.lm_head.weight
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        weight.add_(noise * weight.std() * torch.randn(weight.shape))
    return Network(model)


def cut_short(target: Network) -> Network:
    """The target without its last layers."""
    model = copy.deepcopy(target.model)
    del model.model.layers[1:]
    model.config.num_hidden_layers = 1
    return Network(model)


with torch.inference_mode():
    TARGET = tiny_network(vocab_size=VOCABULARY)
    DRAFTS = {
        "another": tiny_network(seed=5, vocab_size=VOCABULARY, num_hidden_layers=1),
        "itself": TARGET,
        "like it": drafts_like_it(TARGET, 0.7),
        "cut short": cut_short(TARGET),
    }


def run(decoder, prompts=PROMPTS, stop=STOP, most=MOST) -> Generation:
    watch = Watch(time.perf_counter)
    return decode(decoder, prompts, list(range(len(prompts))), most, stop, watch)


def mean_accepted(generation: Generation) -> float:
    rows = [row for step in generation.steps for row in step.rows]
    return sum(row.accepted for row in rows) / len(rows)


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    """Each prompt's own text, alone and one token a pass."""
    return [run(Autoregressive(TARGET), [prompt]).tokens[0] for prompt in PROMPTS]


@pytest.mark.parametrize("k", range(1, 7))
@pytest.mark.parametrize("draft", DRAFTS)
def test_rows_of_a_batch_get_the_text_they_get_alone_without_drafts(plain, draft, k):
    found = run(DraftModel(TARGET, DRAFTS[draft], k, "tiny"))
    assert list(found.tokens) == plain
    assert len({len(step.rows) for step in found.steps}) > 1, "no row stopped early"


@pytest.mark.parametrize("draft", DRAFTS)
def test_one_prompt_gets_its_text(plain, draft):
    for prompt, text in zip(PROMPTS, plain, strict=True):
        assert run(DraftModel(TARGET, DRAFTS[draft], 3, "tiny"), [prompt]).tokens == (text,)


def test_the_target_drafting_for_itself_is_always_right():
    found = run(DraftModel(TARGET, TARGET, 4, "tiny"))
    rows = [row for step in found.steps for row in step.rows]
    assert {(row.drafted, row.accepted, row.width) for row in rows} == {(4, 4, 5)}


def test_better_drafts_are_accepted_more_often():
    accepted = [
        mean_accepted(run(DraftModel(TARGET, drafts_like_it(TARGET, noise), 4, "tiny"), stop=()))
        for noise in (0.2, 0.7, 4.0)
    ]
    assert accepted[0] > accepted[1] > accepted[2]
    assert 0 < accepted[2] < 2 and 2 < accepted[0] < 4


def test_rows_tell_their_prompt_and_context():
    found = run(DraftModel(TARGET, DRAFTS["like it"], 3, "tiny"))
    context = [len(prompt) + 1 for prompt in PROMPTS]
    for step in found.steps:
        for row, emitted in zip(step.rows, step.emitted, strict=True):
            assert row.context == context[row.prompt]
            assert len(row.tokens) == row.accepted + 1
            context[row.prompt] += emitted
    assert context == [
        len(prompt) + len(text) for prompt, text in zip(PROMPTS, found.tokens, strict=True)
    ]


@pytest.mark.parametrize("draft", DRAFTS)
def test_both_caches_hold_what_a_prefill_of_the_text_gives(draft):
    decoder, watch = DraftModel(TARGET, DRAFTS[draft], 3, "tiny"), Watch(time.perf_counter)
    texts = [list(prompt) for prompt in PROMPTS]
    firsts = decoder.prefill(PROMPTS, range(len(PROMPTS)), watch)
    for text, token in zip(texts, firsts, strict=True):
        text.append(token)
    for _ in range(7):
        for row in decoder.step(watch):
            texts[row.prompt] += row.tokens
    held = ((TARGET, decoder._cache), (DRAFTS[draft], decoder._draft_cache))
    for network, cache in held:
        for row, text in enumerate(texts):
            length = cache.lengths[row]
            assert len(text) - 2 <= length <= len(text) - 1
            fresh = network.new_cache(1)
            network.prefill([text[:length]], fresh)
            for own, other in ((cache.keys, fresh.keys), (cache.values, fresh.values)):
                torch.testing.assert_close(
                    own[:, row, :, :length], other[:, 0, :, :length], rtol=1e-4, atol=1e-5
                )


def test_the_draft_catches_up_after_plain_steps(plain):
    decoder, watch = DraftModel(TARGET, TARGET, 4, "tiny"), Watch(time.perf_counter)
    firsts = decoder.prefill(PROMPTS, range(len(PROMPTS)), watch)
    texts, widths, accepted = [[token] for token in firsts], [], []
    for limit in (None, 0, 0, 0, 2, None, 0, None):
        decoder.limit = limit
        rows = decoder.step(watch)
        widths.append({row.width for row in rows})
        accepted.append({row.accepted for row in rows})
        for row in rows:
            texts[row.prompt] += row.tokens
    assert widths == [{5}, {1}, {1}, {1}, {3}, {5}, {1}, {5}]
    assert accepted == [{4}, {0}, {0}, {0}, {2}, {4}, {0}, {4}]
    for text, whole in zip(texts, plain, strict=True):
        assert tuple(text[: len(whole)]) == whole


def test_its_passes_are_told_apart():
    clock = iter(range(10**6))
    decoder = DraftModel(TARGET, DRAFTS["like it"], 3, "tiny")
    found = decode(decoder, PROMPTS[:2], (0, 1), 6, (), Watch(lambda: next(clock)))
    assert (found.prefill.draft_s, found.prefill.verify_s, found.prefill.sample_s) == (1, 1, 1)
    assert found.steps[0].times[:3] == (1, 1, 1)


def sampled(k: int, draft: Network) -> DraftModel:
    return DraftModel(TARGET, draft, k, "tiny", Sampling(0.8))


def test_sampled_texts_follow_their_own_seeds_whatever_else_is_in_the_batch():
    draft = DRAFTS["like it"]
    together = run(sampled(3, draft))
    assert together.tokens == run(sampled(3, draft)).tokens
    for place in range(0, len(PROMPTS), 3):
        alone = decode(
            sampled(3, draft), [PROMPTS[place]], [place], MOST, STOP, Watch(time.perf_counter)
        )
        assert alone.tokens == (together.tokens[place],)
    other = decode(
        sampled(3, draft), PROMPTS, [99] * len(PROMPTS), MOST, STOP, Watch(time.perf_counter)
    )
    assert other.tokens != together.tokens


def test_its_block_is_one_a_scenario_takes():
    greedy, drawn = DraftModel(TARGET, TARGET, 3, "draft.json"), sampled(3, TARGET)
    assert scenario.DraftModel.model_validate(greedy.strategy).k == 3
    assert scenario.DraftModel.model_validate(greedy.strategy).draft == "draft.json"
    assert (greedy.label, drawn.label) == ("draft_model", "draft_model_sampled")


def test_a_draft_of_other_tokens_is_refused():
    with pytest.raises(ModelError, match=r"vocabulary of 19, the target has 17.*'other'") as bad:
        DraftModel(TARGET, tiny_network(vocab_size=19), 2, "other")
    assert bad.value.key == "--draft"
