"""Which earlier place of a sequence prompt lookup copies from."""

from __future__ import annotations

import random

import pytest

from calibration.decoding.ngram import NgramIndex


@pytest.mark.parametrize(
    ("tokens", "sizes", "k", "draft"),
    [
        ([1, 2, 3, 4, 1, 2], (3, 1), 3, [3, 4, 1]),
        ([1, 2, 3, 4, 1, 2], (3, 1), 9, [3, 4, 1, 2]),
        ([1, 2, 8, 1, 2, 9, 1, 2], (3, 1), 1, [8]),
        ([5, 2, 8, 1, 2, 9, 1, 2], (3, 1), 1, [9]),
        ([5, 2, 8, 1, 2, 9, 1, 2], (1, 1), 1, [8]),
        ([7, 2, 8, 2], (3, 1), 2, [8, 2]),
        ([7, 2, 8, 2], (3, 2), 2, []),
        ([5, 5, 5, 5], (3, 1), 2, [5]),
        ([1, 2, 3], (3, 1), 2, []),
        ([1], (3, 1), 2, []),
    ],
)
def test_the_longest_ngram_decides_and_its_first_occurrence(tokens, sizes, k, draft):
    assert NgramIndex(*sizes).look_up(tokens, k) == draft


def searched(tokens, longest, shortest, k):
    """What transformers does: windows from the left, sizes from the longest down."""
    for size in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for start in range(len(tokens) - size):
            if tokens[start : start + size] == tokens[-size:]:
                return tokens[start + size : start + size + k]
    return []


@pytest.mark.parametrize("seed", range(30))
def test_a_growing_index_finds_what_a_search_of_the_whole_text_finds(seed):
    draw = random.Random(seed)
    longest, shortest, k = draw.randint(2, 4), draw.randint(1, 2), draw.randint(1, 5)
    index, tokens = NgramIndex(longest, shortest), list[int]()
    for _ in range(30):
        tokens += draw.choices(range(4), k=draw.randint(1, 3))
        assert index.look_up(tokens, k) == searched(tokens, longest, shortest, k)


def test_looking_twice_at_the_same_text_finds_the_same():
    index = NgramIndex(3, 1)
    assert index.look_up([1, 2, 1, 2], 3) == index.look_up([1, 2, 1, 2], 3) == [1, 2]
