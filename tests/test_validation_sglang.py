"""Chains and trees of EAGLE-3 measured on SGLang, against what is predicted.

Two data sets stand for four: the shortest contexts and the longest.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import pytest
import validated

from calibration.validation import score, side_by_side
from calibration.validation.case import Case
from calibration.validation.suites import specdecode_bench_sglang
from calibration.validation.suites.rows import read

DATA_SETS = ("GSM8K", "CNN/DailyMail")


def predicted(cases: Iterable[Case]) -> pd.DataFrame:
    return score.table(side_by_side.predict_all(cases, jobs=1))


def mape(frame: pd.DataFrame) -> float:
    return float(frame.loc[frame["scored"], "relative"].abs().mean())


@pytest.fixture(scope="module")
def sglang() -> pd.DataFrame:
    frame = validated.frame("specdecode_bench_sglang")
    return frame[frame["data_set"].isin(DATA_SETS)]


BOUNDS = {"chain": 0.06, "tree of 6": 0.12, "tree of 21": 0.12}


@pytest.mark.parametrize("batch", ["16", "64"])
@pytest.mark.parametrize("shape", BOUNDS)
def test_speedups_are_near_at_every_batch_up_to_64(sglang, shape, batch):
    assert mape(sglang[(sglang["shape"] == shape) & (sglang["batch"] == batch)]) <= BOUNDS[shape]


def test_the_side_of_one_is_right(sglang):
    assert score.sides(sglang).all()


def test_tau_solved_at_batch_1_is_the_one_published(sglang):
    rows = read("speculation/specdecode_bench_sglang.csv")
    published = {
        specdecode_bench_sglang.shape_of(row): float(row["published_tau"])
        for row in rows
        if row["published_tau"]
    }
    assert published == {"chain": 2.25, "tree of 21": 2.92}
    gsm8k = sglang[(sglang["data_set"] == "GSM8K") & (sglang["batch"] == "1")]
    for shape, tau in published.items():
        (solved,) = gsm8k.loc[gsm8k["shape"] == shape, "tau"]
        assert solved == pytest.approx(tau, rel=0.06)


def test_batch_128_is_shown_without_a_score():
    cases = specdecode_bench_sglang.cases()
    assert len(cases) == 48
    assert {case.labels["batch"] for case in cases if case.unscored} == {"128"}


def test_no_error_is_a_tenth_of_itself_above_the_stored_one():
    assert validated.worse("specdecode_bench_sglang") == []
