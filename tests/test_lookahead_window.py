"""Lookahead decoding: where the tokens of its pass stand, its pool, and what it accepts."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from streams import accepted, generate, one_torch_thread, plain, prompts_of
from tiny_llama import tiny_network

from calibration.decoding.decoder import Watch
from calibration.decoding.lookahead import Lookahead, Pool, layout

pytestmark = pytest.mark.extras

SIZE = 31


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def network():
    return tiny_network(seed=1, vocab_size=SIZE)


@pytest.fixture(scope="module")
def looping():
    """Its next token depends on the last one almost alone, so its texts repeat themselves."""
    network = tiny_network(seed=2, vocab_size=SIZE)
    for layer in network.model.get_decoder().layers:
        layer.self_attn.o_proj.weight.mul_(0.001)
        layer.mlp.down_proj.weight.mul_(0.001)
    return network


def test_the_pool_keeps_the_most_recent_ngrams_of_each_first_token():
    pool = Pool(2)
    for gram in ((1, 2, 3), (1, 4, 5), (2, 0, 0), (1, 2, 3), (1, 6, 7)):
        pool.add(gram)
    assert pool.guesses(1) == [(2, 3), (6, 7)]
    assert pool.guesses(2) == [(0, 0)]
    assert pool.guesses(3) == []


@pytest.mark.parametrize(("w", "n", "found"), [(3, 4, 2), (1, 2, 1), (4, 3, 0), (2, 5, 3)])
def test_each_token_of_a_pass_sees_its_own_line_and_stands_where_it_would_alone(
    w, n, found, network
):
    depths, seen = layout(w, n, found)
    count = (w + found) * (n - 1)
    assert len(depths) == count
    tokens = [(5 * place + 2) % SIZE for place in range(count)]
    prompt = prompts_of(SIZE)[4]
    cache = network.new_cache(1)
    network.prefill([prompt], cache)
    together = network.hidden([tokens], cache, depths, seen)[0]
    for place in range(count):
        level, column = divmod(place, w)
        if level < n - 1:
            line = [*tokens[: column + 1], *(tokens[up * w + column] for up in range(1, level + 1))]
        else:
            start = place - (place - w * (n - 1)) % (n - 1)
            line = [tokens[0], *tokens[start : place + 1]]
        alone = network.hidden([[*prompt, *line]], network.new_cache(1))[0, -1]
        assert torch.allclose(together[place], alone, atol=1e-3)


def test_a_step_verifies_window_and_found_guesses(looping):
    w, n, g = 6, 4, 5
    prompt = prompts_of(SIZE)[1]
    decoder, watch = Lookahead(looping, w, n, g), Watch(time.perf_counter)
    decoder.prefill([prompt], [0], watch)
    found = set()
    for _ in range(20):
        guesses = len(decoder._pool.guesses(decoder.stream.tokens[-1]))
        (row,) = decoder.step(watch)
        assert row.width == (w + guesses) * (n - 1)
        assert row.drafted == row.width - 1
        assert guesses or not row.accepted
        found.add(guesses)
    assert 0 in found
    assert len(found) > 1


def test_ngrams_of_a_looping_text_are_found_and_accepted_whole(looping):
    for prompt in prompts_of(SIZE):
        run = generate(Lookahead(looping, 8, 4, 8), prompt, 48)
        assert run.tokens[0] == plain(looping, prompt, 48)
        assert max(accepted(run)) == 3
        assert sum(accepted(run)) / len(run.steps) > 1.5


def test_ngrams_come_from_columns_of_the_window_once_all_levels_are_generated(looping):
    decoder, watch = Lookahead(looping, 3, 4, 9), Watch(time.perf_counter)
    decoder.prefill([prompts_of(SIZE)[0]], [0], watch)
    for _ in range(2):
        decoder.step(watch)
        assert not decoder._pool._grams
    window = [list(level) for level in decoder._window]
    window[0][0] = decoder.stream.tokens[-1]
    decoder.step(watch)
    new = decoder._window[-1]
    assert decoder._window[:-1] == window[1:]
    for column in range(3):
        first, *rest = (level[column] for level in window)
        assert (*rest, new[column]) in decoder._pool.guesses(first)


def test_the_best_guess_wins_and_the_places_are_its_own(network):
    decoder = Lookahead(network, 2, 4, 3)
    guesses = [(5, 6, 9), (5, 6, 7), (4, 6, 7)]
    window = [5, 0, 0, 0, 0, 0]
    after_guesses = [6, 7, 1, 6, 7, 8, 0, 0, 0]
    places, emitted = decoder._accept(guesses, [*window, *after_guesses])
    assert places == [0, 9, 10, 11]
    assert emitted == [5, 6, 7, 8]
    assert decoder._accept(guesses[2:], [*window, 6, 7, 8]) == ([0], [5])


def test_window_and_pool_start_anew_with_each_prompt_and_by_its_seed(looping):
    decoder, prompt = Lookahead(looping, 4, 3, 4), prompts_of(SIZE)[3]
    first = generate(decoder, prompt, 30, seed=1)
    generate(decoder, prompts_of(SIZE)[8], 30, seed=2)
    again = generate(decoder, prompt, 30, seed=1)
    assert [step.rows for step in first.steps] == [step.rows for step in again.steps]
    decoder.prefill([prompt], [1], watch := Watch(time.perf_counter))
    window = decoder._window
    decoder.prefill([prompt], [2], watch)
    assert decoder._window != window
