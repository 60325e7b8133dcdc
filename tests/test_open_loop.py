"""Step time alone against the 53 load stages of calibration/data/serving/vllm_0.15.csv.

Repeated real runs differ by 2-6 % among themselves.
"""

from __future__ import annotations

from types import SimpleNamespace

import kernels_page
import pytest

from calibration.validation import open_loop
from calibration.validation import score as scoring
from calibration.validation.open_loop import Stage, errors, score, step_s
from models import catalog
from models.kernels import Kernels

BLOCK = 16


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    return open_loop.stages()


@pytest.fixture(scope="module")
def found(stages):
    kernels = Kernels(catalog.hardware("h100_sxm"), catalog.profile("h100_sxm"))
    return errors(stages, kernels)


def stage_of(**changed) -> Stage:
    plain = Stage(
        transformer="llama-3.1-8b",
        weights="bf16",
        tp=1,
        stage=1,
        rate_per_s=10.0,
        duration_s=600.0,
        prompt_tokens=160,
        output_tokens=101,
        max_num_batched_tokens=2048,
        kv_blocks=28228,
        ttft_s=0.05,
        tpot_s=0.01,
        e2e_s=1.05,
        run="by hand",
    )
    return plain._replace(**changed)


def test_every_stage_that_was_not_overloaded_is_scored(stages):
    assert len(stages) == 53
    counts = {name: sum(s.transformer == name for s in stages) for name in models_of(stages)}
    assert counts == {
        "codellama-34b": 7,
        "llama-2-70b": 7,
        "llama-2-7b": 6,
        "llama-3.1-8b": 16,
        "mixtral-8x7b": 17,
    }


def models_of(stages) -> set[str]:
    return {stage.transformer for stage in stages}


def test_time_per_token_is_the_time_of_decoding_over_its_steps(stages):
    for stage in stages:
        decode_s = stage.e2e_s - stage.ttft_s
        assert stage.tpot_s == pytest.approx(decode_s / (stage.output_tokens - 1), rel=1e-3)


def test_steps_are_within_three_percent_of_the_measured_ones(found):
    together = score(found)
    assert together.stages == 53
    assert together.mape <= 0.03, together
    assert together.p90 <= 0.06, together
    assert abs(together.bias) <= 0.015, together


def test_no_model_hides_behind_the_others(found):
    for name in models_of(error.stage for error in found):
        of_model = score(error for error in found if error.stage.transformer == name)
        assert of_model.mape <= 0.04, (name, of_model)


def test_errors_of_the_step_stand_beside_those_of_latencies(found):
    frame = open_loop.outcomes()
    assert set(frame["metric"]) == {"step_s"} and frame["scored"].all()
    assert not frame["in_sample"].any()
    assert frame["relative"].tolist() == pytest.approx([error.relative for error in found])
    runs = [case.rsplit("-", 1)[-1] for case in frame["case"]]
    assert runs == [str(error.stage.stage) for error in found]
    summed = scoring.errors(frame).iloc[0]
    together = score(found)
    assert summed["mape"] == pytest.approx(together.mape)
    assert summed["bias"] == pytest.approx(together.bias)


def test_scores_are_those_of_the_errors():
    off = [SimpleNamespace(relative=relative) for relative in (-0.02, 0.01, 0.03, 0.0, -0.12)]
    assert score(off) == pytest.approx((5, 0.036, 0.02, 0.084, -0.02))


def test_concurrency_is_arrivals_times_time_in_decoding():
    assert stage_of().decoding == pytest.approx(10 * 1.0)


def test_only_the_first_round_of_the_first_stage_computes_prompts_that_fit_the_cache():
    assert stage_of(stage=1).cold_share(BLOCK) == 0
    assert stage_of(stage=0).cold_share(BLOCK) == pytest.approx(100 / 6000)


def test_prompts_that_do_not_stay_in_the_cache_are_computed_every_time(stages):
    # 100 prompts of 10 blocks, and 7 blocks of output of each of the 10 that run.
    assert stage_of(kv_blocks=1070).cold_share(BLOCK) == 0
    assert stage_of(kv_blocks=1069).cold_share(BLOCK) == 1
    cold = [stage.run for stage in stages if stage.cold_share(BLOCK) == 1]
    assert cold == ["67-llama-2-7b-hf-tp1-reasoning-lite-1-1"]


class Steps:
    """Step time by hand: 5 ms, 0.1 ms a sequence, 1 us a context token, 1 ms a prompt token."""

    deployed = SimpleNamespace(engine=SimpleNamespace(block_tokens=BLOCK))

    def mixed(self, n, ctx, query, query_ctx, prefill=0, prefill_ctx=0, pairs=0, finishing=0):
        assert query == n and query_ctx == ctx
        assert prefill_ctx == (160 if prefill else 0)
        assert pairs == prefill * (160 - prefill) + prefill**2 / 2
        assert finishing == (prefill > 0)
        return 5e-3 + 1e-4 * n + 1e-6 * ctx + 1e-3 * prefill


def test_a_step_decodes_the_running_sequences_and_its_share_of_the_prompts():
    # Ten sequences of 160 + 101/2 tokens; of a prompt of ten blocks the last is never a hit.
    decode_s = 5e-3 + 10 * 1e-4 + 10 * 210.5e-6
    found_s = step_s(stage_of(), Steps())
    assert found_s == pytest.approx(decode_s + 10 * found_s * 16e-3)


def test_a_step_computes_whole_prompts_that_miss_the_cache():
    decode_s = 5e-3 + 2 * (1e-4 + 210.5e-6)
    found_s = step_s(stage_of(rate_per_s=2.0, kv_blocks=0), Steps())
    assert found_s == pytest.approx(decode_s + 2 * found_s * 160e-3)
    with pytest.raises(ValueError, match="prompts alone"):
        step_s(stage_of(kv_blocks=0), Steps())


def test_a_fraction_of_a_sequence_counts_as_such():
    half = stage_of(e2e_s=1.10, rate_per_s=10.0)
    decode_s = 5e-3 + 10.5 * (1e-4 + 210.5e-6)
    assert step_s(half, Steps()) == pytest.approx(decode_s / (1 - 10 * 16e-3))


def test_the_kernels_page_shows_these_errors():
    text = kernels_page.PAGE.read_text("utf-8")
    for name, lines in (
        ("open-loop", kernels_page.whole_steps()),
        ("verification", kernels_page.verification()),
    ):
        assert kernels_page.replaced(text, name, lines) == text, "run make kernels-page"
