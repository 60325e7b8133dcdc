"""The loop around every decoder, driven by scripts: who stops where, and where time goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.decoding.decoder import Row, Times, Watch, decode


class Clock:
    """Stands still until told."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


class Scripted:
    """Emits what it is told, a list of steps a prompt; `log` says what it was asked."""

    label, most_rows, note = "scripted", 64, ""
    strategy: dict[str, Any] = {"kind": "scripted"}  # noqa: RUF012

    def __init__(self, first, scripts, clock=None):
        self.first, self.scripts, self.clock = first, scripts, clock or Clock()
        self.log: list[Any] = []

    def prefill(self, prompts, seeds, watch):
        self.log.append(("prefill", [list(prompt) for prompt in prompts], list(seeds)))
        self.clock.pass_s(1.0)
        with watch.part("verify"):
            self.clock.pass_s(10.0)
        self.batch = list(range(len(prompts)))
        self.steps = iter(range(10**6))
        return list(self.first)

    def step(self, watch):
        number = next(self.steps)
        self.note = f"step {number}"
        with watch.part("draft"):
            self.clock.pass_s(0.5)
        self.clock.pass_s(0.25)
        with watch.part("verify"):
            self.clock.pass_s(2.0)
        with watch.part("draft"):
            self.clock.pass_s(0.125)
        with watch.part("sample"):
            self.clock.pass_s(4.0)
        rows = []
        for index in self.batch:
            tokens = tuple(self.scripts[index][number])
            rows.append(Row(index, tokens, 7, len(tokens) - 1, 8, number))
        return rows

    def retain(self, rows):
        self.log.append(("retain", list(rows)))
        self.clock.pass_s(1000.0)
        self.batch = [self.batch[row] for row in rows]


def run(first, scripts, most, stop=(), clock=None):
    decoder = Scripted(first, scripts, clock)
    prompts = [[number, number] for number in range(len(first))]
    watch = Watch(decoder.clock)
    return decode(decoder, prompts, [5] * len(first), most, frozenset(stop), watch), decoder


# Time


def test_parts_add_up_and_the_rest_is_the_hosts():
    clock = Clock()
    watch = Watch(clock)
    clock.pass_s(1.0)
    for name, seconds in (("draft", 2.0), ("verify", 3.0), ("draft", 4.0), ("sample", 5.0)):
        with watch.part(name):
            clock.pass_s(seconds)
        clock.pass_s(0.5)
    times = watch.lap()
    assert times == Times(draft_s=6.0, verify_s=3.0, sample_s=5.0, host_s=3.0)
    assert times.total_s == clock.now_s == 17.0


def test_a_lap_begins_where_the_last_one_ended():
    clock = Clock()
    clock.pass_s(50.0)
    watch = Watch(clock)
    with watch.part("verify"):
        clock.pass_s(3.0)
    watch.lap()
    assert watch.lap() == Times(0.0, 0.0, 0.0, 0.0)
    clock.pass_s(2.0)
    with watch.part("sample"):
        clock.pass_s(1.0)
    assert watch.lap() == Times(0.0, 0.0, 1.0, 2.0)


def test_only_the_three_parts_have_a_name():
    watch = Watch(Clock())
    with pytest.raises(KeyError), watch.part("host"):
        pass


def test_steps_are_timed_without_what_happens_between_them():
    clock = Clock()
    clock.pass_s(99.0)
    found, decoder = run([1, 2], [[(3,), (3,), (3,)], [(4,), (9,)]], 4, (9,), clock)
    assert found.prefill == Times(0.0, 10.0, 0.0, 1.0)
    assert [step.times for step in found.steps] == [Times(0.625, 2.0, 4.0, 0.25)] * len(found.steps)
    found, decoder = run([1, 2], [[(9,)], [(4,), (4,)]], 3, (9,))
    assert ("retain", [1]) in decoder.log
    assert {step.times for step in found.steps} == {Times(0.625, 2.0, 4.0, 0.25)}


# Texts


def test_a_text_ends_with_its_stop_token_even_in_the_middle_of_a_step():
    found, _ = run([1], [[(2, 3), (4, 9, 5, 6), (7,)]], 50, (9,))
    assert found.tokens == ((1, 2, 3, 4, 9),)
    assert [step.emitted for step in found.steps] == [(2,), (2,)]
    assert found.steps[1].rows[0].tokens == (4, 9, 5, 6)


def test_a_text_has_no_more_tokens_than_allowed_the_first_included():
    found, _ = run([1], [[(2, 3), (4, 5, 6)]], 4, (9,))
    assert found.tokens == ((1, 2, 3, 4),)
    assert [step.emitted for step in found.steps] == [(2,), (1,)]


def test_acceptance_is_that_of_whole_steps_whatever_is_cut():
    found, _ = run([1], [[(2, 3), (4, 5, 6)]], 4)
    rows = [row for step in found.steps for row in step.rows]
    assert [row.accepted for row in rows] == [1, 2]
    assert sum(row.accepted + 1 for row in rows) / len(rows) == 2.5


def test_the_first_token_may_be_all_there_is():
    for most, stop in ((1, ()), (5, (1,))):
        found, decoder = run([1], [[]], most, stop)
        assert found.tokens == ((1,),) and found.steps == ()
        assert decoder.log == [("prefill", [[0, 0]], [5])]


def test_who_has_finished_leaves_and_the_others_keep_their_order():
    scripts = [[(9,)], [(1,), (1,), (9,)], [], [(1,), (9,)], [(1,), (1,), (1,)]]
    found, decoder = run([1, 2, 9, 4, 5], scripts, 4, (9,))
    assert found.tokens == ((1, 9), (2, 1, 1, 9), (9,), (4, 1, 9), (5, 1, 1, 1))
    assert decoder.log[1:] == [("retain", [0, 1, 3, 4]), ("retain", [1, 2, 3]), ("retain", [0, 2])]
    present = [[row.prompt for row in step.rows] for step in found.steps]
    assert present == [[0, 1, 3, 4], [1, 3, 4], [1, 4]]
    assert [step.note for step in found.steps] == ["step 0", "step 1", "step 2"]


TOKEN = st.integers(0, 6)
SCRIPT = st.lists(st.lists(TOKEN, min_size=1, max_size=4), min_size=10, max_size=10)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(TOKEN, SCRIPT), max_size=5), st.integers(1, 11), st.sets(TOKEN))
def test_every_text_is_its_own_whatever_the_batch(cases, most, stop):
    found, _ = run([first for first, _ in cases], [script for _, script in cases], most, stop)
    assert len(found.tokens) == len(cases)
    for number, (first, script) in enumerate(cases):
        endless = [first, *(token for tokens in script for token in tokens)][:most]
        end = next((i for i, token in enumerate(endless) if token in stop), len(endless) - 1)
        text = found.tokens[number]
        assert list(text) == endless[: end + 1]
        mine = [
            (row, emitted)
            for step in found.steps
            for row, emitted in zip(step.rows, step.emitted, strict=True)
            if row.prompt == number
        ]
        assert [list(row.tokens) for row, _ in mine] == script[: len(mine)]
        assert sum(emitted for _, emitted in mine) == len(text) - 1
        assert all(emitted == len(row.tokens) for row, emitted in mine[:-1])
        assert all(emitted >= 1 for _, emitted in mine)
