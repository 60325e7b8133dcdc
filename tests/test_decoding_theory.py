"""Cache, masks and plain decoding against the same tokens run all over again."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.stats import chisquare

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'decoding'")

import torch
from recomputed import VOCABULARY, afresh, next_shares, tiny_llama

from calibration.decoding.autoregressive import Autoregressive
from calibration.decoding.cache import STEP_TOKENS, KvCache
from calibration.decoding.decoder import Watch, decode
from calibration.decoding.network import Network, attention_mask
from calibration.decoding.sampling import Sampling, generators

pytestmark = pytest.mark.extras

near = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model():
    return tiny_llama()


def still() -> float:
    return 0.0


# A tree of new tokens: parents[i] < i, None hangs on the last token of the row.

Parents = list[int | None]


def random_tree(random: np.random.Generator, size: int) -> Parents:
    return [None if (up := int(random.integers(-1, i))) < 0 else up for i in range(size)]


def line(parents: Parents, node: int | None) -> list[int]:
    """From the root to a node."""
    return [] if node is None else [*line(parents, parents[node]), node]


def depths_of(parents: Parents) -> list[int]:
    return [len(line(parents, node)) - 1 for node in range(len(parents))]


def seen_of(parents: Parents):
    seen = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for node in range(len(parents)):
        seen[node, line(parents, node)] = True
    return seen


class Program:
    """Random use of a cache, beside lists of the tokens that it ought to hold."""

    def __init__(self, model, seed: int, lengths: tuple[int, int]) -> None:
        self.model, self.network = model, Network(model)
        self.random = np.random.default_rng(seed)
        self.rows = [self.some(n) for n in self.random.integers(*lengths, 4)]
        self.cache = self.network.new_cache(4)
        for row, states in zip(self.rows, self.network.prefill(self.rows, self.cache), strict=True):
            near(states[0], afresh(model, row))

    def some(self, n: int) -> list[int]:
        return self.random.integers(0, VOCABULARY, n).tolist()

    def chain(self) -> None:
        """New tokens in a line, of which a row keeps the first few."""
        new = int(self.random.integers(1, 6))
        tokens = [self.some(new) for _ in self.rows]
        self.compare(tokens, list(range(-1, new - 1)), self.network.hidden(tokens, self.cache))
        kept = self.random.integers(0, new + 1, len(self.rows)).tolist()
        self.keep(tokens, [list(range(n)) for n in kept])

    def tree(self) -> None:
        """New tokens as a tree, of which a row keeps one way down."""
        parents = random_tree(self.random, int(self.random.integers(1, 9)))
        tokens = [self.some(len(parents)) for _ in self.rows]
        seen = seen_of(parents)
        hidden = self.network.hidden(tokens, self.cache, depths_of(parents), seen)
        self.compare(tokens, parents, hidden)
        ends = self.random.integers(-1, len(parents), len(self.rows)).tolist()
        self.keep(tokens, [line(parents, end) if end >= 0 else [] for end in ends])

    def rejected(self) -> None:
        """New tokens that nobody commits."""
        self.network.hidden([self.some(3) for _ in self.rows], self.cache)

    def cut(self) -> None:
        lengths = [int(self.random.integers(1, len(row) + 3)) for row in self.rows]
        self.cache.cut(lengths)
        self.rows = [row[:most] for row, most in zip(self.rows, lengths, strict=True)]

    def level(self) -> None:
        shortest = min(map(len, self.rows))
        self.cache.cut([shortest] * len(self.rows))
        self.rows = [row[:shortest] for row in self.rows]

    def retain(self) -> None:
        """Fewer rows, in any order; the last two stay."""
        size = max(2, len(self.rows) - int(self.random.integers(0, 2)))
        chosen = self.random.permutation(len(self.rows))[:size].tolist()
        self.cache.retain(chosen)
        self.rows = [self.rows[row] for row in chosen]

    def compare(self, tokens, parents, hidden) -> None:
        up = [None if parent is None or parent < 0 else parent for parent in parents]
        for row, mine, states in zip(self.rows, tokens, hidden, strict=True):
            for node, state in enumerate(states):
                way = [mine[one] for one in line(up, node)]
                near(state, afresh(self.model, row + way)[-1])

    def keep(self, tokens, kept) -> None:
        self.cache.commit(kept)
        for row, mine, places in zip(self.rows, tokens, kept, strict=True):
            row += [mine[place] for place in places]
        assert self.cache.lengths == [len(row) for row in self.rows]


@pytest.mark.parametrize("seed", range(8))
def test_a_cache_after_any_use_is_one_of_the_kept_tokens_alone(model, seed):
    lengths = (STEP_TOKENS - 16, STEP_TOKENS - 4) if seed < 2 else (1, 12)
    program = Program(model, seed, lengths)
    verbs = ["chain", "tree", "chain", "tree", "rejected", "cut", "level", "retain"]
    for verb in program.random.choice(verbs, 25).tolist():
        getattr(program, verb)()
    program.chain()


def test_a_cache_grows_with_what_it_holds(model):
    network, random = Network(model), np.random.default_rng(0)
    rows = [random.integers(0, VOCABULARY, n).tolist() for n in (250, 3)]
    cache = network.new_cache(2)
    network.prefill(rows, cache)
    for new in (20, 400, 1):
        tokens = [random.integers(0, VOCABULARY, new).tolist() for _ in rows]
        hidden = network.hidden(tokens, cache)
        cache.commit([range(new)] * 2)
        for row, mine, states in zip(rows, tokens, hidden, strict=True):
            row += mine
            near(states, afresh(model, row)[-new:])
    assert cache.lengths == [671, 424]
    assert cache.keys.shape == cache.values.shape and cache.keys.shape[3] >= 671


def test_a_prompt_longer_than_a_new_cache_fits(model):
    network, prompts = Network(model), [[5] * 3, [7, 1] * 300]
    cache = network.new_cache(2)
    states = network.prefill(prompts, cache)
    near(states[0][0], afresh(model, prompts[0]))
    near(states[1][0], afresh(model, prompts[1]))
    assert cache.lengths == [3, 600]


# Masks


def cache_of(lengths):
    keys = torch.zeros(1, len(lengths), 1, max(lengths) + 16, 2)
    return KvCache(keys, keys.clone(), lengths)


@pytest.mark.parametrize("seed", range(20))
def test_a_new_token_sees_its_row_and_its_own_line_and_nothing_else(seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 6, 3).tolist() if seed % 3 else [4, 4]
    new = int(random.integers(1, 7))
    parents = random_tree(random, new) if seed % 2 else [None, *range(new - 1)]
    mask = attention_mask(cache_of(lengths), new, seen_of(parents) if seed % 2 else None)
    if mask is None:
        assert len(set(lengths)) == 1 and (new == 1 or lengths[0] == 0)
        return
    assert mask.shape == (len(lengths), 1, new, max(lengths) + new) and mask.dtype == torch.bool
    for row, length in enumerate(lengths):
        for node in range(new):
            sees = {*range(length), *(length + one for one in line(parents, node))}
            assert set(torch.nonzero(mask[row, 0, node]).ravel().tolist()) == sees


def test_what_a_token_does_not_see_does_not_change_it(model):
    """Each new token of a tree is replaced in turn, and the others looked at."""
    network, parents = Network(model), [None, None, 0, 0, 2, 1]
    cache = network.new_cache(2)
    network.prefill([[1, 2, 3], [4]], cache)
    tokens = [[5, 6, 7, 8, 9, 10]] * 2
    how = (cache, depths_of(parents), seen_of(parents))
    before = network.hidden(tokens, *how)
    for changed in range(6):
        other = [[*row[:changed], 20, *row[changed + 1 :]] for row in tokens]
        moved = (network.hidden(other, *how) - before).abs().amax(dim=2) > 1e-9
        sees = [changed in line(parents, node) for node in range(6)]
        assert moved.tolist() == [sees, sees]


# Plain decoding

PROMPTS = [[1, 2, 3, 4, 5], [7, 8], [9] * 270, [3, 3, 1], [11]]


def texts(model, prompts, seeds, new=24, stop=(), sampling=None):
    decoder = Autoregressive(Network(model), sampling)
    return decode(decoder, prompts, seeds, new, set(stop), Watch(still))


def test_greedy_texts_are_those_of_transformers_in_a_batch_and_alone(model):
    free = texts(model, PROMPTS, range(5)).tokens
    stop = [free[0][6], free[2][11]]
    together = texts(model, PROMPTS, range(5), stop=stop)
    ways = {"do_sample": False, "eos_token_id": stop, "pad_token_id": 0, "max_new_tokens": 24}
    for number, prompt in enumerate(PROMPTS):
        (alone,) = texts(model, [prompt], [number], stop=stop).tokens
        theirs = model.generate(torch.tensor([prompt]), **ways)[0, len(prompt) :].tolist()
        assert list(together.tokens[number]) == list(alone) == theirs
    lengths = [len(text) for text in together.tokens]
    assert len(set(lengths)) > 1, "some stop early, or this says little about those that stay"
    for step in together.steps:
        for row in step.rows:
            assert row.drafted == row.accepted == 0 and row.width == len(row.tokens) == 1
    for number, prompt in enumerate(PROMPTS):
        mine = [row.context for step in together.steps for row in step.rows if row.prompt == number]
        assert mine == list(range(len(prompt) + 1, len(prompt) + lengths[number]))


def test_a_sampled_text_depends_on_its_seed_and_not_on_its_neighbours(model):
    hot = Sampling(1.3)
    together = texts(model, PROMPTS, [4, 5, 6, 7, 8], stop=(2,), sampling=hot)
    for number, prompt in enumerate(PROMPTS):
        (alone,) = texts(model, [prompt], [4 + number], stop=(2,), sampling=hot).tokens
        assert together.tokens[number] == alone
    backwards = texts(model, PROMPTS[::-1], [8, 7, 6, 5, 4], stop=(2,), sampling=hot)
    assert backwards.tokens[::-1] == together.tokens
    again = texts(model, PROMPTS, [14, 15, 16, 17, 18], stop=(2,), sampling=hot)
    assert again.tokens != together.tokens


def test_rows_that_stay_in_another_order_go_on_as_if_alone(model):
    hot, watch = Sampling(0.9), Watch(still)
    decoder = Autoregressive(Network(model), hot)
    first = decoder.prefill(PROMPTS, range(5), watch)
    second = [row.tokens[0] for row in decoder.step(watch)]
    decoder.retain([3, 0, 2])
    third = {row.prompt: row.tokens[0] for row in decoder.step(watch)}
    assert list(third) == [3, 0, 2]
    for number, prompt in enumerate(PROMPTS):
        (alone,) = texts(model, [prompt], [number], new=3, sampling=hot).tokens
        assert alone[:2] == (first[number], second[number])
        assert number not in third or alone[2] == third[number]


def fits(found, expected) -> float:
    """p-value of a chi-square test, classes expected under five times in one."""
    rare = expected < 5
    observed = np.append(found[~rare], found[rare].sum())
    shares = np.append(expected[~rare], expected[rare].sum())
    full = shares > 0
    return float(chisquare(observed[full], shares[full]).pvalue)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_chosen_tokens_are_as_frequent_as_the_softmax_says(temperature):
    n, logits = 6000, torch.tensor([[1.0, -0.5, 0.3, 2.0, -3.0, 0.0]])
    chosen = Sampling(temperature).choose(logits.repeat(n, 1), generators(range(n), "cpu"))
    shares = torch.softmax(logits[0].double() / temperature, 0).numpy()
    assert fits(np.bincount(chosen, minlength=6), n * shares) > 1e-3
    (stream,) = generators([1], "cpu")
    one_after_another = [Sampling(temperature).choose(logits, [stream])[0] for _ in range(n)]
    assert fits(np.bincount(one_after_another, minlength=6), n * shares) > 1e-3


def test_two_sampled_tokens_are_as_frequent_as_their_shares_multiplied(model):
    n, prompt, temperature = 1200, [4, 9], 1.5
    found = texts(model, [prompt] * n, range(n), new=2, sampling=Sampling(temperature)).tokens
    first = next_shares(model, prompt, temperature)
    later = [next_shares(model, [*prompt, token], temperature) for token in range(VOCABULARY)]
    expected = (first[:, None] * torch.stack(later)).numpy()
    pairs = np.bincount([a * VOCABULARY + b for a, b in found], minlength=VOCABULARY**2)
    assert fits(pairs, n * expected.ravel()) > 1e-3
    # As a control: the second does depend on the first.
    apart = np.outer(expected.sum(axis=1), expected.sum(axis=0)).ravel()
    assert fits(pairs, n * apart) < 1e-6
