"""Real servers, recorded: calibrated on two loads of plain decoding, the rest predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from live_cases import FITTED_ON, KINDS, LADDER, calibrated, compared, mape, observed, speedups
from live_page import PAGE, README, sums
from live_page import Found as Shown

from calibration.live.fit.deployed import summed
from calibration.live.server.emitted import tau as tau_of_counters
from sim.analysis import metrics
from sim.tables import Status

MOST = 0.15
UNSEEN = [load for load in LADDER if load not in FITTED_ON]


@pytest.fixture(scope="module")
def one_repeat(tmp_path_factory):
    """Fitted to the first repeat alone, and what is predicted of the first of every server."""
    fit, scenario = calibrated(tmp_path_factory.mktemp("live"), repeats=1)
    return fit, {kind: compared(kind, scenario, repeats=1) for kind in ("plain", "ngram")}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """As docs/live.md has it."""
    fit, scenario = calibrated(tmp_path_factory.mktemp("live"))
    comparisons = {kind: compared(kind, scenario) for kind in KINDS}
    ratios = {kind: speedups(comparisons["plain"], comparisons[kind]) for kind in KINDS[1:]}
    return Shown(fit, comparisons, ratios)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_is_whole(kind: str) -> None:
    seen = observed(kind)
    repeats = 1 + max(stage.replication for stage in seen.stages)
    assert len(seen.stages) == repeats * len(LADDER)
    assert repeats >= (2 if kind == "medusa" else 5)
    for stage, run in zip(seen.stages, seen.runs, strict=True):
        assert set(run.columns["status"]) == {Status.FINISHED}
        assert stage.counters["generation_tokens"] == run.columns["output_tokens"].sum()
        assert stage.counters["prompt_tokens"] == run.columns["prompt_tokens"].sum()
        assert stage.counters["prefix_hits"] == 0


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_servers_counters_and_its_requests_tell_one_tau(kind: str) -> None:
    """The last step of a request may accept what is cut off."""
    rows = metrics.joined([run.columns for run in observed(kind).runs])
    assert tau_of_counters(summed(observed(kind)), kind=kind) == pytest.approx(
        metrics.tau(rows), rel=0.02
    )


def test_steps_are_told_of_every_request_that_drafts_each_time() -> None:
    seen = observed("medusa")
    assert seen.acceptance is not None
    rows = metrics.joined([run.columns for run in seen.runs])
    assert len(seen.acceptance["step"]) == rows["n_steps"].sum()
    assert seen.acceptance["accepted"].sum() == rows["accepted"].sum()


def test_one_repeat_predicts_loads_and_a_strategy_it_has_not_seen(one_repeat) -> None:
    fit, comparisons = one_repeat
    assert [case.stage.point["concurrency"] for case in fit.cases] == list(FITTED_ON)
    for metric in ("tpot_s_mean", "tok_per_s"):
        assert mape(comparisons["plain"], UNSEEN, metric) < MOST
        assert mape(comparisons["ngram"], LADDER, metric) < MOST


def test_these_loads_tell_no_bandwidth(one_repeat) -> None:
    """Reading weights and launching kernels take nearly the same time at both loads."""
    fit, _ = one_repeat
    known = {one.name: one.identified for one in fit.fit.estimates}
    assert known["launches"]
    assert known["compute"]
    assert not known["memory"]


@pytest.mark.extras
def test_all_repeats_predict_loads_and_strategies_they_have_not_seen(everything) -> None:
    for metric in ("tpot_s_mean", "tok_per_s"):
        assert mape(everything.comparisons["plain"], UNSEEN, metric) < MOST
        for kind in KINDS[1:]:
            assert mape(everything.comparisons[kind], LADDER, metric) < MOST


@pytest.mark.extras
def test_speedups_are_on_the_side_the_repeats_agree_on(everything) -> None:
    sure = [one for one in everything.speedups["ngram"] if one.significant]
    assert len(sure) == len(LADDER)
    assert all(one.right for one in sure)
    assert {np.sign(one.measured - 1) for one in sure} == {-1.0, 1.0}


@pytest.mark.extras
def test_the_pages_say_what_is_found(everything) -> None:
    said = "\n".join(sums(everything))
    for page in (PAGE, README):
        assert said in Path(page).read_text("utf-8")
