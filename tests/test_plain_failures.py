"""The plain loop against cases worked out by hand: replicas go down. Every step takes 1 s."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.plain_case import RULES, column, make_requests, serve
from tests.plain_loop import Client, Fleet, Outage

ONE = replace(RULES, max_num_seqs=1)


def test_requests_of_a_lost_replica_are_sent_elsewhere() -> None:
    # Row 0 has two tokens when its replica goes down in the step 2-3, which then has never been.
    # The other one takes it into the step 3-4, and it starts from nothing: answered at 8.
    requests = make_requests((0, 4, 5), (0, 4, 9))
    fleet = Fleet(2, "least_outstanding", outages=(Outage(0, 2.5, 10, resend=True),))
    result = serve(requests, RULES, fleet=fleet)
    assert result.replica.tolist() == [1, 1]
    assert result.attempts.tolist() == [2, 1]
    assert result.arrival_s.tolist() == [0, 0]
    assert result.schedule_s.tolist() == [3, 0]
    assert result.finish_s.tolist() == [8, 9]
    assert result.discarded_tokens.tolist() == [2, 0]
    assert result.n_steps.tolist() == [1 + 4, 8]
    assert [step.start_s for step in result.steps if step.replica == 0] == [0, 1]


def test_lost_requests_are_sent_again_in_order() -> None:
    # Two places, both taken at 1.5; row 2 waits. Until 4 the router holds them, in that order.
    requests = make_requests((0, 4, 3), (0.25, 4, 3), (0.5, 4, 1))
    rules = replace(RULES, max_num_seqs=2)
    result = serve(requests, rules, fleet=Fleet(outages=(Outage(0, 1.5, 4, resend=True),)))
    assert result.attempts.tolist() == [2, 2, 2]
    assert result.schedule_s.tolist() == [4, 4, 7]
    assert result.finish_s.tolist() == [7, 7, 8]
    assert result.discarded_tokens.tolist() == [1, 0, 0]


def test_running_requests_are_sent_again_before_waiting_ones() -> None:
    # Two places and five blocks of 4; a decode step emits two tokens. As in the test of
    # preemption, B gives way at 3, to the front of the queue, where C has waited since 0.5.
    # All are lost at 3.5 and sent again in the order A, B, C: from 10 on A and B run, B gives way
    # at 13, A is done at 15, when B resumes with 9 tokens and C starts.
    rules = replace(RULES, n_blocks=5, max_num_seqs=2, slots=2, width=2)
    requests = make_requests((0, 4, 9), (0, 4, 7), (0.5, 4, 1))
    fleet = Fleet(outages=(Outage(0, 3.5, 10, resend=True),))
    result = serve(requests, rules, [2, 2, 2, 2], [2, 2, 2], [], fleet=fleet)
    assert result.preemptions.tolist() == [0, 2, 0]
    assert result.schedule_s.tolist() == [10, 10, 15]
    assert result.finish_s.tolist() == [15, 17, 16]
    assert result.discarded_tokens.tolist() == [5, 5, 0]


@pytest.mark.parametrize(("outages", "cached"), [((), 8), ((Outage(0, 3, 4, True),), 0)])
def test_the_cache_is_empty_afterwards(outages: tuple[Outage, ...], cached: int) -> None:
    rules = replace(RULES, prefix_cache=True)
    requests = make_requests((0, 10, 1), (5, 10, 1), chains=[[(1, 8)]] * 2)
    result = serve(requests, rules, fleet=Fleet(outages=outages))
    assert result.cached_tokens.tolist() == [0, cached]
    assert result.attempts.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("retries", "status", "finish_s"), [(0, "failed", np.nan), (1, "finished", 6.5)]
)
def test_clients_see_an_error(retries: int, status: str, finish_s: float) -> None:
    # Lost at 1.5 with one token, sent again by its client 2 s later.
    client = Client(retries=retries, backoff_s=2, jitter=0)
    fleet = Fleet(client=client, outages=(Outage(0, 1.5, 1.75, resend=False),))
    result = serve(make_requests((0, 4, 3)), RULES, fleet=fleet)
    assert result.status.tolist() == [status]
    assert result.reason.tolist() == ["" if retries else "lost with its replica"]
    assert result.attempts.tolist() == [1 + retries]
    assert result.discarded_tokens.tolist() == [1]
    np.testing.assert_equal(result.finish_s, [finish_s])


def test_resending_is_no_retry_of_the_client() -> None:
    # In the second replica row 3 waits behind row 1. It refuses rows 0 and 2, lost at 0.75, whose
    # clients still have their one retry: at 0.75 + 9 there is room for one of them.
    requests = make_requests((0, 4, 3), (0, 4, 3), (0.25, 4, 1), (0.5, 4, 1))
    client = Client(retries=1, backoff_s=9, jitter=0)
    fleet = Fleet(2, "round_robin", 0, 1, client, (Outage(0, 0.75, None, resend=True),))
    result = serve(requests, ONE, fleet=fleet)
    assert result.status.tolist() == ["finished", "finished", "rejected", "finished"]
    assert result.attempts.tolist() == [3, 1, 3, 1]
    assert result.schedule_s[[0, 1, 3]].tolist() == [9.75, 0, 3]


def test_held_until_a_replica_is_up() -> None:
    # Down from 0.5 to 3. Row 0's half second outside the engine is over by then, row 1's is not.
    requests = make_requests((1, 4, 1), (2.75, 4, 1))
    rules = replace(RULES, request_s=0.5)
    result = serve(requests, rules, fleet=Fleet(outages=(Outage(0, 0.5, 3, resend=True),)))
    assert result.arrival_s.tolist() == [1, 2.75]
    assert result.schedule_s.tolist() == [3, 4]
    assert result.attempts.tolist() == [1, 1]


def test_clients_do_not_wait_longer_for_a_router() -> None:
    # The first is given up at 2.75, still held; the second in the step 3-4, and so ends the run.
    fleet = Fleet(client=Client(timeout_s=2), outages=(Outage(0, 0.5, 3, resend=True),))
    result = serve(make_requests((0.75, 4, 1), (1.5, 4, 1)), RULES, fleet=fleet)
    assert result.status.tolist() == ["timed_out"] * 2
    assert result.attempts.tolist() == [1, 1]
    assert result.steps == []


def test_a_request_sent_again_keeps_its_deadline() -> None:
    # Sent at 0 and lost at 1.5 with one token; from 2 to 4 it produces two more, then time is up.
    fleet = Fleet(client=Client(timeout_s=4), outages=(Outage(0, 1.5, 2, resend=True),))
    result = serve(make_requests((0, 4, 3)), RULES, fleet=fleet)
    assert result.status.tolist() == ["timed_out"]
    assert result.attempts.tolist() == [2]
    assert result.discarded_tokens.tolist() == [3]


def test_a_request_already_given_up_is_not_sent_again() -> None:
    # Its client is gone at 1.25, the replica at 1.5. Row 1 makes the run go on.
    fleet = Fleet(client=Client(timeout_s=1.25), outages=(Outage(0, 1.5, 2, resend=True),))
    result = serve(make_requests((0, 4, 3), (3, 4, 1)), RULES, fleet=fleet)
    assert result.status.tolist() == ["timed_out", "finished"]
    assert result.attempts.tolist() == [1, 1]
    assert result.discarded_tokens.tolist() == [1, 0]
    assert column(result, "start_s") == [0, 3]


@pytest.mark.parametrize("resend", [False, True])
def test_nobody_left(resend: bool) -> None:
    # Nothing will come up again. Row 0 is sent again at 1.5, or at 3.5 by its client, who then
    # learns that it is no use; so does row 1.
    client = Client(retries=3, backoff_s=2, jitter=0)
    fleet = Fleet(client=client, outages=(Outage(0, 1.5, None, resend),))
    result = serve(make_requests((0, 4, 3), (5, 4, 1)), RULES, fleet=fleet)
    assert result.status.tolist() == ["failed", "failed"]
    assert result.reason.tolist() == ["no replica left"] * 2
    assert result.attempts.tolist() == [2, 1]


def test_nobody_left_for_those_the_router_holds() -> None:
    # One place: row 1 is still with the router when the last replica goes down.
    fleet = Fleet(1, "shared_queue", outages=(Outage(0, 1.5, None, resend=False),))
    result = serve(make_requests((0, 4, 3), (0.5, 4, 1)), ONE, fleet=fleet)
    assert result.reason.tolist() == ["lost with its replica", "no replica left"]
    assert result.status.tolist() == ["failed", "failed"]


def test_overlapping_outages() -> None:
    # At 2 it dies while it loads, and comes back from that at 3, not at 5: A runs from 3 to 12.
    outages = (Outage(0, 1, 5, resend=True), Outage(0, 2, 3, resend=True))
    result = serve(make_requests((0.25, 4, 9)), RULES, fleet=Fleet(outages=outages))
    assert result.attempts.tolist() == [2]
    assert result.schedule_s.tolist() == [3]
    assert result.finish_s.tolist() == [12]


def test_a_step_that_ends_as_its_replica_goes_down_has_been() -> None:
    # Row 0 is answered at 2, at which moment row 1 is lost with two of its three tokens.
    requests = make_requests((0, 4, 2), (0, 4, 3))
    result = serve(requests, RULES, fleet=Fleet(outages=(Outage(0, 2, 3, resend=False),)))
    assert result.status.tolist() == ["finished", "failed"]
    assert result.finish_s[0] == 2
    assert result.discarded_tokens.tolist() == [0, 2]
    assert column(result, "start_s") == [0, 1]


def test_retries_are_sent_before_new_requests() -> None:
    # At 3 the client of row 0 tries again (second choice) and row 1 is new (third).
    client = Client(timeout_s=1.5, retries=1, backoff_s=1.5, jitter=0)
    result = serve(make_requests((0, 4, 9), (3, 4, 1)), RULES, fleet=Fleet(2, client=client))
    assert result.status.tolist() == ["timed_out", "finished"]
    assert result.replica.tolist() == [-1, 0]
