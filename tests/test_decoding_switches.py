"""A gate and a dynamic K on a real forward pass: drafts turn bad and good, texts stay the same."""

from __future__ import annotations

import copy
import time

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from tiny_llama import tiny_network

from calibration.decoding.adaptive import Adaptive
from calibration.decoding.autoregressive import Autoregressive
from calibration.decoding.decoder import Watch, decode
from calibration.decoding.draft_model import DraftModel
from calibration.decoding.dynamic_k import DynamicK
from calibration.decoding.network import Network
from calibration.decoding.ngram import Ngram

pytestmark = pytest.mark.extras

MOST, STOP = 40, (3,)
PROMPTS = [[place, 2 * place + 1, 7] for place in range(12)]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target() -> Network:
    return tiny_network(vocab_size=50)


@pytest.fixture
def draft(target) -> Network:
    """The target itself, until `turn` makes its worst token the best."""
    return Network(copy.deepcopy(target.model))


def turn(draft: Network) -> None:
    draft.model.lm_head.weight.neg_()


def run(decoder, prompts, most=MOST, stop=STOP):
    watch = Watch(time.perf_counter)
    return decode(decoder, prompts, range(len(prompts)), most, stop, watch)


def plain(target, prompts) -> list[tuple[int, ...]]:
    return [run(Autoregressive(target), [prompt]).tokens[0] for prompt in prompts]


def stream(decoder, draft, rows: int) -> tuple[list[tuple[int, ...]], list[str]]:
    """Texts and notes of a stream whose drafts turn bad after a third of it, good after two."""
    texts, notes = list[tuple[int, ...]](), list[str]()
    for start in range(0, len(PROMPTS), rows):
        if start in (4, 8):
            turn(draft)
        found = run(decoder, PROMPTS[start : start + rows])
        texts += found.tokens
        notes += [step.note for step in found.steps]
    return texts, notes


@pytest.mark.parametrize("rows", [1, 4])
def test_texts_stay_the_same_while_a_gate_closes_and_opens(target, draft, rows):
    inner = DraftModel(target, draft, 4, "tiny")
    decoder = Adaptive(inner, 2.0, window_tokens=20, probe_tokens=10, probe_steps=2)
    texts, notes = stream(decoder, draft, rows)
    assert texts == plain(target, PROMPTS)
    assert notes[0] == notes[-1] == "draft_model"
    assert "autoregressive" in notes


@pytest.mark.parametrize("rows", [1, 4])
def test_texts_stay_the_same_while_k_goes_down_and_up(target, draft, rows):
    decoder = DynamicK(DraftModel(target, draft, 4, "tiny"), 0.1, window_tokens=20)
    texts, notes = stream(decoder, draft, rows)
    assert texts == plain(target, PROMPTS)
    assert notes[0] == notes[-1] == "k=4"
    assert "k=1" in notes


def test_drafts_turn_within_a_text_and_the_gate_follows(target, draft):
    inner = DraftModel(target, draft, 4, "tiny")
    decoder = Adaptive(inner, 2.0, window_tokens=20, probe_tokens=10, probe_steps=2)
    watch = Watch(time.perf_counter)
    text = decoder.prefill([PROMPTS[5]], [0], watch)
    notes = []

    def steps(tokens: int) -> None:
        notes.clear()
        end = len(text) + tokens
        while len(text) < end:
            (row,) = decoder.step(watch)
            text.extend(row.tokens)
            notes.append(decoder.note)

    steps(50)
    assert set(notes) == {"draft_model"}
    turn(draft)
    steps(20)
    assert "autoregressive" in notes, "closed within the window"
    assert notes[:3] == ["draft_model"] * 3, "not at the first miss"
    steps(60)
    assert 0 < notes.count("draft_model") < notes.count("autoregressive") / 3, "probes only"
    turn(draft)
    steps(40)
    steps(40)
    assert set(notes) == {"draft_model"}
    (alone,) = run(Autoregressive(target), [PROMPTS[5]], len(text), ()).tokens
    assert tuple(text) == alone


def test_lookup_keeps_its_text_and_its_index_behind_a_gate(target):
    repeating = [[1, 2, 3, 4] * 6, list(range(20, 40)), [9] * 15]
    expected = [run(Autoregressive(target), [one], 120, ()).tokens[0] for one in repeating]
    decoder = Adaptive(Ngram(target), 1.5, window_tokens=12, probe_tokens=10, probe_steps=2)
    notes = set()
    for prompt, text in zip(repeating, expected, strict=True):
        found = run(decoder, [prompt], 120, ())
        assert found.tokens == (text,)
        notes |= {step.note for step in found.steps}
        for step in found.steps:
            assert step.note == "ngram" or step.rows[0].width == 1
    assert notes == {"ngram", "autoregressive"}


def test_lookup_drafts_no_more_than_its_limit(target):
    decoder, watch = Ngram(target, k=4), Watch(time.perf_counter)
    decoder.prefill([[1, 2, 3, 4] * 6], [0], watch)
    drafted = set()
    for limit in (None, 2, 0, None, 2, 0) * 10:
        decoder.limit = limit
        (row,) = decoder.step(watch)
        drafted.add((limit, row.drafted))
    assert {(None, 4), (2, 2), (0, 0)} <= drafted
    assert not {(0, 1), (2, 3), (2, 4)} & drafted
