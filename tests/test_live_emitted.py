"""Tokens a step has one meaning, whatever a server counts."""

from __future__ import annotations

import pytest

from calibration.live.server.emitted import drafts_always, tau, tau_of_stages
from calibration.live.server.readings import increase, read
from tests.live_texts import AFTER, BEFORE, LLAMA_CPP, REQUESTS, SGLANG, TRTLLM

EAGLE = "eagle3"


def test_recorded_counters_tell_what_the_requests_tell() -> None:
    counters = increase(read(BEFORE), [read(AFTER)]).counters
    after_first = sum(one["usage"]["completion_tokens"] - 1 for one in REQUESTS)
    # 16 of them were accepted in 6 steps; each other step emitted one.
    assert tau(counters) == pytest.approx(after_first / (after_first - 16))
    assert tau(counters) < 2, "1 + 16 / 6 would be of the steps with a draft alone"


def test_what_the_end_of_a_request_cut_off_makes_no_steps_less_than_those_with_a_draft() -> None:
    # 10 steps of 4 tokens make 40, of which max_tokens let 37 pass.
    counted = {"generation_tokens": 38.0, "requests": 1.0, "spec_accepted": 30.0}
    assert tau({**counted, "spec_drafts": 10.0}) == 4.0
    assert tau({**counted, "generation_tokens": 41.0}) == 4.0


def test_steps_with_a_draft_stand_for_all_only_where_each_has_one() -> None:
    counters = read(LLAMA_CPP).counters
    assert tau(counters, kind="draft_model") == 2.5
    assert tau(counters, kind="ngram") is None
    assert tau(counters) is None
    assert tau(counters, {"tau_gauge": {"mean": 1.5}}, "ngram") == 1.5
    assert tau(read(TRTLLM).counters, kind=EAGLE) == pytest.approx(1.9)
    assert [drafts_always(kind) for kind in (EAGLE, "dynamic_k", None)] == [True, False, False]


def test_tau_of_sglang_comes_from_its_verifications_or_its_gauge() -> None:
    assert tau(read(SGLANG).counters) == pytest.approx(2.5)
    gauges = {"tau_gauge": {"mean": 2.75, "max": 3.0}}
    assert tau({}, gauges) == 2.75
    assert tau({"spec_drafts": 9.0}, gauges) == 2.75
    assert tau({}) is None


def test_a_server_that_never_found_a_draft_emits_one_token_a_step() -> None:
    none = {"spec_drafts": 0.0, "spec_accepted": 0.0}
    assert tau(none, kind=EAGLE) is None
    assert tau({**none, "generation_tokens": 9.0, "requests": 1.0}) == 1.0


def test_stages_pool_their_counters_or_average_their_gauges() -> None:
    one, other = (
        {"spec_drafts": d, "spec_accepted": a} for d, a in ((100.0, 100.0), (300.0, 600.0))
    )
    assert tau_of_stages([one, {}, other], [], EAGLE) == (2.75, "counters")
    gauges = [{"tau_gauge": {"mean": mean}} for mean in (2.0, 3.0)]
    assert tau_of_stages([one], [*gauges, {}], "ngram") == (2.5, "gauge")
    assert tau_of_stages([{}], [{}], EAGLE) == (None, None)
