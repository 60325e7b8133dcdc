"""Blocks with addresses: stretches of adjacent ones, and free ones of no use to anybody."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sim.engine.kv_runs import AddressPool
from sim.engine.path import Path, Totals
from sim.engine.request import Request


def test_a_run_is_the_first_stretch_that_is_long_enough():
    pool = AddressPool(20, random.Random(1))
    assert pool.take_run(3) == 0
    pool.take(2)
    assert pool.take_run(3) == 5
    pool.give_run(0, 3)
    assert pool.take_run(4) == 8
    assert pool.take_run(2) == 0
    pool.check()


def test_ordinary_blocks_are_those_free_for_longest():
    pool = AddressPool(6, random.Random(1))
    assert pool.take_run(3) == 0
    pool.give_run(0, 3)
    pool.take(3)
    assert pool.take_run(3) == 0


def test_free_blocks_in_short_stretches_are_of_no_use():
    pool = AddressPool(12, random.Random(1))
    for start in (0, 4, 8):
        assert pool.take_run(3) == start
        pool.take_run(1)
    for start in (0, 4, 8):
        pool.give_run(start, 3)
    assert pool.free == 9
    assert pool.unusable(3) == 0
    assert pool.unusable(4) == 9
    assert pool.take_run(4) is None
    assert pool.free == 9


def request(number: int) -> Request:
    path = Path(np.zeros((4, 0), dtype=np.int64))
    return Request(number, 4, 4, path, Totals(0, 0, 0))


def test_a_request_gives_back_the_blocks_it_took_at_admission():
    pool, first, second = AddressPool(8, random.Random(1)), request(0), request(1)
    for owner in (first, second):
        pool.take(4)
        pool.own(owner, 0)
    pool.part(first)
    pool.release(4)
    pool.parted()
    assert pool.take_run(4) == 0
    pool.check()


class Addresses(RuleBasedStateMachine):
    """Any order of taking and giving back keeps every block in one place."""

    @initialize(blocks=st.integers(4, 60))
    def make(self, blocks):
        self.pool = AddressPool(blocks, random.Random(1))
        self.runs: list[tuple[int, int]] = []
        self.owners: list[tuple[Request, int]] = []
        self.loose = 0

    @rule(count=st.integers(0, 9))
    def grow(self, count):
        count = min(count, self.pool.free)
        self.pool.take(count)
        self.loose += count

    @rule(count=st.integers(0, 9))
    def shrink(self, count):
        count = min(count, self.loose)
        self.pool.release(count)
        self.loose -= count

    @rule(count=st.integers(1, 9))
    def admit(self, count):
        count, before = min(count, self.pool.free), self.pool.loose()
        owner = request(len(self.owners))
        self.pool.take(count)
        self.pool.own(owner, before)
        self.owners.append((owner, count))

    @rule(left=st.integers(0, 3))
    def depart(self, left):
        """Some of its blocks stay in use, as those of a prefix others share."""
        if self.owners:
            owner, count = self.owners.pop()
            back = max(count - left, 0)
            self.pool.part(owner)
            self.pool.release(back)
            self.pool.parted()
            self.loose += count - back

    @rule(count=st.integers(1, 9))
    def run(self, count):
        start = self.pool.take_run(count)
        if start is None:
            assert self.pool.unusable(count) == self.pool.free
        else:
            self.runs.append((start, count))

    @rule(which=st.integers(0, 20))
    def give(self, which):
        if self.runs:
            self.pool.give_run(*self.runs.pop(which % len(self.runs)))

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        held = self.loose + sum(count for _, count in (*self.runs, *self.owners))
        assert held + self.pool.free == self.pool.total
        unusable = [self.pool.unusable(count) for count in (1, 3, 9, 100)]
        assert unusable == sorted(unusable)
        assert unusable[0] == 0
        assert unusable[-1] == self.pool.free


TestAddresses = Addresses.TestCase
TestAddresses.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_blocks_given_back_by_nobody_in_particular_are_drawn_alike_every_time(count):
    def addresses(seed: int = 1) -> list[int | None]:
        pool = AddressPool(40, random.Random(seed))
        pool.take(40)
        pool.release(count)
        return [pool.take_run(1) for _ in range(count)]

    assert addresses() == addresses()
    assert addresses() != addresses(2)
