"""The engine driven as textbook queues gives the textbook answers, within 3 standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from invariants import run as run_scenario
from server import Cost, closed_loop, poisson, queue_s, serve

from models.acceptance import Acceptance, chain_law
from models.queueing import erlang_c, mg1_wait_s, mm1_wait_s, mmc_wait_s
from sim.engine.recorder import Recorder
from sim.scenario.workload import Requests

TICK_S = 1e-5
REPLICATIONS = 10
REQUESTS = 6000
WARM = 1000

Draw = Callable[[np.random.Generator, int], np.ndarray]


def near(replications: list[float], expected: float, precision: float) -> None:
    """Within 3 standard errors, and that is a test: the standard error is small enough."""
    mean = np.mean(replications)
    error = np.std(replications, ddof=1) / np.sqrt(len(replications))
    assert 3 * error < precision * expected, (3 * error, expected)
    assert abs(mean - expected) < 3 * error + 1e-9, (mean, error, expected)


def single_server(load: float, draw: Draw, seed: int) -> list[Recorder]:
    """Services of mean 1 s: one step each, as long as the prompt."""
    runs = []
    for replication in range(REPLICATIONS):
        requests = poisson(load, REQUESTS, replication)
        services = draw(np.random.default_rng([seed, replication]), REQUESTS)
        ticks = np.maximum(np.rint(services / TICK_S), 1).astype(np.int64)
        runs.append(serve(replace(requests, prompt_tokens=ticks), Cost(0.0, TICK_S)))
    return runs


def mean_waits(runs: list[Recorder]) -> list[float]:
    return [float(queue_s(run)[WARM:].mean()) for run in runs]


@pytest.fixture(scope="module")
def mm1() -> list[Recorder]:
    return single_server(0.7, lambda random, n: random.exponential(1.0, n), seed=1)


def test_mm1_wait(mm1):
    near(mean_waits(mm1), mm1_wait_s(0.7, 1.0), precision=0.15)


def test_mm1_share_that_waits_is_the_utilisation(mm1):
    near([float((queue_s(run)[WARM:] > 0).mean()) for run in mm1], 0.7, precision=0.05)


def test_mm1_sojourn_is_exponential(mm1):
    rate = 1.0 - 0.7
    for quantile in (0.5, 0.9):
        sojourns = [np.array(run.log.finish_s) - np.array(run.log.arrival_s) for run in mm1]
        found = [float(np.quantile(sojourn[WARM:], quantile)) for sojourn in sojourns]
        near(found, -np.log(1 - quantile) / rate, precision=0.2)


def test_md1_wait_is_half_of_it():
    runs = single_server(0.7, lambda random, n: np.ones(n), seed=2)
    near(mean_waits(runs), mm1_wait_s(0.7, 1.0) / 2, precision=0.15)


@pytest.mark.parametrize("cv", [0.5, 1.5])
def test_mg1_wait_grows_with_the_variance_of_the_service(cv):
    shape = cv**-2
    runs = single_server(0.6, lambda random, n: random.gamma(shape, 1 / shape, n), seed=3)
    near(mean_waits(runs), mg1_wait_s(0.6, 1.0, cv), precision=0.25)


def test_the_server_is_busy_as_long_as_its_work():
    requests = poisson(0.8, 2000, 0)
    recorder = serve(replace(requests, prompt_tokens=np.full(2000, 50)), Cost(0.0, 0.02))
    assert recorder.rows is not None
    busy_s = sum(row[2] for row in recorder.rows)
    assert busy_s == pytest.approx(2000 * 1.0, rel=1e-9)
    assert busy_s / max(recorder.log.finish_s) == pytest.approx(0.8, rel=0.08)


def many_servers(load: float, servers: int, steps: int, n: int, replication: int) -> Recorder:
    """Slots of a batch as servers: each holds its request for a geometric number of steps."""
    requests = poisson(load * servers, n, replication)
    random = np.random.default_rng([4, replication])
    return serve(
        replace(requests, output_tokens=random.geometric(1 / steps, n)),
        Cost(1.0 / steps),
        max_num_seqs=servers,
    )


def test_mmc_wait():
    load, servers, steps = 0.75, 8, 50
    runs = [many_servers(load, servers, steps, 3000, replication) for replication in range(12)]
    # Slots change hands between steps only: half a step more for whoever finds one running.
    boundary = 0.5 / steps
    expected = mmc_wait_s(load * servers, 1.0, servers) + boundary
    near([float(queue_s(run)[500:].mean()) for run in runs], expected, precision=0.25)
    # Longer than one step: it waited for a slot, not for the boundary.
    waited = [float((queue_s(run)[500:] > 1 / steps).mean()) for run in runs]
    near(waited, erlang_c(load * servers, 1.0, servers), precision=0.15)


def test_each_replica_is_the_queue_of_its_own_requests():
    requests = replace(poisson(1.4, 2000), prompt_tokens=np.arange(2000) % 90 + 50)
    both = serve(requests, Cost(0.0, 0.01), replicas=2)
    for number in (0, 1):
        mine = Requests(**{name: _part(value, number) for name, value in vars(requests).items()})
        alone = serve(mine, Cost(0.0, 0.01))
        assert both.log.schedule_s[number::2] == alone.log.schedule_s
        assert list(both.log.replica[number::2]) == [number] * 1000


def _part(value: object, number: int) -> object:
    return value[number::2] if isinstance(value, np.ndarray) else value


def mixed_lengths(requests: Requests) -> Requests:
    random, n = np.random.default_rng(5), len(requests)
    return replace(
        requests,
        prompt_tokens=random.integers(1, 900, n),
        output_tokens=random.integers(1, 60, n),
    )


def test_first_come_first_served():
    requests = mixed_lengths(poisson(30.0, 2000))
    run = serve(requests, Cost(0.02, 1e-5), max_num_seqs=16, max_num_batched_tokens=512)
    assert (np.diff(run.log.schedule_s) >= 0).all()
    assert (np.diff(run.log.first_token_s) >= 0).all()
    assert queue_s(run).max() > 0.1
    assert (np.diff(run.log.finish_s) < 0).any()


EAGLE = chain_law(Acceptance(alpha=0.7, spread=0.0), 3, ("general",))
SPREAD = chain_law(Acceptance(alpha=0.7, spread=1.2), 3, ("general",))


@pytest.mark.parametrize("law", [None, EAGLE], ids=["plain", "chain"])
@pytest.mark.parametrize(
    "arrivals", [poisson(30.0, 1500), closed_loop(24, 1500)], ids=["open", "closed"]
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_littles_law_for_the_queue_and_the_batch(law, arrivals, replicas):
    """Left the step table, right the request table: area under the number = sum of the times."""
    requests = mixed_lengths(arrivals)
    run = serve(requests, Cost(0.02, 1e-5), law, replicas, max_num_seqs=16)
    steps, log = np.array(run.rows), run.log
    seconds, decoding, waiting = steps[:, 2], steps[:, 6], steps[:, 11]
    first, finish = np.array(log.first_token_s), np.array(log.finish_s)
    assert (seconds * decoding).sum() == pytest.approx((finish - first).sum(), rel=1e-9)
    for number in range(replicas):
        mine = np.array(log.replica) == number
        own = steps[:, 0] == number
        starts = steps[own, 1]
        sent = np.searchsorted(np.sort(np.array(log.arrival_s)[mine]), starts, side="right")
        begun = np.searchsorted(np.sort(np.array(log.schedule_s)[mine]), starts, side="right")
        assert (waiting[own] == sent - begun).all()


def decode_s(run: Recorder) -> np.ndarray:
    """Time from the first token to the last [s]."""
    return np.array(run.log.finish_s) - np.array(run.log.first_token_s)


@pytest.mark.parametrize("law", [EAGLE, SPREAD], ids=["identical", "spread"])
def test_tpot_is_the_step_time_over_tau_at_a_fixed_batch(law):
    tokens, step_s = 400, 0.01
    requests = closed_loop(32, 1600)
    requests = replace(requests, output_tokens=np.full(1600, tokens + 1))
    run = serve(requests, Cost(step_s), law, max_num_seqs=32)
    assert run.rows is not None
    assert np.mean([row[6] for row in run.rows[:-300]]) > 31.5
    tpot = decode_s(run) / tokens
    error = tpot.std(ddof=1) / np.sqrt(len(tpot))
    # The last step is cut: under half a step a request is lost to it.
    cut = 0.5 * step_s / tokens
    assert 3 * error < 0.04 * step_s / law.tau
    assert abs(tpot.mean() - step_s / law.tau) < 3 * error + cut
    assert law is EAGLE or tpot.std() > 0.1 * tpot.mean()


def test_tpot_of_unequal_requests_is_the_sum_of_steps_over_the_sum_of_tokens():
    requests = mixed_lengths(closed_loop(32, 800))
    run = serve(requests, Cost(0.01), SPREAD, max_num_seqs=32)
    steps, tokens = sum(run.log.n_steps), int((requests.output_tokens - 1).sum())
    assert decode_s(run).sum() / tokens == pytest.approx(0.01 * steps / tokens, rel=1e-9)
    emitted = sum(row[9] for row in run.rows or [])
    assert emitted == requests.output_tokens.sum()


@pytest.mark.parametrize(("ahead", "first_token_s"), [(False, 4.0), (True, 5.0)])
def test_asynchronous_scheduling_delays_the_first_token_by_one_step(ahead, first_token_s):
    """Sent at 2.5 s into steps of 1 s: the batch of the step at 3 s is chosen at 3 s, or at 2 s."""
    requests = poisson(1.0, 2)
    requests = replace(requests, arrival_s=np.array([0.0, 2.5]), output_tokens=np.array([20, 2]))
    run = serve(requests, Cost(1.0), max_num_seqs=2, async_scheduling=ahead)
    assert run.log.first_token_s == pytest.approx([1.0, first_token_s])
    assert run.log.finish_s == pytest.approx([20.0, first_token_s + 1.0])


FIXED_BATCH = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
engine: {name: vllm_0.10, max_num_seqs: 16, max_num_batched_tokens: 4096}
workload:
  arrivals: {kind: closed_loop, users: 16}
  requests: 16
  streams:
    - prompt_tokens: {kind: fixed, value: 100}
      output_tokens: {kind: fixed, value: 401}
strategies: [%s]
run: {warmup: 0, band: false}
"""


@pytest.mark.parametrize(
    ("strategy", "emitted"),
    [
        ("{kind: autoregressive}", 1),
        ("{kind: eagle, k: 3, acceptance: {alpha: 1}}", 4),
        ("{kind: eagle, k: 3, acceptance: {tau: 1}}", 1),
    ],
    ids=["plain", "all accepted", "none accepted"],
)
def test_tpot_of_a_whole_scenario_is_its_mean_step_time_over_the_tokens_a_step(strategy, emitted):
    """Sixteen equal requests prefilled in one step and decoded together to the end."""
    (ran, *rest) = run_scenario(FIXED_BATCH % strategy)[::-1]
    assert len(rest) <= 1
    contexts = np.arange(101, 101 + 400, emitted)
    steps = [ran.setup.step_time.decode(16, 16 * int(context)) for context in contexts]
    assert ran.row["tpot_s"]["mean"] == pytest.approx(sum(steps) / 400, rel=1e-12)
    assert ran.row["itl_s"]["mean"] == pytest.approx(np.mean(steps), rel=1e-12)
    assert ran.row["tau"] == pytest.approx(emitted)
