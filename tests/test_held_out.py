"""Errors of fits are those of rows the fit has not seen."""

from __future__ import annotations

import numpy as np
import pytest
from timed_kernels import (
    H100,
    gemms,
)

from calibration.kernels.fits import held_out
from calibration.kernels.fits.gemm import PLAIN, fit_gemm
from calibration.kernels.fits.interpolation import WITHOUT_M, WITHOUT_N
from calibration.kernels.fits.robust import Form, fit_form

LINE = Form("line", (1.0, 1.0), lambda values, table: values[0] * table["n"] + values[1])


def test_no_shape_is_on_both_sides():
    table = gemms()
    seen = held_out.halves(table, ("n", "k"))
    shapes = [set(zip(part["n"], part["k"], strict=True)) for part in (table[seen], table[~seen])]
    assert not shapes[0] & shapes[1]
    assert [len(part) for part in shapes] == [13, 12]
    assert (held_out.halves(table, ("n", "k"), seed=1) != seen).any()


def test_rows_are_predicted_by_a_fit_to_the_other_half():
    table = gemms()
    first = held_out.halves(table, ("n", "k"))
    table["time_s"] = np.where(first, 1.0, 2.0) * (3.0 * table["n"] + 7.0)
    predicted = held_out.predicted_unseen(LINE, table, ("n", "k"))
    ratio = predicted / table["time_s"].to_numpy()
    assert ratio[first] == pytest.approx(2.0, rel=1e-3)
    assert ratio[~first] == pytest.approx(0.5, rel=1e-3)
    assert fit_form(LINE, table[first], ("n",)).values == pytest.approx([3.0, 7.0], rel=1e-2)


def test_scores_are_quantiles_by_range_of_tokens():
    table = gemms()
    scores = held_out.by_range("gemm", "bf16", "a form", table, table["time_s"].to_numpy() / 1.1)
    assert [score.m for score in scores] == [(1, 512), (8, 1024), (512, 8192)]
    assert [score.rows for score in scores] == [25 * 11, 25 * 10, 25 * 5]
    for score in scores:
        assert (score.median, score.p90) == pytest.approx((1 / 11, 1 / 11))
        assert (score.lo, score.hi) == pytest.approx((1.1, 1.1))


def test_interpolation_is_scored_beside_the_closed_form():
    exact = gemms(noise=0.0, outliers=0.0)
    wavy = exact.assign(time_s=exact["time_s"] * (1 + 0.2 * np.sin(np.log2(exact["n"]))))
    by_form = {score.what: score for score in reversed(fit_gemm(exact, H100)[1])}
    assert all(score.p90 < 0.01 for score in by_form.values())
    wavy_form = {score.what: score for score in reversed(fit_gemm(wavy, H100)[1])}
    assert wavy_form[WITHOUT_M].median < 0.01 < wavy_form[PLAIN].median
    assert wavy_form[WITHOUT_N].median > wavy_form[WITHOUT_M].median
