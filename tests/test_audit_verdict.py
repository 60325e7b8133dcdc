"""What a claim is called: reproduced, only if, against the model, or not to be decided."""

from __future__ import annotations

from typing import Any

import pytest

from sim.audit.claims import Claimed
from sim.audit.verdict import agrees, judge


def case(label: str, agree: bool | None, plausible: bool = True, value: float | None = 1.0) -> Any:
    figure = {
        "title": "speedup",
        "unit": "x",
        "value": None if agree is None else value,
        "why": "saturated" if agree is None else None,
        "claimed": {"min": 2.0, "max": 2.0, "tolerance": 0.05},
        "inside": bool(agree) and value == 2.0,
        "agrees": agree,
    }
    return {"label": label, "plausible": plausible, "agrees": agree, "figures": [figure]}


# The verdict


def test_a_claim_that_holds_in_every_plausible_case_is_reproduced() -> None:
    cases = [case("1", True, value=2.0), case("2", True), case("9", False, plausible=False)]
    assert judge(cases, varied="users") == (
        "reproduced",
        "reproduced, whether users = 1 or 2",
        "reproduced",
    )
    assert judge([case("as stated", True)]).text == "reproduced within the band of speedup"


def test_a_claim_that_holds_in_some_plausible_cases_is_reproduced_only_there() -> None:
    cases = [case("1", False), case("2", True, value=2.0), case("4", True)]
    assert judge(cases, varied="users") == (
        "only_if",
        "reproduced only if users = 2 or 4 (by the prediction itself: 2); "
        "at users = 1, speedup 1.00x predicted, 2.00x claimed",
        "reproduced only if users = 2 or 4",
    )


def test_a_case_without_a_prediction_does_not_count_as_agreeing() -> None:
    cases = [case("1", True, value=2.0), case("2", None)]
    kind, text, _ = judge(cases, varied="users")
    assert kind == "only_if"
    assert text.endswith("at users = 2, nothing is predicted: saturated")


def test_a_claim_that_holds_nowhere_contradicts_the_model() -> None:
    cases = [case("1", False), case("2", False)]
    assert judge(cases, 1, "users", because="heads are not free") == (
        "contradicts",
        "contradicts the model because heads are not free: at users = 2, speedup 1.00x predicted, "
        "2.00x claimed; at no users tried does it agree",
        "contradicts the model",
    )


def test_what_holds_only_where_nobody_is_contradicts_and_says_what_it_would_take() -> None:
    cases = [case("1", False), case("2", True, plausible=False)]
    kind, text, _ = judge(cases, varied="users")
    assert kind == "contradicts"
    assert text.endswith("; it would take users = 2, plausible: 1")


def test_what_the_model_does_not_predict_is_not_decidable() -> None:
    assert judge([case("1", None)])[:2] == ("not_decidable", "not decidable: saturated")
    none = {"label": "as stated", "plausible": True, "agrees": None, "figures": []}
    assert judge([none], missing="quality").text == "not decidable: quality"
    assert judge([case("1", True, value=2.0)], missing="quality").text == (
        "reproduced; not decidable: quality"
    )


@pytest.mark.parametrize(
    ("value", "lo", "hi", "expected"),
    [
        (2.0, None, None, True),
        (1.91, None, None, True),
        (1.89, None, None, False),
        (1.5, 1.4, 1.91, True),
        (1.5, 1.4, 1.89, False),
        (3.0, 2.09, None, True),
        (3.0, 2.11, None, False),
        (None, None, None, None),
    ],
)
def test_a_prediction_agrees_where_it_or_its_band_meets_the_range(
    value: float | None, lo: float | None, hi: float | None, expected: bool | None
) -> None:
    assert agrees(value, lo, hi, Claimed(min=2.0, max=2.0, tolerance=0.05)) is expected


def test_a_range_with_one_end_is_open_at_the_other() -> None:
    assert agrees(1e9, None, None, Claimed(min=1.0))
    assert agrees(-5.0, None, None, Claimed(max=0.0))
    assert not agrees(0.1, None, None, Claimed(max=0.0))
