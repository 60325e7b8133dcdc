"""Speculation of single requests, and by draft position, as a server tells it."""

from __future__ import annotations

from typing import Any

import pytest

from calibration.live.server.by_position import acceptance_by_position, notes
from calibration.live.server.per_request import Speculated, acceptance_columns, speculated
from calibration.live.server.readings import increase, read
from models.schema import ModelError
from sim.tables import ACCEPTANCE, to_arrow
from tests.live_texts import AFTER, BEFORE, LLAMA_CPP, REQUESTS, TRTLLM


def said(accepted: list[int], drafted: list[int], k: int = 4, **others: Any) -> dict[str, Any]:
    """What vLLM says of steps that drafted and accepted so many tokens."""
    counts = [accepted.count(j) for j in range(k + 1)]
    return {
        "speculative_decoding": {
            "acceptance_histogram": counts,
            "num_spec_steps": len(accepted),
            "num_accepted_draft_tokens": sum(accepted),
            "num_draft_tokens": sum(drafted),
            "num_spec_tokens": k,
            "per_step_accepted": accepted,
            "per_step_drafted": drafted,
        }
        | others
    }


def of_recorded(request: dict[str, Any]) -> Speculated | None:
    usage = request["usage"]
    return speculated(request["metrics"], usage["prompt_tokens"], usage["completion_tokens"])


def test_recorded_requests_have_as_many_steps_as_chunks_after_the_first() -> None:
    told = [of_recorded(request) for request in REQUESTS]
    assert [one.n_steps if one else None for one in told] == [7, 23, 2, 0, None]
    for one, request in zip(told, REQUESTS, strict=True):
        assert one is None or one.n_steps == request["chunks"] - 1
    cut = told[2]
    assert cut == Speculated(2, 8, 8, 0, ((15, 4, 4), (20, 4, 4))), "8 accepted of 6 emitted"


def test_steps_stand_where_the_prompt_and_what_was_emitted_end() -> None:
    told = speculated(said([2, 0, 3], [4, 4, 4]), prompt_tokens=100, output_tokens=9)
    assert told == Speculated(3, 12, 5, 0, ((101, 4, 2), (104, 4, 0), (105, 4, 3)))


def test_the_last_step_may_be_cut_but_keeps_a_token() -> None:
    assert speculated(said([2, 3], [4, 4]), 10, 5) == Speculated(
        2, 8, 5, 0, ((11, 4, 2), (14, 4, 3))
    )
    impossible = speculated(said([2, 3], [4, 4]), 10, 4)
    assert impossible is not None
    assert (impossible.n_steps, impossible.drafted, impossible.steps) == (0, 0, ())
    assert "more than its 4 output tokens" in impossible.note
    # Cut by two, but the last step accepted only one: the order cannot be right.
    mixed = speculated(said([3, 1], [4, 4]), 10, 5)
    assert mixed is not None
    assert (mixed.n_steps, mixed.accepted, mixed.steps) == (2, 4, ())
    assert "contradict the totals" in mixed.note


def test_steps_without_a_draft_are_counted_from_the_output() -> None:
    told = speculated(said([2], [4]), prompt_tokens=10, output_tokens=9)
    assert told is not None
    assert (told.n_steps, told.undrafted, told.steps) == (6, 5, ())
    assert "5 without a draft" in told.note


def test_a_summary_gives_totals_and_no_steps() -> None:
    summary = said([2, 0], [4, 4])
    for key in ("per_step_accepted", "per_step_drafted"):
        del summary["speculative_decoding"][key]
    assert speculated(summary, 10, 5) == Speculated(2, 8, 2)
    del summary["speculative_decoding"]["acceptance_histogram"]
    assert speculated(summary, 10, 5) == Speculated(2, 8, 2)


@pytest.mark.parametrize(
    "others",
    [
        {"per_step_accepted": [1, 1]},
        {"per_step_accepted": [2]},
        {"per_step_drafted": [4, 5]},
        {"per_step_drafted": None},
        {"per_step_accepted": [2, "0"]},
        {"per_step_accepted": [2, False]},
    ],
)
def test_steps_that_contradict_the_totals_are_left_out(others: dict[str, Any]) -> None:
    told = speculated(said([2, 0], [4, 4], **others), 10, 5)
    assert told is not None
    assert (told.n_steps, told.drafted, told.accepted, told.steps) == (2, 8, 2, ())
    assert told.note == "steps are left out: they contradict the totals"


def test_a_step_cannot_accept_more_than_it_drafted() -> None:
    told = speculated(said([3, 0], [2, 4]), 10, 6)
    assert told is not None
    assert told.steps == ()


@pytest.mark.parametrize(
    "others",
    [
        {"num_spec_steps": 3},
        {"num_accepted_draft_tokens": 9},
        {"num_draft_tokens": 1},
        {"num_draft_tokens": None},
        {"num_spec_steps": -2},
        {"num_spec_steps": 2.5},
        {"acceptance_histogram": [2, 0]},
        {"acceptance_histogram": "many"},
    ],
)
def test_totals_that_contradict_each_other_are_left_out(others: dict[str, Any]) -> None:
    told = speculated(said([2, 0], [4, 4], **others), 10, 5)
    assert told is not None
    assert told[:5] == (0, 0, 0, 0, ())
    assert "left out" in told.note


@pytest.mark.parametrize("metrics", [None, {}, {"speculative_decoding": None}, [1], "x"])
def test_a_server_that_tells_nothing_is_no_fault(metrics: Any) -> None:
    assert speculated(metrics, 10, 5) is None


def test_a_request_without_output_has_no_steps() -> None:
    assert speculated(said([], []), 10, 0) == Speculated(0, 0, 0)
    assert speculated(said([], []), 10, 1) == Speculated(0, 0, 0)


def test_steps_become_rows_of_the_acceptance_table() -> None:
    told = [speculated(said(a, [4] * len(a)), 10, 1 + len(a) + sum(a)) for a in ([1, 0], [4])]
    assert told[0] and told[1]
    columns, note = acceptance_columns("medusa", [(3, "code", told[0]), (5, "text", told[1])])
    assert (columns is not None, note) == (True, "")
    rows = to_arrow(ACCEPTANCE, columns or {}).to_pylist()
    assert [row["request"] for row in rows] == [3, 3, 5]
    assert [row["step"] for row in rows] == [0, 1, 0]
    assert [row["domain"] for row in rows] == ["code", "code", "text"]
    assert [row["context"] for row in rows] == [11, 13, 11]
    assert [row["accepted"] for row in rows] == [1, 0, 4]
    assert {row["strategy"] for row in rows} == {"medusa"}


def test_requests_in_which_every_lookup_matched_do_not_stand_for_all() -> None:
    told = [(i, "text", one) for i, r in enumerate(REQUESTS) if (one := of_recorded(r))]
    columns, note = acceptance_columns("ngram", told)
    assert columns is None
    assert "26 of 32 steps had no draft" in note


def test_a_few_requests_left_out_are_noted() -> None:
    whole = speculated(said([1] * 60, [4] * 60), 10, 121)
    preempted = speculated(said([1] * 60, [4] * 60), 10, 122)
    assert whole and preempted
    columns, note = acceptance_columns("eagle", [(0, "text", whole), (1, "text", preempted)])
    assert columns is not None
    assert set(columns["request"]) == {0}
    assert note == "steps of 1 of 2 requests are left out"
    assert acceptance_columns("eagle", []) == (None, "")


def test_acceptance_by_position_is_conditional_on_the_ones_before() -> None:
    found = acceptance_by_position(read(LLAMA_CPP).counters)
    assert found is not None
    assert found.alpha == pytest.approx((0.8, 0.5, 0.5, 0.5))
    assert found.tried == (100, 80, 40, 20)
    assert found.se == pytest.approx((0.04, 0.0559, 0.0791, 0.1118), abs=1e-4)
    assert not found.short
    assert notes(found) == ""
    short = acceptance_by_position(read(LLAMA_CPP).counters, 2)
    assert short is not None
    assert short.alpha == pytest.approx((0.8, 0.5))


def test_positions_that_say_how_often_they_were_drafted_are_tried_that_often() -> None:
    counters = read(TRTLLM).counters
    found = acceptance_by_position(counters)
    assert found is not None
    assert found.tried == (100, 60, 20)
    assert not found.short
    counters["spec_drafted_at_2"] = 15.0
    fewer = acceptance_by_position(counters)
    assert fewer is not None
    assert fewer.tried == (100, 60, 15)


def test_short_drafts_are_told_of_recorded_counters() -> None:
    counters = increase(read(BEFORE), [read(AFTER)]).counters
    found = acceptance_by_position(counters)
    assert found is not None
    assert found.short, "21 tokens in 6 drafts of up to 4"
    assert found.alpha == pytest.approx((2 / 3, 1.0, 1.0, 1.0))
    assert "beyond the first position is too low" in notes(found)
    assert notes(found._replace(alpha=found.alpha[:1])) == ""


def test_positions_never_tried_are_not_guessed() -> None:
    counters = {"spec_drafts": 5.0, "spec_accepted_at_0": 0.0, "spec_accepted_at_1": 0.0}
    found = acceptance_by_position(counters)
    assert found is not None
    assert (found.alpha, found.tried) == ((0.0,), (5,))
    assert acceptance_by_position({"spec_drafts": 0.0, "spec_accepted_at_0": 0.0}) is None
    assert acceptance_by_position({"spec_drafts": 5.0}) is None


def test_counters_that_cannot_be_are_an_error() -> None:
    with pytest.raises(ModelError, match="position 1 was accepted 4 times of 3 tried") as caught:
        acceptance_by_position(
            {"spec_drafts": 5.0, "spec_accepted_at_0": 3.0, "spec_accepted_at_1": 4.0}
        )
    assert caught.value.key == "acceptance"


def test_counts_no_request_can_have_are_left_out_and_not_overflowed() -> None:
    told = speculated(said([10**20], [10**20], acceptance_histogram=None), 10, 5)
    assert told is not None
    assert told[:5] == (0, 0, 0, 0, ())
