"""Measured speedups of EAGLE and prompt lookup on H100, replayed from examples/measured/.

Acceptance comes from released traces, so no speedup enters the prediction.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from measured_runs import SCENARIOS, Gain, gains, only, simulated

BATCHES = (1, 16, 64, 128)
DATA_SETS = sorted({gain.scenario for gain in gains()})
MEAN_ERROR = 0.05


def speedup(gain: Gain) -> float:
    rows = simulated(gain.scenario)
    return float(only(rows, kind=gain.kind, max_num_seqs=gain.max_num_seqs)["speedup"])


@pytest.fixture(scope="module")
def predicted() -> dict[Gain, float]:
    return {gain: speedup(gain) for gain in gains()}


def test_every_point_is_replayed_by_a_committed_file():
    assert {path.stem for path in SCENARIOS.glob("specdecode_*.yaml")} == set(DATA_SETS)
    assert len(gains()) == len(DATA_SETS) * 2 * len(BATCHES) == 32


def test_speedup_falls_with_the_batch_as_measured(predicted):
    for name in DATA_SETS:
        for kind in ("eagle", "ngram"):
            curve = {
                gain.max_num_seqs: (gain.speedup, ours)
                for gain, ours in predicted.items()
                if (gain.scenario, gain.kind) == (name, kind)
            }
            points = [curve[batch] for batch in BATCHES]
            for (measured, ours), (measured_next, ours_next) in pairwise(points):
                assert measured > measured_next, (name, kind, points)
                assert ours > ours_next, (name, kind, points)


def test_speedups_are_near_the_measured_ones(predicted):
    off = {gain: ours / gain.speedup - 1 for gain, ours in predicted.items()}
    assert sum(map(abs, off.values())) / len(off) <= MEAN_ERROR, off


def test_the_side_of_one_is_right(predicted):
    for gain, ours in predicted.items():
        assert (ours > 1) == (gain.speedup > 1), (gain, ours)
