"""Top-p sampling in a step: which kernel filters how many rows of logits."""

from __future__ import annotations

import pytest
from test_step_time import EAGLE, PLAIN, close, stepping, us


@pytest.mark.parametrize(
    ("engine", "n", "sort", "row", "draft_row"),
    [
        ("vllm_0.15", 1, 159, 0.152e-3, 0.152e-3),
        ("vllm_0.15", 16, 159, 0.152e-3, 0.152e-3),
        ("vllm_0.17", 16, 0, 0.030e-3, 0.030e-3),
        ("vllm_0.22", 16, 0, 0.007e-3, 0.030e-3),
    ],
)
def test_top_p_sampling_sees_every_verified_row(engine, n, sort, row, draft_row):
    plain, eagle = (stepping(s, engine=engine, top_p=True) for s in (PLAIN, EAGLE))
    assert us(plain.breakdown(n, 0)["sampling"]) == close(sort + n * 128256 * row)
    # drafts are sorted apart from the tokens behind them
    expected = 2 * sort + n * 128256 * row + 3 * n * 128256 * draft_row
    assert us(eagle.breakdown(n, 0)["sampling"]) == close(expected)
    assert stepping(EAGLE, engine=engine).breakdown(n, 0)["sampling"] == 0.0


def test_triton_takes_over_from_the_sort_at_eight_rows():
    step = stepping(engine="vllm_0.17", top_p=True)
    found = [us(step.breakdown(n, 0)["sampling"]) for n in (1, 7, 8)]
    v = 128256
    assert found == close([159 + v * 0.152e-3, 159 + 7 * v * 0.152e-3, 8 * v * 0.030e-3])
    # draft rows are filtered apart: three sequences draft nine
    eagle = stepping(EAGLE, engine="vllm_0.17", top_p=True)
    found = [us(eagle.breakdown(n, 0)["sampling"]) for n in (1, 3)]
    assert found == close([2 * 159 + 4 * v * 0.152e-3, 159 + 3 * v * 0.152e-3 + 9 * v * 0.030e-3])


def test_128_rows_are_sorted_each_by_itself():
    step = stepping(engine="vllm_0.15", top_p=True, max_num_seqs=256)
    found = [us(step.breakdown(n, 0)["sampling"]) for n in (127, 128)]
    assert found == close([159 + 127 * 128256 * 0.152e-3, 128 * 128256 * 0.127e-3])
