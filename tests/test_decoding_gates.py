"""The gate and the dynamic K follow what was accepted lately, with a strategy that plays a part."""

from __future__ import annotations

import pytest

from calibration.decoding.adaptive import Adaptive
from calibration.decoding.decoder import Generation, Row, Step, Times, Watch, decode
from calibration.decoding.dynamic_k import DynamicK, best_k, measured_cost
from calibration.decoding.rolling import Rolling


class Played:
    """Drafts ``k`` tokens of which the first ``right`` are accepted, in every row."""

    most_rows = 8
    note = ""

    def __init__(self, k: int = 4, right: int = 4) -> None:
        self.label, self.strategy = "played", {"kind": "played", "k": k}
        self.k, self.right, self.limit = k, right, None
        self.finds = True

    def prefill(self, prompts, seeds, watch):
        self.index, self.lengths = list(range(len(prompts))), [len(one) for one in prompts]
        return [0] * len(prompts)

    def step(self, watch):
        k = self.k if self.limit is None else min(self.k, self.limit)
        drafted = k if self.finds else 0
        accepted = min(drafted, self.right)
        return [
            Row(index, (0,) * (accepted + 1), drafted, accepted, drafted + 1, 9)
            for index in self.index
        ]

    def retain(self, rows):
        self.index = [self.index[row] for row in rows]


def watch() -> Watch:
    return Watch(lambda: 0.0)


def notes(decoder, steps: int) -> list[str]:
    found = []
    for _ in range(steps):
        decoder.step(watch())
        found.append(decoder.note)
    return found


def tokens_until(decoder, note: str) -> int:
    emitted = 0
    while True:
        rows = decoder.step(watch())
        if decoder.note == note:
            return emitted
        emitted += sum(len(row.tokens) for row in rows)
        assert emitted < 10_000, f"never came to {note}"


def gate(inner: Played, **other) -> Adaptive:
    sizes = {"leave_below": 2.0, "window_tokens": 50, "probe_tokens": 40, "probe_steps": 3}
    decoder = Adaptive(inner, **(sizes | other))
    decoder.prefill([[1, 2]], [0], watch())
    return decoder


def test_a_gate_stays_open_while_drafts_pay():
    assert set(notes(gate(Played(right=1)), 300)) == {"played"}


def test_a_gate_closes_within_the_window_after_a_switch_and_not_at_the_first_miss():
    inner = Played(right=4)
    decoder = gate(inner)
    notes(decoder, 100)
    inner.right = 0
    assert 5 < tokens_until(decoder, "autoregressive") <= 50


def test_a_closed_gate_probes_a_few_steps_each_so_many_tokens():
    inner = Played(right=0)
    decoder = gate(inner)
    tokens_until(decoder, "autoregressive")
    assert notes(decoder, 39) == ["autoregressive"] * 39
    once = ["played"] * 3 + ["autoregressive"] * 40
    assert notes(decoder, 3 * len(once)) == 3 * once


def test_a_gate_opens_again_at_the_first_probe_after_the_switch_back():
    inner = Played(right=0)
    decoder = gate(inner)
    tokens_until(decoder, "autoregressive")
    inner.right = 4
    assert tokens_until(decoder, "played") <= 40
    assert set(notes(decoder, 200)) == {"played"}


def test_a_lucky_probe_does_not_hold_a_gate_open():
    inner = Played(right=0)
    decoder = gate(inner)
    tokens_until(decoder, "autoregressive")
    inner.right = 4
    tokens_until(decoder, "played")
    notes(decoder, 2)
    inner.right = 0
    assert tokens_until(decoder, "autoregressive") <= 50


def test_a_gate_goes_on_over_prompts():
    inner = Played(right=0)
    decoder = gate(inner)
    tokens_until(decoder, "autoregressive")
    decoder.prefill([[1], [2, 3]], [0, 1], watch())
    assert notes(decoder, 19) == ["autoregressive"] * 19, "20 steps of two rows are 40 tokens"
    assert "played" in notes(decoder, 4)


def test_steps_that_found_nothing_to_draft_do_not_close_a_gate():
    inner = Played(right=4)
    inner.finds = False
    assert set(notes(gate(inner), 300)) == {"played"}


def test_a_gate_leaves_rows_alone_and_names_what_was_active():
    generation = decode(gate(Played(right=0)), [[1]] * 3, [0, 1, 2], 60, (), watch())
    assert {len(text) for text in generation.tokens} == {60}
    assert [step.note for step in generation.steps[:18]] == ["played"] * 17 + ["autoregressive"]
    for step in generation.steps:
        plain = step.note == "autoregressive"
        assert {(row.drafted, row.width) for row in step.rows} == {(0, 1) if plain else (4, 5)}


def test_the_window_is_the_fewest_latest_steps_with_so_many_tokens():
    rolling = Rolling(10)
    assert (rolling.tau, rolling.alpha, rolling.full) == (None, None, False)
    for accepted in (4, 0, 2, 0, 1, 4):
        rolling.add([Row(0, (0,) * (accepted + 1), 4, accepted, 5, 9)])
    # The last four hold 3 + 1 + 2 + 5 tokens, the last three only 8.
    assert rolling.full
    assert rolling.tau == pytest.approx(11 / 4)
    assert rolling.alpha == pytest.approx(7 / (7 + 3)), "the last step refused nothing"


def dynamic(inner: Played, cost: float = 0.1) -> DynamicK:
    decoder = DynamicK(inner, cost, window_tokens=50)
    decoder.prefill([[1, 2]], [0], watch())
    return decoder


def test_k_is_the_most_when_all_is_accepted_and_one_when_nothing_is():
    inner = Played(k=6, right=6)
    decoder = dynamic(inner)
    assert set(notes(decoder, 50)) == {"k=6"}
    inner.right = 0
    assert notes(decoder, 60)[-1] == "k=1"
    inner.right = 6
    assert notes(decoder, 60)[-1] == "k=6"


def test_k_goes_down_step_by_step_as_the_window_fills_with_misses():
    inner = Played(k=6, right=6)
    decoder = dynamic(inner)
    notes(decoder, 50)
    inner.right = 0
    found = [int(note.removeprefix("k=")) for note in notes(decoder, 60)]
    assert found == sorted(found, reverse=True)
    assert {6, 1} < set(found), "and by way of others"


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("cost", [0.0, 0.05, 0.3, 0.9])
def test_the_best_k_is_the_one_of_theorem_3_8(alpha, cost):
    def speedup(k: int) -> float:
        tau = k + 1 if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)
        return tau / (1 + k * cost)

    best = best_k(alpha, cost, 8)
    assert speedup(best) == pytest.approx(max(speedup(k) for k in range(1, 9)))


def test_the_fewest_drafts_are_taken_where_more_bring_nothing():
    assert best_k(0.0, 0.0, 8) == 1


def test_a_gate_can_stand_around_a_dynamic_k():
    inner = Played(k=5, right=0)
    decoder = gate(dynamic(inner))
    tokens_until(decoder, "autoregressive")
    (row,) = decoder.step(watch())
    assert row.width == 1
    inner.right = 5
    tokens_until(decoder, "dynamic_k_played")
    assert notes(decoder, 80)[-1] == "dynamic_k_played"
    (row,) = decoder.step(watch())
    assert row.width == 6


def test_their_blocks_hold_what_is_needed_to_build_them_again():
    decoder = gate(dynamic(Played(k=5)))
    assert decoder.label == "adaptive_dynamic_k_played"
    assert decoder.strategy == {
        "kind": "adaptive",
        "primary": {
            "kind": "dynamic_k",
            "primary": {"kind": "played", "k": 5},
            "k_max": 5,
            "draft_cost": 0.1,
            "window_tokens": 50,
        },
        "fallback": {"kind": "autoregressive"},
        "leave_below": 2.0,
        "window_tokens": 50,
        "return": {"kind": "probe", "every_tokens": 40, "steps": 3},
    }


def test_the_cost_of_a_draft_token_is_measured_where_there_were_some():
    def step(drafted: int, draft_s: float, verify_s: float) -> Step:
        row = Row(0, (0,), drafted, 0, drafted + 1, 9)
        return Step((row,), (1,), Times(draft_s, verify_s, 0.1, 0.2))

    steps = [step(4, 2.0, 1.0), step(2, 1.2, 1.0), step(0, 9.0, 1.0), step(4, 40.0, 1.0)]
    assert measured_cost(Generation(((0,),), Times(0, 0, 0, 0), tuple(steps)).steps) == 0.6
    with pytest.raises(ValueError, match="no step drafted anything"):
        measured_cost(steps[2:3])
