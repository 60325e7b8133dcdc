"""Bracket and halving: the largest load that passes, in few tries, and never for ever."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.planning.search import Root, largest

RANGE = {"least": 1e-3, "most": 1e5}


class Passes:
    """Loads up to a root pass; remembers what was asked."""

    def __init__(self, root: float) -> None:
        self.root, self.asked = root, list[float]()

    def __call__(self, load: float) -> bool:
        self.asked.append(load)
        return load <= self.root


@settings(max_examples=100, deadline=None)
@given(
    st.floats(1e-2, 1e4),
    st.floats(1e-3, 1e5),
    st.floats(1e-3, 0.3),
    st.sampled_from([1.01, 1.05, 2.0, 8.0]),
)
def test_the_root_is_bracketed_within_the_tolerance(
    root: float, guess: float, tolerance: float, step: float
) -> None:
    passes = Passes(root)
    found = largest(passes, guess, tolerance=tolerance, step=step, **RANGE)
    assert found.value is not None and found.failed is not None
    assert found.value <= root < found.failed <= found.value * (1 + tolerance) * (1 + 1e-12)
    assert found.evaluations == len(passes.asked) == len(set(passes.asked))
    assert {found.value, found.failed} <= set(passes.asked)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9000), st.integers(1, 9000), st.sampled_from([1e-9, 0.02]))
def test_users_are_whole_and_the_next_one_fails(root: int, guess: int, tolerance: float) -> None:
    passes = Passes(root)
    found = largest(passes, guess, tolerance=tolerance, least=1, most=10_000, whole=True)
    assert all(load == int(load) for load in passes.asked)
    assert found.value is not None and found.failed is not None
    assert found.value <= root < found.failed <= max(found.value + 1, found.value * (1 + tolerance))
    assert found.failed == found.value + 1 or tolerance > 1e-9
    assert found.evaluations == len(set(passes.asked)) <= 2 * math.log2(10_000)


def test_a_good_guess_takes_few_tries() -> None:
    far = Passes(10.0)
    largest(far, 8.0, **RANGE)
    near = Passes(10.0)
    largest(near, 9.9, step=1.05, **RANGE)
    assert len(far.asked) <= 8
    assert len(near.asked) <= 4


@pytest.mark.parametrize("guess", [1e-9, 1.0, 1e9])
def test_the_range_ends_the_search(guess: float) -> None:
    assert largest(lambda load: True, guess, **RANGE)[::2] == (RANGE["most"], None)
    assert largest(lambda load: False, guess, **RANGE)[::2] == (None, RANGE["least"])
    assert largest(lambda load: True, guess, least=3, most=3) == Root(3, 1, None)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.floats(1e-3, 1e5), st.booleans())
def test_chance_never_makes_it_go_on_for_ever(random, guess: float, whole: bool) -> None:
    """Any answers at all: it ends soon, with a load that passed below one that failed."""
    said: dict[float, bool] = {}
    asked = itertools.count()

    def passes(load: float) -> bool:
        assert next(asked) < 60
        said[load] = random.random() < 0.5
        return said[load]

    found = largest(passes, guess, least=1, most=1e5, whole=whole)
    assert found.value is None or said[found.value]
    if found.failed is not None and found.value is not None:
        assert not said[found.failed]
        assert found.value < found.failed <= max(found.value + whole, 1.02001 * found.value)


@pytest.mark.parametrize(
    "wrong", [{"least": 0.0}, {"most": 1e-4}, {"tolerance": 0.0}, {"step": 1.0}]
)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs 0 < least <= most"):
        largest(lambda load: True, 1.0, **{**RANGE, **wrong})
