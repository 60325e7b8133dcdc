"""The plain loop against cases worked out by hand: prefixes and sessions. Every step takes 1 s."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.plain_case import RULES, column, make_requests, serve

CACHE = replace(RULES, prefix_cache=True)
LATER = np.nan  # it follows from an answer


@pytest.mark.parametrize(
    ("drop", "cached", "chunks", "blocks"), [(False, 8, 4, 4), (True, 4, 12, 5)]
)
def test_prefix_group(drop: bool, cached: int, chunks: int, blocks: int) -> None:
    # All share 8 of 10 prompt tokens: 2 blocks (1 where the last match is dropped), 3 in all.
    # A runs 0-3 and leaves them cached. At 5 B takes them from the cache, and C while B uses
    # them: it needs only its private block (2 where the last match is dropped).
    rules = replace(RULES, prefix_cache=True, drop_matched_block=drop)
    requests = make_requests((0, 10, 3), (5, 10, 3), (5, 10, 3), chains=[[(1, 8)]] * 3)
    result = serve(requests, rules)
    assert result.cached_tokens.tolist() == [0, cached, cached]
    assert column(result, "prefill_tokens") == [10, 0, 0, chunks, 0, 0]
    assert column(result, "blocks_used") == [3, 3, 3, blocks, blocks, blocks]
    assert result.finish_s.tolist() == [3, 8, 8]


def test_prefix_group_partly_evicted() -> None:
    # Four blocks. A leaves, oldest first: one never used, its private one, group block 1, 0.
    # D takes three of them, so B still finds group block 0: 4 tokens, 6 to compute.
    rules = replace(RULES, prefix_cache=True, n_blocks=4)
    chains = [[(1, 8)], [], [(1, 8)]]
    requests = make_requests((0, 10, 3), (4, 12, 1), (5, 10, 3), chains=chains)
    result = serve(requests, rules)
    assert result.cached_tokens.tolist() == [0, 0, 4]
    assert column(result, "prefill_tokens") == [10, 0, 0, 12, 6, 0, 0]


@pytest.mark.parametrize(("drop", "cached"), [(False, [0, 16, 8, 12]), (True, [0, 12, 4, 8])])
def test_chain_of_prefixes(drop: bool, cached: list[int]) -> None:
    # Nodes 1 and 2 cover 8 and 16 tokens: 2 and 4 blocks, or 1 and 3 where the last match is
    # dropped. Node 3 branches off behind node 1 and covers 13 tokens: 3 blocks, or 2.
    first, second = [(1, 8), (2, 16)], [(1, 8), (3, 13)]
    rows = (0, 18, 2), (5, 18, 2), (10, 15, 2), (15, 15, 2)
    requests = make_requests(*rows, chains=[first, first, second, second])
    result = serve(requests, replace(CACHE, drop_matched_block=drop))
    assert result.cached_tokens.tolist() == cached


def test_chain_in_use() -> None:
    # A: 2 blocks of node 1, 2 of node 2, 1 of its own. It decodes from 2 on, with 19 to 26 tokens
    # verified or reserved: a sixth block at 4 (21 tokens), a seventh at 8 (25).
    # B runs from 3 to 4 and shares both nodes: 1 block more. C runs from 5 to 6 and shares node 1;
    # its 10 tokens fill 3 blocks: 1 more.
    chain = [(1, 8), (2, 16)]
    rows = (0, 18, 9), (2.5, 18, 1), (4.5, 10, 1)
    result = serve(make_requests(*rows, chains=[chain, chain, chain[:1]]), CACHE)
    assert result.cached_tokens.tolist() == [0, 16, 8]
    assert column(result, "blocks_used") == [5, 5, 5, 6, 6, 7, 6, 6, 7, 7]


@pytest.mark.parametrize(
    ("drop", "stranger", "cached"), [(False, 12, [0, 0, 12, 16]), (True, 16, [0, 0, 4, 12])]
)
def test_a_hit_ends_at_the_first_node_not_wholly_there(
    drop: bool, stranger: int, cached: list[int]
) -> None:
    # Six blocks. A leaves, oldest first: one never used, 1 private, 2 of node 2, 2 of node 1. The
    # stranger takes 3 of them, and B finds 1 + 2.
    # Where the last match is dropped A leaves one never used, 2 private, 2 of node 2, 1 of node 1.
    # The stranger takes 4; of the 1 + 1 left the last does not count, since its node is not whole.
    # B computes the rest, so C finds both nodes.
    chain = [(1, 8), (2, 16)]
    rows = (0, 18, 1), (5, stranger, 1), (10, 18, 1), (15, 18, 1)
    requests = make_requests(*rows, chains=[chain, [], chain, chain])
    result = serve(requests, replace(CACHE, n_blocks=6, drop_matched_block=drop))
    assert result.cached_tokens.tolist() == cached


def test_nodes_are_shared_by_those_who_count_as_many_blocks() -> None:
    # A prompt of 8 tokens uses 1 block of the node (its last token is always computed), one of 10
    # uses 2.
    rows = (0, 8, 1), (5, 10, 1), (10, 8, 1), (15, 10, 1)
    result = serve(make_requests(*rows, chains=[[(1, 8)]] * 4), CACHE)
    assert result.cached_tokens.tolist() == [0, 0, 4, 8]


def test_nodes_without_a_block_are_left_out() -> None:
    chain = [(1, 2), (2, 9)]
    rows = (0, 10, 1), (5, 10, 1), (10, 10, 1)
    result = serve(make_requests(*rows, chains=[chain, chain, chain[:1]]), CACHE)
    assert result.cached_tokens.tolist() == [0, 8, 0]


@pytest.mark.parametrize(
    ("cache", "drop", "keep", "cached"),
    [(True, False, 9, 8), (True, True, 9, 4), (True, False, 0, 0), (False, False, 9, 0)],
)
def test_a_turn_finds_what_the_turn_before_computed(
    cache: bool, drop: bool, keep: int, cached: int
) -> None:
    # 7 + 5 tokens are done at 5; all but the last one, 11, have been computed: 2 full blocks.
    requests = make_requests(
        (0, 7, 5),
        (LATER, 16, 1),
        turn=[0, 1],
        think_s=[0, 0.5],
        keeps=[keep, 0],
        chains=[[], [(9, 11)] if keep else []],
    )
    result = serve(requests, replace(RULES, prefix_cache=cache, drop_matched_block=drop))
    assert result.arrival_s.tolist() == [0, 5.5]
    assert result.cached_tokens.tolist() == [0, cached]


def test_what_a_turn_leaves_comes_behind_its_own_prefix() -> None:
    # 10 + 3 tokens, 12 computed: 1 block of the system prompt (5 tokens) and 2 behind it. The next
    # turn finds all 3, another session with the same system prompt only the first.
    requests = make_requests(
        (0, 10, 3),
        (LATER, 16, 1),
        (9, 16, 1),
        turn=[0, 1, 0],
        keeps=[9, 0, 0],
        chains=[[(1, 5)], [(1, 5), (9, 12)], [(1, 5)]],
    )
    assert serve(requests, CACHE).cached_tokens.tolist() == [0, 12, 4]


def test_sessions_in_an_open_loop() -> None:
    # Row 0 is answered at 1; row 1 follows 2 s later, whatever row 2 does.
    requests = make_requests(
        (0, 4, 1), (LATER, 4, 1), (0.25, 4, 1), turn=[0, 1, 0], think_s=[7, 2, 7]
    )
    result = serve(requests, RULES)
    assert result.arrival_s.tolist() == [0, 3, 0.25]
    assert result.finish_s.tolist() == [1, 4, 2]


def test_closed_loop() -> None:
    # User 0 is answered at 1, sends row 2 at 1.5 (served 2-3). User 1: at 2, row 3 at 2.5 (3-4).
    requests = make_requests(
        (0, 4, 1), (0, 4, 2), (LATER, 4, 1), (LATER, 4, 1), users=2, think_s=[0.5] * 4
    )
    result = serve(requests, RULES)
    assert result.arrival_s.tolist() == [0, 0, 1.5, 2.5]
    assert result.finish_s.tolist() == [1, 2, 3, 4]


def test_sessions_in_a_closed_loop() -> None:
    # Sessions: rows 0 and 1, row 2, row 3, row 4; two users. Rows 0 and 2 are answered at 1.
    # Row 1 follows half a second later. The user of row 2 is promised the third session, whose
    # pause is 5 s: he sends at 6. The user of row 1, answered at 2.5, is promised the fourth with
    # its pause of 1 s: he sends first, at 3.5, and takes the third.
    requests = make_requests(
        *((0, 4, 1), (LATER, 4, 1), (0, 4, 1), (LATER, 4, 1), (LATER, 4, 1)),
        turn=[0, 1, 0, 0, 0],
        think_s=[9, 0.5, 9, 5, 1],
        users=2,
    )
    result = serve(requests, RULES)
    assert result.arrival_s.tolist() == [0, 1.5, 0, 3.5, 6]
    assert result.finish_s.tolist() == [1, 2.5, 1, 4.5, 7]


def test_a_row_that_is_not_served_ends_its_session() -> None:
    # Row 1, sent at 1.5, is too long; row 2 is never sent. The user goes on 2 s later.
    requests = make_requests(
        *((0, 4, 1), (LATER, 1000, 1), (LATER, 4, 1), (LATER, 4, 1)),
        turn=[0, 1, 2, 0],
        think_s=[9, 0.5, 9, 2],
        users=1,
    )
    result = serve(requests, RULES)
    assert result.arrival_s.tolist() == [0, 1.5, 1.5, 3.5]
    assert result.status.tolist() == ["finished", "rejected", "rejected", "finished"]
    assert result.reason.tolist() == ["", "too long", "its session ended", ""]
    assert result.attempts.tolist() == [1, 1, 0, 1]
