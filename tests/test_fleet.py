"""Several replicas behind a router: queues, patience, outages; nobody is lost without a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from server import RULES, Cost, poisson, queue_s, simulate_with_rows

from models.acceptance import plain_law
from models.queueing import erlang_c, mmc_wait_s
from sim.engine.bins import MOST_BINS
from sim.engine.fleet import Fleet, Outage
from sim.engine.recorder import Recorder
from sim.engine.simulate import Plan
from sim.run_tables import timeline_columns
from sim.scenario.fleet import Client
from sim.scenario.requests import Prefixes, Requests

TICK_S = 1e-5


def serve(requests: Requests, fleet: Fleet, cost: Cost, seed: int = 1, **rules: Any) -> Recorder:
    plan = Plan(replace(RULES, **rules), cost, plain_law(), 0, fleet=fleet)
    return simulate_with_rows(plan, requests, seed)


def single_steps(rate_per_s: float, seconds: np.ndarray, replication: int = 0) -> Requests:
    """Requests of one step each, as long as stated."""
    ticks = np.maximum(np.rint(seconds / TICK_S), 1).astype(np.int64)
    return replace(poisson(rate_per_s, len(seconds), replication), prompt_tokens=ticks)


def near(values: list[float], expected: float, precision: float) -> None:
    """Within 3 standard errors, which are small enough to tell."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert 3 * error < precision * expected, (3 * error, expected)
    assert abs(np.mean(values) - expected) < 3 * error, (np.mean(values), error, expected)


def tokens_of(run: Recorder) -> int:
    assert run.rows is not None
    return sum(row[9] for row in run.rows)


# A shared queue


def test_one_slot_replicas_with_a_shared_queue_are_m_m_c():
    load, servers, waits, waited = 0.8, 4, [], []
    fleet = Fleet(servers, "shared_queue")
    for replication in range(10):
        services = np.random.default_rng([7, replication]).exponential(1.0, 6000)
        requests = single_steps(load * servers, services, replication)
        run = serve(requests, fleet, Cost(0.0, TICK_S))
        waits.append(float(queue_s(run)[1000:].mean()))
        waited.append(float((queue_s(run)[1000:] > 0).mean()))
    near(waits, mmc_wait_s(load * servers, 1.0, servers), precision=0.2)
    near(waited, erlang_c(load * servers, 1.0, servers), precision=0.08)


def test_a_shared_queue_is_served_in_order_of_arrival():
    services = np.random.default_rng(3).exponential(1.0, 2000)
    run = serve(single_steps(2.7, services), Fleet(3, "shared_queue"), Cost(0.0, TICK_S))
    assert (np.diff(run.log.schedule_s) >= 0).all()
    assert len(set(run.log.replica)) == 3


def test_at_one_slot_the_order_of_finish_is_the_order_of_arrival():
    services = np.random.default_rng(4).exponential(1.0, 2000)
    run = serve(single_steps(0.9, services), Fleet(1), Cost(0.0, TICK_S))
    assert (np.diff(run.log.finish_s) > 0).all()


# Which replica


def mean_wait(router: str, **keys: Any) -> float:
    services = np.random.default_rng(5).exponential(1.0, 8000)
    fleet = Fleet(4, router, **keys)  # type: ignore[arg-type]
    return float(queue_s(serve(single_steps(3.2, services), fleet, Cost(0.0, TICK_S))).mean())


def test_the_more_a_router_knows_the_shorter_the_wait():
    shared, least, two, turns = (
        mean_wait(router)
        for router in ("shared_queue", "least_outstanding", "power_of_two", "round_robin")
    )
    assert shared < least < two < turns
    assert turns > 2 * shared


def test_an_old_signal_sends_a_herd_to_one_replica():
    fresh, old = mean_wait("least_outstanding"), mean_wait("least_outstanding", refresh_s=20.0)
    assert old > 2 * fresh


# Limits and patience


def test_a_full_queue_refuses_and_the_rest_is_served():
    run = serve(poisson(3.0, 500), Fleet(1, queue_limit=2), Cost(1.0))
    assert set(run.log.status) == {"finished", "rejected"}
    assert run.log.refusals == {"queue full": run.log.status.count("rejected")}
    waits = queue_s(run)[np.array(run.log.status) == "finished"]
    assert waits.max() <= 2.0 + 1.0


def test_whoever_waits_too_long_gives_up_and_is_accounted_for():
    fleet = Fleet(1, client=Client(timeout_s=2.5))
    requests = replace(poisson(3.0, 500), output_tokens=np.full(500, 2))
    run = serve(requests, fleet, Cost(0.5), max_num_seqs=1)
    status = np.array(run.log.status)
    assert set(status) == {"finished", "timed_out"}
    sojourn = np.array(run.log.finish_s) - np.array(run.log.arrival_s)
    assert np.nanmax(sojourn) <= 2.5
    assert np.isnan(sojourn[status == "timed_out"]).all()
    discarded = sum(run.log.discarded_tokens)
    assert tokens_of(run) == 2 * (status == "finished").sum() + discarded
    assert discarded > 0


def test_a_first_token_in_time_is_patience_enough():
    fleet = Fleet(1, client=Client(first_token_timeout_s=1.5))
    requests = replace(poisson(0.001, 2), arrival_s=np.array([0.0, 0.2]))
    requests = replace(requests, output_tokens=np.array([40, 40]))
    run = serve(requests, fleet, Cost(1.0), max_num_seqs=1)
    assert run.log.status == ["finished", "timed_out"]


def test_retries_back_off_and_count_as_attempts():
    client = Client(timeout_s=1.0, retries=2, backoff_s=4.0, backoff_factor=3.0, jitter=0.0)
    requests = replace(poisson(1.0, 1), arrival_s=np.array([0.0]), prompt_tokens=np.array([3]))
    run = serve(requests, Fleet(1, client=client), Cost(0.0, 1.0))
    assert (run.log.status, list(run.log.attempts)) == (["timed_out"], [3])
    assert run.rows is not None
    assert [row[1] for row in run.rows] == [0.0, 1.0 + 4.0]
    assert list(run.log.arrival_s) == [0.0]


def test_who_gave_up_leaves_the_batch_when_its_step_ends():
    """It gives up at 2.6 s and leaves at 3 s; the next one has its place from then on."""
    client = Client(timeout_s=2.6, retries=1, backoff_s=7.0, jitter=0.0)
    requests = replace(poisson(1.0, 2), arrival_s=np.array([0.0, 1.5]))
    requests = replace(requests, output_tokens=np.array([9, 1]))
    run = serve(requests, Fleet(1, client=client), Cost(1.0), max_num_seqs=1)
    assert run.log.status == ["timed_out", "finished"]
    assert run.log.schedule_s[1] == 3.0
    assert list(run.log.attempts) == [2, 1]
    assert list(run.log.discarded_tokens) == [3 + 2, 0]


def test_a_second_attempt_may_succeed_and_latency_counts_from_the_first():
    client = Client(retries=1, backoff_s=7.0, jitter=0.0)
    requests = replace(poisson(1.0, 3), arrival_s=np.array([0.0, 0.5, 0.6]))
    requests = replace(requests, output_tokens=np.array([3, 1, 1]))
    run = serve(requests, Fleet(1, queue_limit=1, client=client), Cost(1.0), max_num_seqs=1)
    assert run.log.status == ["finished"] * 3
    assert list(run.log.attempts) == [1, 1, 2]
    assert run.log.arrival_s[2] == 0.6
    assert run.log.finish_s[2] == pytest.approx(0.6 + 7.0 + 1.0)


# Outages


def outage_run(resend: bool = True, up_s: float | None = 130.0) -> Recorder:
    """Two replicas near their capacity; one dies at 100 s."""
    requests = replace(poisson(3.0, 900), output_tokens=np.full(900, 20))
    fleet = Fleet(2, outages=(Outage(0, 100.0, up_s, resend),))
    return serve(requests, fleet, Cost(0.5), max_num_seqs=20)


def test_a_replica_killed_at_the_peak_loses_nobody_and_delays_some():
    run = outage_run()
    log = run.log
    assert set(log.status) == {"finished"}
    again = np.array(log.attempts) > 1
    assert 5 < again.sum() < 40
    sojourn = np.array(log.finish_s) - np.array(log.arrival_s)
    assert sojourn[again].min() > 10.0
    assert sojourn[again].mean() > 1.3 * sojourn[~again].mean()
    assert tokens_of(run) == 20 * 900 + sum(log.discarded_tokens)
    assert sum(log.discarded_tokens) > 0


def test_nothing_happens_on_a_replica_while_it_is_down():
    run = outage_run()
    assert run.rows is not None
    for row in run.rows:
        ends_s = row[1] + row[2]
        assert row[0] == 1 or ends_s <= 100.0 or row[1] >= 130.0
    assert any(row[0] == 0 and row[1] >= 130.0 for row in run.rows)


def test_without_resending_clients_see_errors():
    log = outage_run(resend=False).log
    assert set(log.status) == {"finished", "failed"}
    lost = np.array(log.status) == "failed"
    assert (np.array(log.attempts) == 1).all()
    assert np.isnan(np.array(log.finish_s)[lost]).all()


def test_when_the_last_replica_is_gone_for_good_the_rest_fails():
    requests = poisson(1.0, 100)
    fleet = Fleet(1, outages=(Outage(0, 50.0, None, True),))
    log = serve(requests, fleet, Cost(0.1)).log
    late = np.array(log.arrival_s) > 50.0
    assert (np.array(log.status)[late] == "failed").all()
    assert (np.array(log.status)[~late] == "finished").mean() > 0.95


def test_when_all_are_down_requests_wait_for_the_first_to_come_back():
    requests = poisson(1.0, 100)
    fleet = Fleet(2, outages=(Outage(0, 30.0, 60.0), Outage(1, 31.0, 90.0)))
    log = serve(requests, fleet, Cost(0.1)).log
    assert set(log.status) == {"finished"}
    arrival, start = np.array(log.arrival_s), np.array(log.schedule_s)
    between = (arrival > 31.5) & (arrival < 60.0)
    assert between.any()
    assert (start[between] >= 60.0).all()


def test_the_cache_of_a_replica_dies_with_it():
    group, ends = np.ones(3, dtype=np.int64), np.full(3, 64, dtype=np.int64)
    requests = replace(
        poisson(1.0, 3),
        arrival_s=np.array([0.0, 10.0, 30.0]),
        prompt_tokens=np.full(3, 100),
        prefixes=Prefixes.of_groups(group, ends),
    )
    log = serve(
        requests, Fleet(1, outages=(Outage(0, 20.0, 25.0),)), Cost(0.1), prefix_cache=True
    ).log
    assert list(log.cached_tokens) == [0, 64, 0]


# What the run looked like over time


def test_the_timeline_adds_up_to_the_step_table():
    run = outage_run()
    assert run.rows is not None
    timeline = timeline_columns(run, RULES.n_blocks)
    seconds = np.array([row[2] for row in run.rows])
    assert timeline["steps"].sum() == len(run.rows)
    assert timeline["busy_s"].sum() == pytest.approx(seconds.sum())
    assert timeline["emitted"].sum() == tokens_of(run)
    for name, column in (("waiting", 11), ("kv_use", 10)):
        held = np.array([row[column] for row in run.rows]) * seconds
        scale = RULES.n_blocks if name == "kv_use" else 1
        total = (timeline[name] * timeline["width_s"]).sum() * scale
        assert total == pytest.approx(held.sum())
    assert np.nanmax(timeline["tau"]) == 1.0


def test_bins_widen_so_that_there_are_never_too_many():
    requests = poisson(0.05, 400)
    run = serve(requests, Fleet(1), Cost(1.0))
    timeline = timeline_columns(run, RULES.n_blocks)
    bins, width = len(timeline["start_s"]), timeline["width_s"][0]
    assert MOST_BINS / 2 <= bins <= MOST_BINS
    assert width == 2 ** round(np.log2(width))
    assert timeline["start_s"][-1] + width >= max(run.log.finish_s)
    assert timeline["steps"].sum() == 400
    starts = np.array([row[1] + row[2] for row in run.rows or []])
    counted, _ = np.histogram(starts, bins=np.append(timeline["start_s"], np.inf))
    assert np.abs(np.cumsum(counted) - np.cumsum(timeline["steps"])).max() <= 1


def test_no_bin_holds_more_time_or_memory_than_there_is():
    """Steps of 1.7 s over bins of 1 s."""
    requests = replace(
        poisson(2.0, 60), prompt_tokens=np.full(60, 100), output_tokens=np.full(60, 4)
    )
    run = serve(requests, Fleet(1), Cost(1.7), max_num_seqs=4, n_blocks=40)
    timeline = timeline_columns(run, 40)
    assert timeline["busy_s"].max() <= 1.0 + 1e-9
    assert timeline["kv_use"].max() <= 1.0 + 1e-9
    assert timeline["running"].max() <= 4.0 + 1e-9
    assert timeline["busy_s"].sum() == pytest.approx(1.7 * len(run.rows or []))


def test_every_preemption_is_in_the_timeline():
    requests = replace(
        poisson(2.0, 200),
        prompt_tokens=np.arange(200) % 90 + 10,
        output_tokens=np.full(200, 60),
    )
    run = serve(
        requests, Fleet(1), Cost(0.1), max_num_seqs=16, n_blocks=30, max_num_batched_tokens=64
    )
    assert sum(run.log.preemptions) > 20
    timeline = timeline_columns(run, 30)
    assert timeline["preemptions"].sum() == sum(run.log.preemptions)


def test_a_shared_queue_lets_no_more_wait_in_a_replica_short_of_memory_than_its_limit():
    requests = replace(
        poisson(5.0, 300), prompt_tokens=np.full(300, 160), output_tokens=np.full(300, 30)
    )
    fleet = Fleet(2, "shared_queue", queue_limit=3)
    run = serve(requests, fleet, Cost(0.1), max_num_seqs=64, n_blocks=36)
    assert run.log.refusals["queue full"] > 20
    assert max(row[11] for row in run.rows or []) <= 3 + 1


def test_a_replica_that_dies_again_while_it_loads_comes_back_from_that_or_not_at_all():
    requests = replace(poisson(2.0, 400), output_tokens=np.full(400, 5))
    for second_up_s, back_s in ((150.0, 150.0), (None, np.inf)):
        outages = (Outage(0, 20.0, 60.0), Outage(0, 40.0, second_up_s))
        run = serve(requests, Fleet(2, outages=outages), Cost(0.1), max_num_seqs=50)
        assert set(run.log.status) == {"finished"}
        mine = np.array([row[1] for row in run.rows or [] if row[0] == 0])
        assert not ((mine > 20.0) & (mine < back_s)).any()
        assert (mine >= back_s).any() == np.isfinite(back_s)


def test_turns_after_one_that_outgrew_the_context_say_so():
    requests = replace(
        poisson(1.0, 4),
        arrival_s=np.array([0.0, np.nan, np.nan, 5.0]),
        turn=np.array([0, 1, 2, 0]),
        prompt_tokens=np.array([10, 90, 95, 10]),
        output_tokens=np.full(4, 2),
    )
    log = serve(requests, Fleet(1), Cost(0.1), max_model_len=50).log
    assert log.status == ["finished", "rejected", "rejected", "finished"]
    assert log.refusals == {"longer than max_model_len": 1, "its session outgrew the context": 1}
    assert list(log.attempts) == [1, 1, 0, 1]
