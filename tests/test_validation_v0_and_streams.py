"""Speculation measured on vLLM V0 and on single streams, against what is predicted."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import pytest
import validated

from calibration.validation import predict, score, side_by_side
from calibration.validation.case import Case
from calibration.validation.suites import medusa_vllm_v0, single_stream, vllm_blog
from calibration.validation.suites.rows import read
from models import catalog


def predicted(cases: Iterable[Case]) -> pd.DataFrame:
    return score.table(side_by_side.predict_all(cases, jobs=1))


def mape(frame: pd.DataFrame) -> float:
    return float(frame.loc[frame["scored"], "relative"].abs().mean())


@pytest.fixture(scope="module")
def medusa() -> pd.DataFrame:
    return validated.frame("medusa_vllm_v0")


@pytest.fixture(scope="module")
def blog() -> pd.DataFrame:
    return validated.frame("vllm_blog")


@pytest.fixture(scope="module")
def streams() -> pd.DataFrame:
    return validated.frame("single_stream")


# vLLM V0


def test_host_times_are_those_the_rows_of_mistral_give():
    rows = read("speculation/medusa_vllm_v0.csv")
    fitted = medusa_vllm_v0.host_us([r for r in rows if r["transformer"] == medusa_vllm_v0.FIT])
    constants = catalog.engine("vllm_v0").constants
    assert {name: constants[name].value for name in fitted} == pytest.approx(fitted, rel=2e-3)


def test_medusa_on_mistral_is_near_and_crosses_between_the_measured_batches(medusa):
    mistral = medusa[(medusa["model"] == "mistral-7b") & (medusa["metric"] == "speedup")]
    assert mape(mistral) <= 0.08
    assert mistral["in_sample"].all()
    by_batch = mistral.set_index("batch")["predicted"]
    assert by_batch["16"] > 1 > by_batch["32"]


def test_medusa_on_llama_is_predicted_by_the_host_times_of_mistral(medusa):
    llama = medusa[(medusa["model"] == "llama-3.1-8b") & (medusa["metric"] == "speedup")]
    assert not llama["in_sample"].any()
    assert mape(llama) <= 0.10
    assert score.sides(llama).all()
    by_batch = llama.set_index("batch")["predicted"]
    assert by_batch["8"] > 1 > by_batch["16"]


def test_medusa_on_mistral_is_predicted_by_the_host_times_of_llama():
    held_out = predicted(medusa_vllm_v0.held_out())
    held_out = held_out[held_out["metric"] == "speedup"]
    assert not held_out["in_sample"].any()
    assert mape(held_out) <= 0.08


def test_the_blog_gains_where_it_gained(blog):
    gains = blog[blog["metric"] == "e2e_speedup"]
    sides = score.sides(gains)
    assert len(sides) == 4
    assert sides.all()
    assert mape(gains.dropna(subset=["predicted"])) <= 0.12


def test_the_blog_loses_where_it_lost(blog):
    """Speculation saturates where it lost; plain decoding does not, even at the highest rates."""
    gains = blog[(blog["metric"] == "e2e_speedup") & (blog["measured"] < 0.95)]
    assert set(gains["rate_per_s"]) == {"8", "10"}
    assert gains["predicted"].isna().all()
    for case in vllm_blog.cases():
        if case.name in set(gains["case"]):
            row = predict.simulate(case)
            assert row["e2e_s"]["mean"] is None
            assert row["plain"]["e2e_s"]["mean"] is not None


# Single streams


def test_steps_of_single_streams_are_as_long_as_harnesses_agree_on(streams):
    ratios = streams[(streams["metric"] == "step_ratio") & streams["scored"]]
    assert mape(ratios) <= 0.12
    assert score.sides(streams).all()
    by_method = ratios.groupby(["strategy", "harness"])["measured"].mean().unstack()
    both = by_method[["EAGLE-3 paper", "Spec-Bench"]].dropna()
    apart = both["Spec-Bench"] / both["EAGLE-3 paper"] - 1
    assert apart.drop("ngram").between(0.1, 0.5).all()
    assert ratios["relative"].abs().max() <= apart.max()


def test_a_speedup_above_its_tau_is_not_scored():
    odd = [case for case in single_stream.cases() if case.measured.get("step_ratio", 1) < 1]
    assert [case.unscored != "" for case in odd] == [True]


@pytest.mark.parametrize("publication", ["vllm_blog", "medusa_vllm_v0", "single_stream"])
def test_no_error_is_a_tenth_of_itself_above_the_stored_one(publication):
    assert validated.worse(publication) == []
