"""Bands from errors: the interval of a run not seen, and how often it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from calibration.validation.bounds import Answer
from calibration.validation.coverage import TOGETHER, by_answer, left_out
from calibration.validation.groups import with_groups
from calibration.validation.residuals import Rule, interval, replaced, span
from models import catalog

PLAIN = Rule("vllm_v1", ("plain",), "runs", "step_s", ("autoregressive",), "model")


def frame(relative: dict[str, list[float]], **columns: Any) -> pd.DataFrame:
    """Errors by model."""
    rows = [
        {"case": f"{model}-{index}", "model": model, "relative": error}
        for model, errors in relative.items()
        for index, error in enumerate(errors)
    ]
    usual = {
        "scored": True,
        "origin": "runs",
        "metric": "step_s",
        "strategy": "autoregressive",
        "acceptance": "none",
    }
    return pd.DataFrame(rows).assign(**usual, **columns)


@pytest.mark.parametrize(("between", "within"), [(0.0, 0.03), (0.03, 0.01), (0.02, 0.02)])
def test_it_holds_nine_in_ten_runs_of_a_group_not_seen(between, within):
    rng = np.random.default_rng(3)
    held = []
    for _ in range(2000):
        means = rng.normal(0.02, between, 9)
        groups = np.repeat(np.arange(8), 6)
        lo, hi = interval(means[groups] + rng.normal(0, within, 48), list(groups))
        held.append(lo <= means[8] + rng.normal(0, within) <= hi)
    assert 0.85 <= np.mean(held) <= 0.93


@pytest.mark.parametrize("groups", [3, 4, 5])
def test_few_groups_widen_it_so_that_it_still_holds(groups):
    rng = np.random.default_rng(5)
    held = []
    for _ in range(3000):
        means = rng.normal(0, 0.03, groups + 1)
        names = np.repeat(np.arange(groups), 4)
        lo, hi = interval(means[names] + rng.normal(0, 0.02, len(names)), list(names))
        held.append(lo <= means[-1] + rng.normal(0, 0.02) <= hi)
    assert 0.87 <= np.mean(held) <= 0.97


def test_runs_of_one_model_that_share_an_error_do_not_narrow_it():
    few = interval(np.array([0.05, -0.05, 0.01]), ["a", "b", "c"])
    many = interval(np.repeat([0.05, -0.05, 0.01], 50), list(np.repeat(["a", "b", "c"], 50)))
    assert many == pytest.approx(few)


def test_one_group_alone_gives_the_interval_of_its_further_runs():
    lo, hi = interval(np.array([-0.02, 0.0, 0.02]), ["a"] * 3)
    student = 2.92  # two degrees of freedom
    assert hi == -lo == pytest.approx(student * 0.02 * (4 / 3) ** 0.5, rel=1e-3)


def test_a_row_too_slow_by_a_tenth_reaches_below_one_only():
    ends = span(PLAIN, frame({"a": [0.1, 0.11], "b": [0.1, 0.09]}))
    assert ends is not None
    assert ends.hi == 1.0
    assert ends.lo == pytest.approx(1 / 1.1, rel=0.03)
    assert (ends.runs, ends.groups) == (4, 2)


def test_a_speedup_predicted_too_high_means_steps_longer_than_predicted():
    gain = PLAIN._replace(metric="speedup", family=("eagle", "ngram"), strategies=("eagle",))
    errors = frame({"a": [0.1, 0.1], "b": [0.1, 0.1]})
    ends = span(gain, errors.assign(metric="speedup", strategy="eagle"))
    assert ends is not None
    assert ends.hi == pytest.approx(1.1)
    assert ends.lo == 1.0


def test_what_is_not_scored_makes_no_band():
    errors = frame({"a": [0.01, 0.02], "b": [0.01, 0.5]})
    errors.loc[3, "scored"] = False
    ends = span(PLAIN, errors)
    assert ends is not None
    assert ends.runs == 3


def test_the_model_asked_about_never_sets_its_own_band():
    errors = frame({"a": [0.5, 0.5], **{name: [0.01, -0.01] * 4 for name in "bcde"}})
    cases = [type("Named", (), {"name": name})() for name in errors["case"]]
    found = left_out([PLAIN], cases, errors)
    assert set(found) == set(errors["case"])
    without_a = found["a-0"].of_step("plain", "vllm_v1", "bf16", 1)
    without_b = found["b-0"].of_step("plain", "vllm_v1", "bf16", 1)
    assert 1 / without_a.lo < 1.04
    assert 1 / without_b.lo > 1.5


def test_only_the_row_of_the_rule_is_replaced():
    ends = span(PLAIN, frame({"a": [0.2, 0.21], "b": [0.2, 0.19]}))
    assert ends is not None
    shipped, own = catalog.residuals(), replaced(PLAIN, ends)
    changed = [a for a, b in zip(shipped.steps, own.steps, strict=True) if a != b]
    assert [(row.family, row.engine, row.weights) for row in changed] == [
        (("plain",), "vllm_v1", ())
    ]


def test_two_rules_of_the_same_runs_each_replace_their_row():
    errors = pd.concat(
        [
            frame({"a": [0.5, 0.5], "b": [0.01, -0.01], "c": [0.01, -0.01]}),
            frame({"a": [0.4, 0.4], "b": [0.01, -0.01], "c": [0.01, -0.01]}, weights="fp8").assign(
                metric="tpot_s.mean"
            ),
        ],
        ignore_index=True,
    )
    fp8 = PLAIN._replace(metric="tpot_s.mean", weights=("fp8",))
    cases = [type("Named", (), {"name": name})() for name in errors["case"].unique()]
    own = left_out([PLAIN, fp8], cases, errors)["a-0"]
    assert 1 / own.of_step("plain", "vllm_v1", "bf16", 1).lo < 1.1
    assert 1 / own.of_step("plain", "vllm_v1", "fp8", 1).lo < 1.1
    assert own.of_step("plain", "vllm_v1", "fp8", 1).lo != 1


def test_coverage_is_told_by_kind_of_answer_and_for_all_together():
    banded = frame({"a": [0.0, 0.0], "b": [0.0, 0.0]}).assign(
        suite="serving",
        measured=[1.0, 1.2, 0.8, 1.0],
        predicted=1.0,
        lo=0.9,
        hi=1.1,
        basis="x",
        reading=0.0,
    )
    kind = Answer(name="Steps", where={"suite": ["serving"]})
    found = by_answer(with_groups(banded), [kind]).set_index("answer")
    assert list(found.index) == ["Steps", TOGETHER]
    assert found.loc["Steps", ["n", "inside"]].tolist() == [4, 0.5]
    assert found.loc["Steps", "width"] == pytest.approx(0.2)
    assert by_answer(pd.DataFrame(), [kind]).empty
