"""Metrics against hand-made tables and queueing theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import requests, single_server

from sim.analysis import metrics, steady
from sim.analysis.metrics import Window
from sim.analysis.slo import goodput_req_s, objectives
from sim.analysis.summary import measure
from sim.histogram import LogHistogram
from sim.tables import Status


def test_latencies_are_differences_of_timestamps():
    table = requests(10)
    assert metrics.ttft_s(table) == pytest.approx(1.0)
    assert metrics.e2e_s(table) == pytest.approx(3.0)
    assert metrics.queue_s(table) == pytest.approx(0.5)
    assert metrics.tpot_s(table) == pytest.approx(2.0 / 20)


def test_a_request_of_one_token_has_no_tpot_and_meets_its_bound():
    table = requests(2, output_tokens=[1, 21])
    assert np.isnan(metrics.tpot_s(table)).tolist() == [True, False]
    assert metrics.meets(table, {"tpot_s": 0.05}).tolist() == [True, False]


def test_requests_that_did_not_finish_have_no_latency():
    table = requests(6, status=[0, *Status])
    for latency in metrics.LATENCIES.values():
        assert np.isnan(latency(table)).tolist() == [False, False, True, True, True, True]
    counts = metrics.counts(table)
    assert list(counts) == ["finished", "rejected", "unfinished", "timed_out", "failed"]
    assert list(counts.values()) == [2, 1, 1, 1, 1]


def test_every_attempt_beyond_the_first_counts_as_sent_again():
    again = requests(4, attempts=[1, 2, 1, 5], finish_s=[9.0, 9.0, 9.0, 5.0])
    assert metrics.resent(again) == 1 + 4
    assert metrics.resent_e2e_s(again) == ((9 - 1) + (5 - 3)) / 2
    assert metrics.resent_e2e_s(requests(4, attempts=[1, 1, 1, 1])) is None
    assert measure([again], LogHistogram(), gpus=1, open_loop=True)["resent"] == 1 + 4


def test_summary_ignores_missing_values():
    values = np.array([np.nan, *range(101)], dtype=np.float64)
    assert metrics.summary(values) == (50, 50, 90, 95, 99)
    assert metrics.summary(np.array([np.nan])) == (None,) * 5


def test_tok_per_s_per_user_is_the_mean_of_each_requests_rate():
    table = requests(2, finish_s=[2.0, 6.0])
    assert metrics.tok_per_s_per_user(table) == pytest.approx((20 / 1.0 + 20 / 4.0) / 2)
    assert metrics.tok_per_s_per_user(requests(1, output_tokens=[1])) is None


def test_throughput_counts_the_part_of_a_request_inside_the_window():
    table = requests(1)
    assert metrics.tok_per_s(table, Window(0.0, 3.0)) == pytest.approx(21 / 3)
    assert metrics.tok_per_s(table, Window(2.0, 3.0)) == pytest.approx(10)
    assert metrics.tok_per_s(table, Window(3.0, 9.0)) == 0
    assert metrics.tok_per_s(table, Window(1.0, 1.0)) is None


def test_throughput_of_a_steady_stream_is_arrival_rate_times_output():
    table = requests(200)
    over = steady.window(table)
    assert over == Window(0.0, 199.0)
    assert metrics.req_per_s(table, over) == pytest.approx(1, abs=0.02)
    assert metrics.tok_per_s(table, over) == pytest.approx(21, rel=0.02)


def test_tau_counts_accepted_tokens_before_the_cut():
    table = requests(2, n_steps=[10, 5], accepted=[11, 4], drafted=[30, 15])
    assert metrics.tau(table) == pytest.approx((15 + 15) / 15)
    assert metrics.acceptance_rate(table) == pytest.approx(15 / 45)


def test_ratios_are_none_where_undefined():
    plain = requests(2, drafted=[0, 0], accepted=[0, 0])
    assert metrics.acceptance_rate(plain) is None
    assert metrics.tau(plain) == 1
    assert metrics.tau(requests(1, n_steps=[0], accepted=[0])) is None
    assert metrics.prefix_hit_rate(requests(1, status=[Status.REJECTED])) is None
    assert metrics.slo_attainment(requests(0), {"ttft_s": 1.0}) is None


def test_prefix_hits_and_preemptions():
    table = requests(2, cached_tokens=[32, 0], prompt_tokens=[100, 60], preemptions=[2, 1])
    assert metrics.prefix_hit_rate(table) == pytest.approx(32 / 160)
    assert metrics.preemptions(table) == 3


def test_slo_counts_failures_as_misses():
    status = [Status.FINISHED] * 6 + [s for s in Status if s is not Status.FINISHED]
    table = requests(10, status=status)
    bounds = {"ttft_s": 1.5, "tpot_s": 0.2}
    assert metrics.slo_attainment(table, bounds) == pytest.approx(0.6)
    assert metrics.slo_attainment(table, {"ttft_s": 0.5}) == 0
    asked = objectives({"ttft_s": {"p95": 1.5}, "attainment": 0.9}, [None])
    assert goodput_req_s(table, asked, Window(0.0, 20.0)) == pytest.approx(6 / 20)


def test_histogram_mean_is_exact_and_quantiles_are_within_half_a_bin():
    gaps = np.random.default_rng(1).lognormal(-4, 1, 5000)
    histogram = LogHistogram()
    for gap in gaps:
        histogram.add(float(gap))
    assert histogram.mean() == pytest.approx(gaps.mean(), rel=1e-12)
    for q in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = np.quantile(gaps, q, method="inverted_cdf")
        assert histogram.quantile(q) == pytest.approx(exact, rel=0.0026)


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.integers(1, 50)), min_size=1, max_size=20))
def test_merged_histograms_equal_one_histogram(gaps):
    whole, left, right = LogHistogram(), LogHistogram(), LogHistogram()
    for number, (gap, count) in enumerate(gaps):
        whole.add(gap, count)
        (left if number % 2 else right).add(gap, count)
    merged = LogHistogram.merged([left, right])
    assert merged == whole
    assert merged.count == whole.count == sum(count for _, count in gaps)


def test_an_empty_histogram_has_no_mean_and_no_quantile():
    assert LogHistogram().mean() is None
    assert LogHistogram().quantile(0.5) is None
    with pytest.raises(ValueError, match=r"0\.\.1"):
        LogHistogram().quantile(1.5)


def test_warmup_finds_the_end_of_a_transient():
    noise = np.random.default_rng(3).normal(0, 0.1, 1000)
    transient = np.where(np.arange(1000) < 200, np.linspace(5, 0, 1000) - 4, 0)
    assert 180 <= steady.warmup_count(1 + noise + transient) <= 230


def test_warmup_keeps_everything_without_a_transient():
    assert steady.warmup_count(np.full(500, 2.3)) == 0
    assert steady.warmup_count(np.arange(7, dtype=np.float64)) == 0


@given(st.lists(st.floats(0, 1e3), max_size=60))
def test_warmup_never_drops_more_than_half(values):
    dropped = steady.warmup_count(np.array(values, dtype=np.float64))
    assert 0 <= dropped <= len(values) / 2


def test_a_stated_share_of_warmup_goes_by_order_of_arrival():
    table = requests(10, arrival_s=np.arange(10.0)[::-1])
    kept = steady.without_warmup(table, 0.3)
    assert sorted(kept["arrival_s"]) == list(range(3, 10))


@pytest.mark.parametrize(
    ("load", "least", "most"), [(0.8, 0.0, 0.0), (1.1, 0.7, 1.0), (1.2, 0.9, 1.0), (5.0, 1.0, 1.0)]
)
def test_saturation_tells_an_overloaded_queue_from_a_stable_one(load, least, most):
    flagged = [steady.saturated(single_server(load, 2000, seed)) for seed in range(60)]
    assert least <= np.mean(flagged) <= most


def test_a_run_shorter_than_its_requests_is_not_saturated():
    random = np.random.default_rng(4)
    arrival = np.cumsum(random.exponential(0.1, 300))
    finish = arrival + 10 * random.lognormal(0, 0.7, 300)
    table = requests(300, arrival_s=arrival, schedule_s=arrival, finish_s=finish)
    assert not steady.saturated(table)
    assert steady.short_run(table)
    later = requests(300, arrival_s=10 * arrival, finish_s=9 * arrival + finish)
    assert not steady.short_run(later)
    assert not steady.short_run(requests(300, arrival_s=np.zeros(300)))


def test_a_growing_queue_in_front_of_long_requests_is_saturated():
    # 40 of 60 requests a second are served: the queue grows to 12 s before 15 s of service.
    arrival = np.arange(2160) / 60
    schedule = arrival + 12 * arrival / arrival[-1]
    table = requests(2160, arrival_s=arrival, schedule_s=schedule, finish_s=schedule + 15)
    assert steady.saturated(table)


def test_requests_cut_off_by_the_clock_mean_saturation():
    status = np.full(100, Status.FINISHED, dtype=np.int8)
    status[-2:] = Status.UNFINISHED
    assert steady.saturated(requests(100, status=status))
    for gave_up in (Status.REJECTED, Status.TIMED_OUT, Status.FAILED):
        status[-2:] = gave_up
        assert not steady.saturated(requests(100, status=status))


@pytest.mark.parametrize("gone", [Status.REJECTED, Status.TIMED_OUT, Status.FAILED])
def test_requests_that_gave_up_are_no_backlog(gone):
    table = single_server(0.6, 2000, 1)
    table["status"][::2] = gone
    table["finish_s"][::2] = np.nan
    assert not steady.saturated(table)
    assert not steady.overloaded(table)
    assert not steady.unsettled(table)
    table["status"][::2] = Status.UNFINISHED
    assert steady.saturated(table)
    assert steady.overloaded(table)


def test_littles_law_holds_over_a_long_stable_run():
    table = single_server(0.7, 20_000, 5)
    little = steady.little(table, Window(1000.0, 25_000.0))
    assert little.in_system == pytest.approx(little.expected_in_system, rel=0.01)
    assert little.in_system == pytest.approx(0.7 / 0.3, rel=0.15)


def test_littles_law_fails_when_arrivals_go_missing():
    table = single_server(0.7, 20_000, 5)
    table["finish_s"] = table["finish_s"] + np.where(table["arrival_s"] < 5000, 50.0, 0.0)
    little = steady.little(table, Window(5000.0, 6000.0))
    assert little.in_system > 1.2 * little.expected_in_system


def test_window_of_a_burst_runs_to_the_last_finish():
    assert steady.window(requests(5, arrival_s=np.zeros(5))) == Window(0.0, 7.0)


def test_measure_pools_replications_and_checks_the_slo():
    histogram = LogHistogram()
    histogram.add(0.2, 20)
    slo = {"ttft_s": {"p95": 1.2}, "attainment": 0.9}
    row = measure(
        [requests(100), requests(100)], histogram, gpus=4, open_loop=True, warmup=0.0, slo=slo
    )
    assert row["ttft_s"]["p99"] == pytest.approx(1.0)
    assert row["itl_s"]["mean"] == pytest.approx(0.2)
    assert row["tok_per_s_per_gpu"] == pytest.approx(21 / 4, rel=0.03)
    assert row["offered_req_per_s"] == pytest.approx(1.0)
    assert row["finished"] == 200
    assert row["saturated"] is False
    assert row["slo"]["met"] is True
    assert row["slo"]["attainment"] == 1.0
    assert row["slo"]["goodput_req_s"] == pytest.approx(row["req_per_s"])


def test_measure_promises_no_latency_when_saturated():
    table = single_server(2.0, 1000, 1)
    row = measure([table], LogHistogram(), gpus=1, open_loop=True, slo={"attainment": 0.99})
    assert row["saturated"] is True
    assert row["slo"] is None
    assert set(row["e2e_s"].values()) == {None}
    assert row["req_per_s"] == pytest.approx(1.0, rel=0.15)
    assert row["served_req_per_s"] == pytest.approx(1.0, rel=0.15)
    assert math.isclose(row["offered_req_per_s"], 2.0, rel_tol=0.1)
    closed = measure([table], LogHistogram(), gpus=1, open_loop=False)
    assert closed["saturated"] is False
    assert closed["e2e_s"]["mean"] is not None
