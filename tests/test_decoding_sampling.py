"""Speculative sampling keeps the target's distribution, exactly and over thousands of texts."""

from __future__ import annotations

import itertools
import math
import time

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from tiny_llama import tiny_network

from calibration.decoding import draft_model, sampling
from calibration.decoding.decoder import Watch, decode
from calibration.decoding.draft_model import DraftModel
from calibration.decoding.sampling import Sampling, accept, generators, kept_shares, left_over

pytestmark = pytest.mark.extras

TOO_UNLIKELY = 1e-3


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def shares(seed: int, *sizes: int, spread: float = 2.0) -> torch.Tensor:
    drawn = torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
    return torch.softmax(spread * drawn, dim=-1)


def law_of_next_tokens(target: torch.Tensor, draft: torch.Tensor) -> torch.Tensor:
    """Law of the first K + 1 tokens, over all drafts; levels do not depend on earlier tokens.

    A refused level ends the step: the levels after it are the target's own.
    """
    k, vocabulary = draft.shape
    law = torch.zeros((vocabulary,) * (k + 1), dtype=torch.float64)
    for drafted in itertools.product(range(vocabulary), repeat=k):
        drawn = math.prod(float(draft[level, token]) for level, token in enumerate(drafted))
        kept = kept_shares(target[:k], draft, drafted).tolist()
        for level in range(k + 1):
            reached = drawn * math.prod(kept[:level])
            if level < k:
                shares_here, reached = (
                    left_over(target[level], draft[level]),
                    reached * (1 - kept[level]),
                )
            else:
                shares_here = target[k].double()
            tail = torch.ones((), dtype=torch.float64)
            for later in (shares_here, *target[level + 1 :].double()):
                tail = tail[..., None] * later
            law[drafted[:level]] += reached * tail
    return law


def wanted_law(target: torch.Tensor) -> torch.Tensor:
    law = torch.ones((), dtype=torch.float64)
    for level in target.double():
        law = law[..., None] * level
    return law


@pytest.mark.parametrize("vocabulary", [4, 5, 6])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("spread", [0.5, 2.0, 8.0])
def test_the_law_of_a_step_is_the_targets(vocabulary, k, spread):
    target = shares(1, k + 1, vocabulary, spread=spread)
    draft = shares(2, k, vocabulary, spread=spread)
    law = law_of_next_tokens(target, draft)
    torch.testing.assert_close(law, wanted_law(target), rtol=0, atol=1e-6)


def test_tokens_without_probability_on_one_side_or_both_are_safe():
    target = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    draft = torch.tensor([[0.5, 0.0, 0.5, 0.0]])
    torch.testing.assert_close(law_of_next_tokens(target, draft), wanted_law(target))
    assert kept_shares(target[:1].expand(4, 4), draft.expand(4, 4), range(4)).tolist() == [
        1.0,
        1.0,
        0.0,
        0.0,
    ]
    assert left_over(target[0], draft[0]).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_draft_that_is_the_target_is_always_accepted():
    target = shares(3, 5, 50)
    (generator,) = generators([0], "cpu")
    for _ in range(300):
        drafted = sampling.draw(target[:4], [generator] * 4)
        assert accept(target, target[:4], drafted, generator)[0] == 4
    assert left_over(target[0], target[0]).tolist() == target[0].double().tolist()


def test_no_draft_is_plain_sampling():
    target = shares(4, 1, 6)
    first, second = generators([7, 7], "cpu")
    assert accept(target, target[:0], (), first) == (0, sampling.draw(target, [second])[0])


def chance(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Chance of a chi-square as large, cells that expect fewer than five put together."""
    many = expected >= 5
    seen, hoped = (
        torch.cat((one[many], one[~many].sum()[None])).double() for one in (counts, expected)
    )
    seen, hoped = seen[hoped > 0], hoped[hoped > 0]
    distance = ((seen - hoped) ** 2 / hoped).sum()
    freedom = torch.tensor((len(hoped) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, distance / 2))


def test_accepting_draws_what_the_law_says():
    draws, k, vocabulary = 20_000, 2, 4
    target, draft = shares(5, k + 1, vocabulary), shares(6, k, vocabulary)
    (generator,) = generators([1], "cpu")
    counts = torch.zeros(k + 1, vocabulary)
    expected = torch.zeros(k + 1, vocabulary)
    for _ in range(draws):
        drafted = sampling.draw(draft, [generator] * k)
        accepted, token = accept(target, draft, drafted, generator)
        counts[accepted, token] += 1
    reached = 1.0
    for level in range(k):
        overlap = float(torch.minimum(target[level], draft[level]).sum())
        expected[level] = draws * reached * (1 - overlap) * left_over(target[level], draft[level])
        reached *= overlap
    expected[k] = draws * reached * target[k]
    assert chance(counts.flatten(), expected.flatten()) > TOO_UNLIKELY


VOCABULARY, TOKENS, PROMPT, TEMPERATURE = 5, 3, (1, 4, 2), 0.7
TEXTS = 2500


def law_of_texts(network) -> torch.Tensor:
    """Probability of each text after the prompt, from the model itself."""
    texts = list(itertools.product(range(VOCABULARY), repeat=TOKENS))
    logits = network.model(torch.tensor([[*PROMPT, *text] for text in texts])).logits
    each = torch.softmax(logits[:, len(PROMPT) - 1 : -1].double() / TEMPERATURE, dim=-1)
    chosen = each.gather(-1, torch.tensor(texts)[..., None])[..., 0]
    return chosen.prod(dim=-1)


def count_texts(decoder) -> torch.Tensor:
    counts = torch.zeros(VOCABULARY**TOKENS)
    rows = 500
    for start in range(0, TEXTS, rows):
        seeds = range(start, start + rows)
        watch = Watch(time.perf_counter)
        for text in decode(decoder, [PROMPT] * rows, seeds, TOKENS, (), watch).tokens:
            counts[sum(token * VOCABULARY**place for place, token in enumerate(text[::-1]))] += 1
    return counts


def chance_of_texts(k: int) -> float:
    target = tiny_network(vocab_size=VOCABULARY, num_hidden_layers=1)
    draft = tiny_network(seed=8, vocab_size=VOCABULARY, num_hidden_layers=1)
    drawn = Sampling(TEMPERATURE)
    decoder = DraftModel(target, draft, k, "tiny", drawn)
    return chance(count_texts(decoder), TEXTS * law_of_texts(target))


@pytest.mark.parametrize("k", [1, 2])
def test_sampled_texts_are_as_likely_as_the_target_says(k):
    assert chance_of_texts(k) > TOO_UNLIKELY


def best_is_accepted(target, draft, drafted, generator):
    level = 0
    while level < len(drafted) and int(target[level].argmax()) == drafted[level]:
        level += 1
    return level, sampling.draw(target[level : level + 1], [generator])[0]


@pytest.mark.parametrize("wrong", ["no residual", "equal argmax"])
def test_a_wrong_rule_would_be_noticed(monkeypatch, wrong):
    if wrong == "no residual":
        monkeypatch.setattr(sampling, "left_over", lambda target, draft: target)
    else:
        monkeypatch.setattr(draft_model, "accept", best_is_accepted)
    assert chance_of_texts(2) < TOO_UNLIKELY
