"""What is said about a row, and which row is recommended."""

from __future__ import annotations

import numpy as np
import pytest
from rows import band, requests, row, saturated_row

from models.schema import ModelError
from models.strict_yaml import load_yaml
from sim.analysis.summary import measure
from sim.analysis.verdict import best, switch_off, verdict
from sim.explain import explain
from sim.histogram import LogHistogram
from sim.scenario.load import parse_scenario

SCENARIO = """
hardware: {{gpu: h100_sxm}}
model: {{transformer: llama-3.1-8b}}
engine: {{name: {engine}}}
workload: {{arrivals: {{kind: closed_loop, users: 8}}}}
strategies: [{{kind: autoregressive}}, {strategy}]
"""


def explained(strategy: str, engine: str = "vllm_0.15", **asked: int) -> dict[str, object]:
    text = SCENARIO.format(strategy=strategy, engine=engine)
    return explain(parse_scenario(load_yaml(text, "x"), []), **asked)


def test_a_strategy_that_served_nothing_is_not_said_to_keep_up():
    nothing = row(speedup=None, baseline=False, finished=0, rejected=50)
    assert verdict(nothing).startswith("served nothing")
    assert best([row(speedup=None, finished=0), nothing]) is None


def test_closed_loops_compare_tokens_a_second():
    closed = row(speedup=1.25, offered_req_per_s=None, band={"speedup": band(1.25)})
    assert "worth it: 25 % more tokens a second at equal users" in verdict(closed)
    slower = row(speedup=0.8, offered_req_per_s=None, band={"speedup": band(0.8)})
    assert "20 % fewer tokens a second" in verdict(slower)
    opened = row(speedup=1.25, band={"speedup": band(1.25)})
    assert "worth it: 20 % less time per token" in verdict(opened)


def test_without_a_band_nothing_is_called_worth_it():
    assert verdict(row(speedup=1.2, band={})) == "17 % less time per token, no band computed"


def test_an_overloaded_row_tells_what_it_served_while_requests_arrived():
    text = verdict(saturated_row("x", offered_req_per_s=12.0, served_req_per_s=8.0, req_per_s=13.0))
    assert text.startswith("saturated: no latency promised; offered 12.0 req/s, served 8.00")


def test_what_cannot_pay_off_is_not_given_a_target():
    hopeless = row(tau=2.5, break_even_tau=6.0, tau_max=5)
    assert switch_off(hopeless) == "cannot pay off at this batch: needs tau 6.00, 5 at most"
    assert (
        switch_off(row(tau=2.5, break_even_tau=3.0, tau_max=5)) == "would need tau 3.00, has 2.50"
    )


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"short_run": True}, "short run"),
        ({"measured": 12}, "only 12 requests measured"),
        ({"kv_tokens": 29000, "max_model_len": 32768}, "KV holds 29000 tokens, under max_model"),
        ({"rejected": 1, "rejected_because": {"too long": 1}}, "1 request rejected: 1 too long"),
        (
            {"timed_out": 12, "failed": 3},
            "12 requests timed out; 3 failed: lost with a replica, or none was left",
        ),
        ({"timed_out": 1}, "; 1 request timed out"),
        ({"resent": 37}, "; sent again 37 times"),
        ({"resent": 37, "resent_e2e_s": 5.61}, "; sent again 37 times, E2E 5610 ms on average"),
    ],
)
def test_notes(changes, note):
    assert note in verdict(row(**changes))


def test_one_token_answers_cannot_miss_a_bound_on_the_time_per_token():
    table = requests(200, output_tokens=np.ones(200, dtype=np.int64))
    slo = {"tpot_s": {"p95": 0.02}, "attainment": 0.99}
    found = measure([table], LogHistogram(), gpus=1, open_loop=True, warmup=0.0, slo=slo)["slo"]
    assert found["met"]
    assert found["missed"] == []
    assert found["attainment"] == 1.0


def test_explain_compares_every_strategy_at_one_batch_that_fits():
    found = explained("{kind: eagle3, k: 3}", "sglang_0.5", batch=200)
    # SGLang runs at most 48 sequences with speculation
    assert (found["batch"], found["batch_asked"]) == (48, 200)
    assert [r["verify_tokens"] for r in found["rows"]] == [48, 4 * 48]
    long = explained("{kind: eagle3, k: 3}", batch=256, context=30_000)
    assert long["batch"] < 20
    with pytest.raises(ModelError, match="beyond max_model_len 32768, got 100000"):
        explained("{kind: eagle3, k: 3}", context=100_000)


def test_explain_prices_the_mean_width_of_lookups():
    (plain, ngram) = explained("{kind: ngram, k: 3}", batch=64)["rows"]
    # about one step in five finds a match
    assert 1.3 * 64 < ngram["verify_tokens"] < 2.2 * 64
    assert ngram["t_step_s"] == pytest.approx(sum(ngram["components"].values()))
    assert plain["verify_tokens"] == 64


def test_a_row_that_serves_too_few_is_not_chosen_and_says_so():
    kept = row("plain", None)
    given_up = row("eagle3 K=3", 2.0, finished=1000, timed_out=1900, failed=100)
    assert "does not carry this load: 67 % of the requests get nothing" in given_up["verdict"]
    assert best([kept, given_up]) is kept
    assert best([given_up]) is None


def test_an_slo_may_accept_that_some_are_not_served():
    slo = {"attainment": 0.95, "target": 0.9, "missed": [], "met": True, "for_all": True}
    refused = row("plain", None, rejected=90, rejected_because={"queue full": 90}, slo=slo)
    assert best([refused]) is refused
    assert best([{**refused, "slo": {**slo, "for_all": False}}]) is None
    assert best([row("plain", None, rejected=90, rejected_because={"queue full": 90})]) is None


def test_requests_that_never_fit_are_no_lack_of_room():
    long = row("plain", None, rejected=900, rejected_because={"longer than max_model_len": 900})
    assert best([long]) is long
