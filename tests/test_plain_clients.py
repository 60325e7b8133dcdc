"""The plain loop against cases worked out by hand: clients that give up. Every step takes 1 s."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.plain_case import RULES, column, gaps, make_requests, serve
from tests.plain_loop import Client, Fleet

ONE = replace(RULES, max_num_seqs=1)


def fleet(replicas: int = 1, queue_limit: int | None = None, **client: float) -> Fleet:
    """A fleet whose clients wait for a time that does not vary before they try again."""
    return Fleet(replicas, queue_limit=queue_limit, client=Client(**{"jitter": 0, **client}))


def test_giving_up_in_the_queue_and_in_the_engine() -> None:
    # Row 0 is served 0-2. Row 1 starts at 2, row 2 waits; both clients give up at 2.5: row 2 is
    # gone at once, row 1 at 3, with one token nobody reads. Row 3 is served 3-4.
    requests = make_requests((0, 4, 2), (0, 4, 2), (0, 4, 1), (2, 4, 1))
    result = serve(requests, ONE, fleet=fleet(timeout_s=2.5))
    assert result.status.tolist() == ["finished", "timed_out", "timed_out", "finished"]
    assert result.discarded_tokens.tolist() == [0, 1, 0, 0]
    assert result.output_tokens.tolist() == [2, 0, 0, 1]
    assert np.isnan(result.schedule_s[1:3]).all() and np.isnan(result.first_token_s[1:3]).all()
    assert column(result, "start_s") == [0, 1, 2, 3]
    assert column(result, "emitted") == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("async_scheduling", "schedule_s", "finish_s", "blocks"),
    [
        (False, [4, 5], [7, 6], [1, 2, 2, 2, 3, 3, 2]),
        (True, [5, 6], [8, 7], [1, 2, 2, 2, 2, 3, 3, 3]),
    ],
)
def test_place_and_blocks_of_a_request_given_up(
    async_scheduling: bool, schedule_s: list[float], finish_s: list[float], blocks: list[int]
) -> None:
    # Two places. A's client gives up at 4.5; A is in the step 4-5 with a context of 8: 2 blocks.
    # B comes at 3.5, C at 3.75. Sync: B joins the step 4-5 and C takes A's place at 5.
    # Async: they are known a step later; at 5 A's place and blocks are not yet free, so C takes
    # the place at 6. B's answer at 8 is in time: it was sent 4.5 s before.
    rules = replace(RULES, max_num_seqs=2, async_scheduling=async_scheduling)
    requests = make_requests((0, 4, 9), (3.5, 4, 3), (3.75, 4, 1))
    result = serve(requests, rules, fleet=fleet(timeout_s=4.5))
    assert result.status.tolist() == ["timed_out", "finished", "finished"]
    assert result.schedule_s[1:].tolist() == schedule_s
    assert result.finish_s[1:].tolist() == finish_s
    assert column(result, "blocks_used") == blocks
    # A emits at 1, 2, 3, 4 and 5.
    assert result.discarded_tokens.tolist() == [5, 0, 0]
    assert result.n_steps.tolist() == [4, 2, 0]
    assert gaps(result) == {1.0: 6}


def test_an_answer_nobody_waits_for_is_no_answer() -> None:
    # A would be answered at 3. B, which comes later, makes the run go on.
    requests = make_requests((0, 4, 3), (2.75, 4, 1))
    result = serve(requests, RULES, fleet=fleet(timeout_s=2.5))
    assert result.status.tolist() == ["timed_out", "finished"]
    assert result.discarded_tokens.tolist() == [3, 0]
    assert result.n_steps.tolist() == [2, 0]
    assert np.isnan(result.finish_s[0])


def test_the_run_ends_with_the_last_request() -> None:
    # As above without B: the run is over at 2.5, and the step 2-3 has not been.
    result = serve(make_requests((0, 4, 3)), RULES, fleet=fleet(timeout_s=2.5))
    assert result.status.tolist() == ["timed_out"]
    assert column(result, "start_s") == [0, 1]
    assert result.discarded_tokens.tolist() == [2]


def test_first_token_timeout() -> None:
    # Row 0 has its first token at 1, row 1 gives up at 1.75, row 2 has it at 6, just in time.
    requests = make_requests((0, 4, 5), (0.25, 4, 1), (4.5, 4, 2))
    result = serve(requests, ONE, fleet=fleet(first_token_timeout_s=1.5))
    assert result.status.tolist() == ["finished", "timed_out", "finished"]
    assert result.finish_s[[0, 2]].tolist() == [5, 7]


def test_retries_wait_longer_each_time() -> None:
    # It takes 3 s and the client waits 1.5 s. He sends it at 0, at 1.5 + 1 and at 4 + 2.
    # Steps: 0-1, 1-2; 2.5-3.5, 3.5-4.5; from 6, one; at 7.5 the row ends and so does the run.
    requests = make_requests((0, 4, 3))
    impatient = fleet(timeout_s=1.5, retries=2, backoff_s=1, backoff_factor=2)
    result = serve(requests, RULES, fleet=impatient)
    assert result.status.tolist() == ["timed_out"]
    assert result.reason.tolist() == ["client gave up"]
    assert result.attempts.tolist() == [3]
    assert result.arrival_s.tolist() == [0]
    assert column(result, "start_s") == [0, 1, 2.5, 3.5, 6]
    assert result.n_steps.tolist() == [2]
    assert result.discarded_tokens.tolist() == [5]


def test_only_the_attempt_that_finished_has_times() -> None:
    # Row 1 starts at 2, its client gone from 2.5 on; at 3 it is out, with one token. It is sent
    # again at 3.5 and answered at 5.5, just in time.
    requests = make_requests((0, 4, 2), (0.5, 4, 2))
    result = serve(requests, ONE, fleet=fleet(timeout_s=2, retries=1, backoff_s=1))
    assert result.status.tolist() == ["finished", "finished"]
    assert result.attempts.tolist() == [1, 2]
    assert result.arrival_s.tolist() == [0, 0.5]
    assert result.schedule_s.tolist() == [0, 3.5]
    assert result.first_token_s.tolist() == [1, 4.5]
    assert result.finish_s.tolist() == [2, 5.5]
    assert result.discarded_tokens.tolist() == [0, 1]
    assert column(result, "start_s") == [0, 1, 2, 3.5, 4.5]


def test_jitter() -> None:
    # Row 2 is refused at 0.5; it tries again when the replica is empty and is served at once.
    requests = make_requests((0, 4, 2), (0.25, 4, 1), (0.5, 4, 1))
    u = float(np.random.default_rng([5, 2, 1]).random())
    client = Client(retries=1, backoff_s=8, jitter=0.5)
    result = serve(requests, ONE, fleet=Fleet(queue_limit=1, client=client, seed=5))
    assert result.status.tolist() == ["finished"] * 3
    assert result.attempts.tolist() == [1, 1, 2]
    assert result.arrival_s.tolist() == [0, 0.25, 0.5]
    # 8 s, up to half of it more or less.
    assert result.schedule_s[2] == 0.5 + 8 * (1 + 0.5 * (2 * u - 1))


def test_refused_until_the_client_has_enough() -> None:
    # Refused at 0.5, at 0.5 + 0.5 and at 1 + 1. Too long a request is not sent again.
    requests = make_requests((0, 4, 9), (0.25, 4, 1), (0.5, 4, 1), (0.75, 1000, 1))
    result = serve(requests, ONE, fleet=fleet(queue_limit=1, retries=2, backoff_s=0.5))
    assert result.status.tolist() == ["finished", "finished", "rejected", "rejected"]
    assert result.reason[2:].tolist() == ["queue full", "too long"]
    assert result.attempts.tolist() == [1, 1, 3, 1]


def test_each_attempt_has_its_own_deadline() -> None:
    # Row 2 is refused at 0.5 and sent again at 5. It is served 5-7, past 0.5 + 5.
    requests = make_requests((0, 4, 4), (0.25, 4, 1), (0.5, 4, 2))
    again = fleet(queue_limit=1, timeout_s=5, retries=1, backoff_s=4.5)
    result = serve(requests, ONE, fleet=again)
    assert result.finish_s.tolist() == [4, 5, 7]


@pytest.mark.parametrize("users", [None, 1])
def test_giving_up_ends_the_session(users: int | None) -> None:
    # The client of row 0 gives up at 1.5, and never sends row 1. Row 2 is sent at 4, or by the
    # user of the closed loop after a pause of 3 s.
    requests = make_requests(
        (0, 4, 3), (np.nan, 4, 1), (4, 4, 1), turn=[0, 1, 0], think_s=[9, 9, 3], users=users
    )
    result = serve(requests, RULES, fleet=fleet(timeout_s=1.5))
    assert result.status.tolist() == ["timed_out", "rejected", "finished"]
    assert result.arrival_s.tolist() == [0, 1.5, 4.5 if users else 4]
    assert result.attempts.tolist() == [1, 0, 1]


def test_routers_count_clients_that_wait() -> None:
    # At 1.75 row 0 is in the step 1-2 of the first replica, but its client is gone since 1.5: both
    # replicas have as many requests as the other, none and none.
    requests = make_requests((0, 4, 9), (0.25, 4, 1), (1.75, 4, 1))
    impatient = fleet(2, timeout_s=1.5)._replace(router="least_outstanding")
    assert serve(requests, RULES, fleet=impatient).replica.tolist() == [-1, 1, 0]


def test_who_gives_up_makes_room_for_those_the_router_holds() -> None:
    # One place. At 1.75 the client of row 0 is gone, and row 1 is handed over; at 1.875 its own is
    # gone, and row 2, held since 1.5, is. Row 0 leaves the place at 2.
    requests = make_requests((0, 4, 9), (0.125, 4, 1), (1.5, 4, 1))
    result = serve(requests, ONE, fleet=fleet(timeout_s=1.75)._replace(router="shared_queue"))
    assert result.status.tolist() == ["timed_out", "timed_out", "finished"]
    assert result.schedule_s[2] == 2


@pytest.mark.parametrize(
    ("first", "keeps", "chain", "second", "cached"),
    [
        ((0, 10, 9), 0, [(1, 8)], (5, 10, 1), 8),
        ((0, 30, 9), 0, [(1, 24)], (5, 25, 1), 16),
        ((0, 6, 4), 9, [(9, 9)], (5, 9, 1), 0),
    ],
)
def test_what_a_request_given_up_leaves_in_the_cache(
    first: tuple[float, int, int],
    keeps: int,
    chain: list[tuple[int, int]],
    second: tuple[float, int, int],
    cached: int,
) -> None:
    # It is out at 2. Nine tokens a step: a prompt of 10 is computed and the node whole; of one of
    # 30, 18 tokens are computed, 4 full blocks of the node. What is its own nobody finds.
    rules = replace(RULES, prefix_cache=True, max_num_batched_tokens=9)
    chains = [[] if keeps else chain, chain]
    requests = make_requests(first, second, keeps=[keeps, 0], chains=chains)
    result = serve(requests, rules, fleet=fleet(timeout_s=1.75))
    assert result.status.tolist() == ["timed_out", "finished"]
    assert result.cached_tokens[1] == cached
