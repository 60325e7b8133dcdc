"""The plain loop against cases worked out by hand: routers and queues. Every step takes 1 s."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.plain_case import RULES, make_requests, serve
from tests.plain_loop import Fleet

ONE = replace(RULES, max_num_seqs=1)
LONG = 40  # output tokens of a request that outlives its test


def test_round_robin_counts_whom_a_replica_refuses() -> None:
    # Row 1 is too long for any replica, which uses up no turn. Row 5 is refused, since row 3 waits
    # behind row 0, but had its turn: row 6 goes to the other replica, idle from 2.2 on.
    requests = make_requests(
        (0, 4, LONG), (0.1, 1000, 1), (0.2, 4, 1), (0.3, 4, 1), (0.4, 4, 1), (0.5, 4, 1), (3, 4, 1)
    )
    result = serve(requests, ONE, fleet=Fleet(2, queue_limit=1))
    assert result.replica.tolist() == [0, -1, 1, 0, 1, -1, 1]


def test_router() -> None:
    # Row 1 finishes at 1, just as row 2 arrives: its replica has nothing outstanding.
    requests = make_requests((0, 4, 5), (0, 4, 1), (1, 4, 1))
    least = serve(requests, RULES, fleet=Fleet(2, "least_outstanding"))
    turns = serve(requests, RULES, fleet=Fleet(2))
    assert (turns.replica.tolist(), least.replica.tolist()) == ([0, 1, 0], [0, 1, 1])
    assert least.first_token_s.tolist() == [1, 1, 2]


@pytest.mark.parametrize(("refresh_s", "replicas"), [(0, [0, 1, 0, 1, 0]), (2, [0, 0, 1, 1, 0])])
def test_loads_are_looked_at_now_and_then(refresh_s: float, replicas: list[int]) -> None:
    # With a look every 2 s: at 0 both are empty, which still counts at 1; at 2 the first has two
    # requests, which still counts at 3; at 4 both have two.
    requests = make_requests(*((t, 4, LONG) for t in range(5)))
    result = serve(requests, RULES, fleet=Fleet(2, "least_outstanding", refresh_s))
    assert result.replica.tolist() == replicas


def test_power_of_two() -> None:
    # A tie goes to the first drawn. Loads of each pair: 0 0, 0 1, 1 0, 1 1, 1 1.
    draw = Random(10)
    pairs = [draw.sample(range(3), 2) for _ in range(5)]
    assert pairs == [[2, 0], [1, 2], [2, 0], [0, 1], [1, 2]]
    requests = make_requests(*((t, 4, LONG) for t in range(5)))
    result = serve(requests, RULES, fleet=Fleet(3, "power_of_two", seed=10))
    assert result.replica.tolist() == [2, 1, 0, 0, 1]


def test_prefix_affinity() -> None:
    # t  prefixes  home (load) of  most allowed            goes to
    # 0  1         -                                       0, the emptier
    # 1  1         0 (1) of 1      1.25 (1 + 1) / 2 -> 2   0
    # 2  1         0 (2) of 2      1.25 (2 + 1) / 2 -> 2   1: its home is overloaded
    # 3  1         1 (1) of 3      1.25 (3 + 1) / 2 -> 3   1: the home has moved
    # 4  1, 2      1 (2) of 4      1.25 (4 + 1) / 2 -> 4   1: no home for 2, but for 1
    # 5  -         -                                       0: 2 requests there, 3 in the other
    # 6  1, 3      1 (3) of 6      1.25 (6 + 1) / 2 -> 5   1
    one, two, three = [(1, 8)], [(1, 8), (2, 16)], [(1, 8), (3, 16)]
    chains = [one, one, one, one, two, [], three]
    requests = make_requests(*((t, 18, LONG) for t in range(7)), chains=chains)
    rules = replace(RULES, prefix_cache=True, max_num_batched_tokens=64)
    result = serve(requests, rules, fleet=Fleet(2, "prefix_affinity"))
    assert result.replica.tolist() == [0, 0, 1, 1, 1, 0, 1]


def test_the_longest_prefix_decides() -> None:
    # Rows 0, 2, 3 and 4 go to 0, the home of both nodes, and row 1 to 1. Row 5 would be one more
    # than 1.25 (5 + 1) / 2 -> 4 allow, so node 1 moves to 1. The home of node 2 is still 0:
    # 4 requests, less than 1.25 (6 + 1) / 2 -> 5.
    one, two = [(1, 8)], [(1, 8), (2, 16)]
    requests = make_requests(
        *((t, 18, LONG) for t in range(7)), chains=[two, [], one, one, one, one, two]
    )
    rules = replace(RULES, prefix_cache=True, max_num_batched_tokens=64)
    result = serve(requests, rules, fleet=Fleet(2, "prefix_affinity"))
    assert result.replica.tolist() == [0, 1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(("cache", "replica"), [(True, 0), (False, 1)])
def test_a_turn_goes_where_the_turn_before_was(cache: bool, replica: int) -> None:
    # Loads when they are sent: 0 0, 1 0, 1 1, 1 1 (row 0 is done), and 2 1 for the second turn: at
    # home 2 is less than 1.25 (3 + 1) / 2 -> 3. Without a prefix cache there is no home.
    requests = make_requests(
        *((0, 8, 1), (np.nan, 12, 1), (0.25, 4, LONG), (0.5, 4, LONG), (1.25, 4, LONG)),
        turn=[0, 1, 0, 0, 0],
        think_s=[0, 0.5, 0, 0, 0],
        keeps=[9, 0, 0, 0, 0],
        chains=[[], [(9, 8)], [], [], []],
    )
    rules = replace(RULES, prefix_cache=cache)
    result = serve(requests, rules, fleet=Fleet(2, "prefix_affinity"))
    assert result.replica.tolist() == [0, replica, 1, 0, 0]
    assert result.cached_tokens[1] == (8 if cache else 0)


def test_shared_queue() -> None:
    # One place each. Rows 0 and 1 take them until 3 and 2; row 2 gets the second at 2 and keeps
    # it until 4, row 3 the first at 3.
    requests = make_requests((0, 4, 3), (0, 4, 2), (0.5, 4, 2), (0.75, 4, 1))
    result = serve(requests, ONE, fleet=Fleet(2, "shared_queue"))
    assert result.replica.tolist() == [0, 1, 1, 0]
    assert result.schedule_s.tolist() == [0, 0, 2, 3]
    # Half a second outside the engine passes while the router holds them.
    result = serve(requests, replace(ONE, request_s=0.5), fleet=Fleet(2, "shared_queue"))
    assert result.schedule_s.tolist() == [0.5, 0.5, 2.5, 3.5]


def test_queue_limit() -> None:
    # Row 0 runs, row 1 waits, row 2 is refused.
    requests = make_requests((0, 4, 3), (0.5, 4, 1), (0.75, 4, 1), (1, 1000, 1))
    result = serve(requests, ONE, fleet=Fleet(1, queue_limit=1))
    assert result.status.tolist() == ["finished", "finished", "rejected", "rejected"]
    assert result.attempts.tolist() == [1, 1, 1, 1]
    assert result.reasons() == {"queue full": 1, "too long": 1}
    # Outside the engine a request counts as waiting: row 0 until 1, row 2 from then on.
    requests = make_requests((0, 4, 3), (0.5, 4, 1), (1.5, 4, 1))
    result = serve(requests, replace(ONE, request_s=1), fleet=Fleet(1, queue_limit=1))
    assert result.status.tolist() == ["finished", "rejected", "finished"]


def test_queue_limit_of_a_shared_queue() -> None:
    # Two replicas with a place each, and two requests the router may hold.
    requests = make_requests(*((t / 8, 4, LONG) for t in range(5)))
    result = serve(requests, ONE, fleet=Fleet(2, "shared_queue", queue_limit=1))
    assert result.status.tolist() == ["finished"] * 4 + ["rejected"]
