"""Published times of verification attention as cases, and their predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import validated

import calibration
from calibration.validation import score, verify_attention
from calibration.validation.side_by_side import predict_all
from calibration.validation.suites import cases

FILE = Path(calibration.__file__).parent / "data/kernels/verify_attention_hopper.csv"


@pytest.fixture(scope="module")
def frame():
    return score.table(predict_all(cases("kernels"), jobs=1))


def test_cases_are_the_published_calls_predicted_alike(frame):
    published = verify_attention.read_published(FILE)
    assert len(frame) == len(published) == 39
    assert frame["case"].is_unique
    np.testing.assert_allclose(frame["measured"], published["time_s"])
    np.testing.assert_allclose(frame["predicted"], verify_attention.predicted_s(published))


def test_they_read_as_any_other_figure(frame):
    assert set(frame["suite"]) == {"kernels"}
    assert set(frame["metric"]) == {"time_s"}
    assert frame["scored"].sum() == 34
    assert frame["lo"].isna().all()


def test_one_more_query_token_is_free_while_reading_takes_the_time(frame):
    reading = frame[(frame["engine"] == "FlashMLA") & frame["scored"]]
    assert len(reading) == 5
    assert reading["relative"].abs().max() <= 0.04


def test_what_computes_is_predicted_fast_by_at_most_a_half(frame):
    computing = frame[
        frame["scored"] & frame["workload"].isin(["32 query tokens", "64 query tokens"])
    ]
    assert len(computing) == 4
    assert computing["relative"].between(-0.55, -0.25).all()


def test_no_error_is_a_tenth_of_itself_above_the_stored_one():
    assert validated.worse("verify_attention") == []
