"""What a run reports: rows, speedups, saturation, break-even, bands, grids, replications."""

from __future__ import annotations

from typing import Any

import pytest

from models.strict_yaml import load_yaml
from sim import experiment
from sim.scenario.load import parse_scenario

Row = dict[str, Any]

BASE = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
engine: {name: vllm_0.15, max_num_seqs: 128}
workload:
  arrivals: {kind: poisson, rate_per_s: 6}
  requests: 400
  streams:
    - prompt_tokens: {kind: lognormal, mean: 400, cv: 0.6}
      output_tokens: {kind: lognormal, mean: 150, cv: 0.6}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, acceptance: {tau: 2.3}}
run: {band: false}
"""
CLOSED = "workload.arrivals={kind: closed_loop, users: 32}"
EAGLE = "eagle3 K=3"
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")


def document(*overrides: str, text: str = BASE) -> dict[str, Any]:
    return experiment.run(parse_scenario(load_yaml(text, "x.yaml"), overrides)).document


def rows(*overrides: str, text: str = BASE) -> dict[str, Row]:
    return {row["strategy"]: row for row in document(*overrides, text=text)["rows"]}


def test_the_document_has_every_documented_key():
    made = document("run.band=true")
    assert set(made) == {"scenario", "seed", "profile", "rows"}
    assert made["seed"] == 1
    assert made["profile"] == "h100_sxm"
    for row in made["rows"]:
        assert set(row) >= {
            *("strategy", "point", *LATENCIES, "tok_per_s_per_user", "tok_per_s_per_gpu"),
            *("req_per_s", "tau", "break_even_tau", "acceptance_rate", "kv_use_peak"),
            *("kv_free_bytes", "prefix_hit_rate", "preemptions", "finished", "rejected"),
            *("unfinished", "timed_out", "failed", "resent", "saturated", "slo", "streams"),
            *("windows", "speedup", "band", "verdict"),
        }
        for name in LATENCIES:
            assert list(row[name]) == ["mean", "p50", "p90", "p95", "p99"]
            assert row[name]["p50"] <= row[name]["p90"] <= row[name]["p95"] <= row[name]["p99"]


def test_memory_of_a_gpu_and_a_decode_step_are_split_without_a_rest():
    for row in document()["rows"]:
        budget = row["kv_budget_bytes"]
        whole = sum(budget[name] for name in ("unused", "weights", "draft", "reserve", "kv"))
        assert whole == pytest.approx(budget["memory"])
        assert budget["kv_peak_used"] / budget["kv"] == pytest.approx(row["kv_use_peak"], rel=0.01)
        assert (budget["draft"] > 0) == (row["strategy"] == EAGLE)
        step = row["step_s"]
        tpot = sum(step["components"].values()) / row["tau"]
        # Prefills of others share steps, so a token takes a little longer than a decode step.
        assert 0.8 * row["tpot_s"]["mean"] < tpot < row["tpot_s"]["mean"]
        assert step["batch"] >= 1
        assert 400 < step["context"] < 700


def test_a_run_that_never_decodes_has_no_decode_step():
    one = "{kind: fixed, value: 1}"
    found = rows(f"workload.streams=[{{output_tokens: {one}}}]")
    assert found["autoregressive"]["step_s"] is None


def test_speedup_of_an_open_loop_is_the_ratio_of_times_per_token():
    found = rows()
    plain, eagle = found["autoregressive"], found[EAGLE]
    assert plain["speedup"] is None
    assert eagle["speedup"] == pytest.approx(plain["tpot_s"]["mean"] / eagle["tpot_s"]["mean"])
    # Both serve all that is offered, so throughput says nothing here.
    assert eagle["tok_per_s_per_gpu"] == pytest.approx(plain["tok_per_s_per_gpu"], rel=0.05)
    assert eagle["speedup"] > 1.3


def test_speedup_of_a_closed_loop_is_the_ratio_of_throughputs():
    found = rows(CLOSED)
    plain, eagle = found["autoregressive"], found[EAGLE]
    ratio = eagle["tok_per_s_per_gpu"] / plain["tok_per_s_per_gpu"]
    assert eagle["speedup"] == pytest.approx(ratio)
    assert 1.1 < ratio < plain["tpot_s"]["mean"] / eagle["tpot_s"]["mean"]
    assert plain["speedup"] is None


def test_overload_is_flagged_and_promises_nothing():
    found = rows("workload.arrivals.rate_per_s=60", "workload.requests=1500", "run.band=true")
    plain, eagle = found["autoregressive"], found[EAGLE]
    for row in (plain, eagle):
        assert row["saturated"]
        assert row["speedup"] is None
        assert row["band"] == {}
        assert all(value is None for name in LATENCIES for value in row[name].values())
        assert row["tok_per_s_per_user"] is None
        assert row["verdict"].startswith("saturated")
        assert row["served_req_per_s"] < 0.9 * row["offered_req_per_s"]
        assert row["finished"] == 1500
    assert not any(row["saturated"] for row in rows().values())


def test_a_strategy_that_keeps_up_beside_a_saturated_baseline_has_no_speedup():
    found = rows(
        "workload.arrivals.rate_per_s=18", "workload.requests=1500", "engine.max_num_seqs=16"
    )
    assert found["autoregressive"]["saturated"]
    assert not found[EAGLE]["saturated"]
    assert found[EAGLE]["speedup"] is None
    assert found[EAGLE]["tpot_s"]["mean"] > 0


@pytest.mark.parametrize(
    "strategy",
    [
        "{kind: eagle3, k: 3, acceptance: {tau: %s}}",
        "{kind: eagle, k: 5, acceptance: {tau: %s}}",
        "{kind: draft_model, k: 3, draft: llama-3.2-1b, acceptance: {tau: %s}}",
        "{kind: ngram, k: 4, acceptance: {tau: %s}}",
    ],
    ids=["eagle3", "eagle", "draft_model", "ngram"],
)
@pytest.mark.parametrize(
    "load",
    [
        "workload.arrivals.rate_per_s=4",
        "workload.arrivals={kind: closed_loop, users: 8}",
        "workload.arrivals={kind: closed_loop, users: 32}",
    ],
    ids=["open", "closed", "prefills everywhere"],
)
def test_at_its_break_even_tau_a_strategy_only_equals_plain_decoding(strategy, load):
    """Prefills included: beside one, plain decoding rides almost free, speculation does not."""

    def at(tau: float) -> Row:
        text = BASE.replace("{kind: eagle3, k: 3, acceptance: {tau: 2.3}}", strategy % tau)
        found = rows(load, "engine.name=vllm_0.10", text=text)
        (row,) = [row for row in found.values() if not row["baseline"]]
        return row

    limit = at(2.0)["break_even_tau"]
    assert 1.0 < limit < 2.5
    assert at(limit)["speedup"] == pytest.approx(1.0, abs=0.025)
    assert at(1 + 0.7 * (limit - 1))["speedup"] < at(limit)["speedup"]
    assert at(limit * 1.1)["speedup"] > 1.03


@pytest.mark.parametrize("engine", ["sglang_0.5", "vllm_v0"])
@pytest.mark.parametrize("users", [1, 16])
@pytest.mark.parametrize("strategy", ["eagle3, k: 3", "ngram, k: 5"])
@pytest.mark.parametrize("prompt", [400, 8000])
def test_break_even_where_prefills_stop_decoding(engine, users, strategy, prompt):
    """Time a sequence sits out while others prefill is no time in a larger batch."""

    def at(tau: float) -> Row:
        ours = f"{{kind: {strategy}, hypothetical: true, acceptance: {{tau: {tau}}}}}"
        text = BASE.replace("{kind: eagle3, k: 3, acceptance: {tau: 2.3}}", ours)
        found = rows(
            f"workload.arrivals={{kind: closed_loop, users: {users}}}",
            f"engine.name={engine}",
            f"workload.requests={100 if users == 1 else 400}",
            text=text.replace("mean: 400", f"mean: {prompt}"),
        )
        (row,) = [row for row in found.values() if not row["baseline"]]
        return row

    assert at(at(1.6)["break_even_tau"])["speedup"] == pytest.approx(1.0, abs=0.025)


def test_break_even_is_a_tau_however_full_the_step():
    """64 tokens a step: a tree of 63 and its root leave no room beside it."""
    text = BASE.replace(
        "{kind: eagle3, k: 3, acceptance: {tau: 2.3}}",
        "{kind: medusa, tree: medusa_63, hypothetical: true}",
    ).replace("llama-3.1-8b", "vicuna-7b")
    found = rows("engine={name: vllm_0.15, max_num_batched_tokens: 64}", text=text)
    (row,) = [row for row in found.values() if not row["baseline"]]
    assert row["break_even_tau"] >= 1


def test_nothing_served_has_no_break_even():
    found = rows("engine.max_model_len=5")
    assert [row["finished"] for row in found.values()] == [0, 0]
    assert [row["break_even_tau"] for row in found.values()] == [None, None]


def test_plain_decoding_breaks_even_nowhere():
    assert rows()["autoregressive"]["break_even_tau"] is None
    assert rows()["autoregressive"]["acceptance_rate"] is None


def test_a_band_contains_its_point_and_widens_with_the_uncertainty_of_tau():
    def bands(uncertainty: float) -> tuple[Row, Row]:
        acceptance = f"strategies[1].acceptance={{tau: 2.3, uncertainty: {uncertainty}}}"
        row = rows("run.band=true", acceptance)[EAGLE]
        return row, row["band"]

    row, sure = bands(0.01)
    _, unsure = bands(0.2)
    points = {name: row[name]["mean"] for name in ("ttft_s", "tpot_s", "e2e_s")}
    points |= {name: row[name] for name in ("speedup", "tok_per_s_per_gpu")}
    assert set(sure) == set(points)
    for name, point in points.items():
        for band in (sure[name], unsure[name]):
            assert band["lo"] <= point <= band["hi"]
            assert band["level"] == 0.9
            assert band["basis"] in ("validated", "extrapolated", "assumed")
    for name in ("tpot_s", "e2e_s", "speedup"):
        assert sure[name]["lo"] < points[name] < sure[name]["hi"]
        assert unsure[name]["lo"] < 0.9 * sure[name]["lo"]
        assert unsure[name]["hi"] > 1.1 * sure[name]["hi"]


def test_vary_gives_a_row_for_each_point_and_strategy():
    grid = "vary:\n  workload.arrivals.rate_per_s: [2, 10]\n  model.tp: [1, 2]\n"
    made = document("workload.requests=60", text=BASE + grid)
    points = [(row["point"], row["strategy"]) for row in made["rows"]]
    assert points == [
        ({"workload.arrivals.rate_per_s": rate, "model.tp": tp}, strategy)
        for rate in (2, 10)
        for tp in (1, 2)
        for strategy in ("autoregressive", EAGLE)
    ]
    assert made["scenario"]["vary"] == {"workload.arrivals.rate_per_s": [2, 10], "model.tp": [1, 2]}


def test_a_varied_point_equals_the_scenario_written_out():
    grid = "vary: {workload.arrivals.rate_per_s: [2, 10]}\n"
    varied = document("workload.requests=60", text=BASE + grid)["rows"][2:]
    alone = document("workload.requests=60", "workload.arrivals.rate_per_s=10")["rows"]
    assert [{**row, "point": {}} for row in varied] == alone


def test_set_wins_over_the_file():
    few = rows("workload.requests=30", "strategies[1].k=2")
    assert set(few) == {"autoregressive", "eagle3 K=2"}
    assert few["autoregressive"]["finished"] == 30


def test_replications_are_pooled():
    one = rows("workload.requests=100", "run.warmup=0")["autoregressive"]
    four = rows("workload.requests=100", "run.warmup=0", "run.replications=4")["autoregressive"]
    assert (one["finished"], four["finished"]) == (100, 400)
    result = experiment.run(
        parse_scenario(
            load_yaml(BASE, "x.yaml"),
            ["workload.requests=100", "run.warmup=0", "run.replications=4"],
        )
    )
    tables = [run.columns for run in result.requests if run.strategy == "autoregressive"]
    times = [table["first_token_s"] - table["arrival_s"] for table in tables]
    assert len(times) == 4
    pooled = sum(float(time.sum()) for time in times) / 400
    assert four["ttft_s"]["mean"] == pytest.approx(pooled)
    assert len({float(time.mean()) for time in times}) == 4
    assert one["ttft_s"]["mean"] == pytest.approx(float(times[0].mean()))


def test_replications_accept_differently_even_where_their_requests_are_the_same():
    same = (
        "workload.arrivals={kind: constant, rate_per_s: 5}",
        "workload.streams=[{prompt_tokens: {kind: fixed, value: 99}, "
        "output_tokens: {kind: fixed, value: 50}}]",
        "workload.requests=40",
        "run.replications=2",
    )
    result = experiment.run(parse_scenario(load_yaml(BASE, "x.yaml"), same))
    one, two = (run.columns for run in result.requests if run.strategy == EAGLE)
    assert (one["arrival_s"] == two["arrival_s"]).all()
    assert (one["accepted"] != two["accepted"]).any()


def test_requests_too_long_are_rejected_and_counted():
    found = rows("engine.max_model_len=700")
    for row in found.values():
        assert 0 < row["rejected"] < 200
        assert row["finished"] == 400 - row["rejected"]
        assert row["unfinished"] == 0
        assert f"{row['rejected']} requests rejected" in row["verdict"]
    assert found[EAGLE]["rejected"] == found["autoregressive"]["rejected"]


def test_requests_larger_than_the_kv_pool_are_rejected_and_counted():
    tight = "engine.gpu_memory_utilization=0.2142"
    found = rows(tight, "workload.requests=100", "workload.arrivals.rate_per_s=0.5")
    eagle = found[EAGLE]
    # Draft weights leave some 50 blocks of 450.
    assert found["autoregressive"]["rejected"] == 0
    assert 0 < eagle["rejected"] < 50
    assert eagle["finished"] + eagle["rejected"] == 100
