"""The plain loop against cases worked out by hand: one replica. Every step takes 1 s."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.plain_case import RULES, column, gaps, make_paths, make_requests, serve
from tests.plain_loop import Fleet, simulate
from tests.random_case import random_case
from tests.random_requests import Chain


def test_chunked_prefill() -> None:
    # A: 10 + 3 tokens, B: 12 + 2, budget 16.
    # 0-1 s: all 10 of A, 6 of B. A takes 3 blocks, B its whole 3. pairs = 10^2/2 + 6^2/2 = 68.
    # 1-2 s: A decodes (context 11, needs 11 tokens: 3 blocks); B's last 6: 6*6 + 6^2/2 = 54.
    # 2-3 s: A (context 12, 12 tokens: 3 blocks) and B (context 13, 13 tokens: 4) both finish.
    requests = make_requests((0, 10, 3), (0, 12, 2))
    seen: list[Any] = []

    def cost(*work: float) -> float:
        seen.append(work)
        return 1.0

    result = simulate(requests, make_paths(requests), RULES, cost)
    assert seen == [
        (0, 0, 0, 0, 16, 16, 68, 1),
        (1, 11, 1, 11, 6, 12, 54, 1),
        (2, 25, 2, 25, 0, 0, 0, 0),
    ]
    assert result.schedule_s.tolist() == [0, 0]
    assert result.first_token_s.tolist() == [1, 2]
    assert result.finish_s.tolist() == [3, 3]
    assert column(result, "blocks_used") == [6, 6, 7]
    assert column(result, "emitted") == [1, 2, 2]
    assert gaps(result) == {1.0: 3}


@pytest.mark.parametrize(("async_scheduling", "first_token_s"), [(False, 2), (True, 3)])
def test_async_engine_admits_one_step_later(async_scheduling: bool, first_token_s: int) -> None:
    # B arrives at 0.5 while A's step 0-1 runs. The step 1-2 of an async engine was chosen at 0,
    # so B joins the step 2-3. A, which found the engine idle, starts at once in both.
    rules = replace(RULES, async_scheduling=async_scheduling)
    result = serve(make_requests((0, 4, 6), (0.5, 4, 1)), rules)
    assert result.first_token_s.tolist() == [1, first_token_s]


def test_late_release() -> None:
    # Two places. A (4 + 1) and C (4 + 4) take them, B (4 + 1) waits. A finishes at 1.
    # Sync: B runs 1-2. Blocks: A 1 + C 1; C 2 (5 tokens) + B 1; C 2; C 2.
    # Async: A's place and block are free for the plan at 2 only, B runs 2-3.
    # Blocks: A 1 + C 1; A's late 1 + C 2; C 2 + B 1; B's late 1 + C 2.
    requests = make_requests((0, 4, 1), (0, 4, 4), (0, 4, 1))
    sync = serve(requests, replace(RULES, max_num_seqs=2))
    assert sync.first_token_s.tolist() == [1, 1, 2]
    assert column(sync, "blocks_used") == [2, 3, 2, 2]
    late = serve(requests, replace(RULES, max_num_seqs=2, async_scheduling=True))
    assert late.first_token_s.tolist() == [1, 1, 3]
    assert column(late, "blocks_used") == [2, 3, 3, 3]
    assert column(late, "waiting") == [1, 1, 0, 0]


def test_late_release_when_nothing_runs() -> None:
    # One place: at 1 nothing can run, so A's place is given back at once and B runs 1-2.
    one = replace(RULES, max_num_seqs=1, async_scheduling=True)
    result = serve(make_requests((0, 4, 1), (0, 4, 1)), one)
    assert result.first_token_s.tolist() == [1, 2]


TIGHT = replace(RULES, n_blocks=5, slots=2, width=2)
PAIR = ((0, 4, 9), (0, 4, 7))  # A and B
PAIR_PATHS = ([2, 2, 2, 2], [2, 2, 2])


@pytest.mark.parametrize(
    ("cache", "drop", "recomputed"), [(False, False, 9), (True, False, 1), (True, True, 5)]
)
def test_preemption_by_recompute(cache: bool, drop: bool, recomputed: int) -> None:
    # Five blocks of 4; a decode step needs blocks for context - 1 + 2 tokens.
    # 0-1: prefills, a block each.  1-2: context 5, 6 tokens: 2 blocks each; 3 produced.
    # 2-3: context 7, 8 tokens: still 2 each; 5 produced.
    # 3-4: context 9, 10 tokens: 3 blocks each, one free: B gives up its 2. A: 7 produced.
    # 4-5: A context 11, 12 tokens: 3 blocks, 2 free; B needs 4 + 5 = 9 tokens: 3. It waits.
    #      A has 9 and finishes.
    # 5-6: B recomputes 9 tokens, or what its 2 full blocks (8 verified tokens) do not cover: 1;
    #      where the last matched block is dropped, 5. It emits its 6th token.
    # 6-7: one token is left: the third step of its path emits 1 instead of 2, 1 accepted.
    rules = replace(TIGHT, prefix_cache=cache, drop_matched_block=drop)
    result = serve(make_requests(*PAIR), rules, *PAIR_PATHS, drafted_per_step=1)
    assert result.finish_s.tolist() == [5, 7]
    assert result.first_token_s.tolist() == [1, 1]
    assert result.preemptions.tolist() == [0, 1]
    assert result.n_steps.tolist() == [4, 3]
    assert result.drafted.tolist() == result.accepted.tolist() == [4, 3]
    assert result.cached_tokens.tolist() == [0, 0]
    assert column(result, "prefill_tokens") == [8, 0, 0, 0, 0, recomputed, 0]
    assert column(result, "verify_tokens") == [0, 4, 4, 2, 2, 0, 2]
    assert column(result, "emitted") == [2, 4, 4, 2, 2, 1, 1]
    assert column(result, "blocks_used") == [2, 4, 4, 3, 3, 3, 3]
    assert column(result, "waiting") == [0, 0, 0, 1, 1, 0, 0]
    # B's gap runs from its 5th token at 3 to its 6th at 6.
    assert gaps(result) == {1.0: 7, 3.0: 1}


@pytest.mark.parametrize("chain", [[], [(1, 8)], [(1, 12)], [(1, 4), (2, 8)], [(1, 4), (2, 12)]])
def test_preemption_of_an_unfinished_prefill(chain: Chain) -> None:
    # A: 7 + 3, B: 16 + 1, six blocks, budget 8.
    # 0-1: A 7 tokens (2 blocks), B 1 (all its 4 blocks).  1-2: A decodes, B 7 more: 8 in all.
    # 2-3: A context 9: a third block; B goes, its 2 full blocks are freed last. A finishes.
    # 3-4: B finds 8 tokens, its own or its prefixes', and computes the other 8.
    rules = replace(RULES, n_blocks=6, max_num_batched_tokens=8, prefix_cache=True)
    result = serve(make_requests((0, 7, 3), (0, 16, 1), chains=[[], chain]), rules)
    assert column(result, "prefill_tokens") == [8, 7, 0, 8]
    assert column(result, "blocks_used") == [6, 6, 3, 4]
    assert result.schedule_s.tolist() == [0, 0]
    assert result.first_token_s.tolist() == [1, 4]
    assert gaps(result) == {1.0: 2}


def test_preemption_by_swap() -> None:
    # As above, a quarter of a second a block. 3-4.5: B's 2 blocks go out (0.5 s), A has 3.
    # 4.5-6: the 2 free blocks bring B back (0.5 s more); A decodes alone and finishes.
    # 6-7: B decodes, context 9, 3 blocks: the third step of its path emits its last 2 tokens.
    rules = replace(TIGHT, preemption="swap", swap_s_per_block=0.25)
    result = serve(make_requests(*PAIR), rules, *PAIR_PATHS)
    assert result.finish_s.tolist() == [6, 7]
    assert result.n_steps.tolist() == [4, 3]
    assert result.preemptions.tolist() == [0, 1]
    assert column(result, "start_s") == [0, 1, 2, 3, 4.5, 6]
    assert column(result, "n_decode") == [0, 2, 2, 1, 1, 1]
    assert column(result, "blocks_used") == [2, 4, 4, 3, 5, 3]
    assert column(result, "waiting") == [0, 0, 0, 1, 0, 0]
    assert gaps(result) == {1.0: 4, 1.5: 2, 4.0: 1}


def test_reserve_never_preempts() -> None:
    # A reserves 4 + 9 - 1 + 2 = 14 tokens: 4 of 5 blocks. B's 12 tokens, 3 blocks, wait for 5 s.
    result = serve(make_requests(*PAIR), replace(TIGHT, preemption="never"), *PAIR_PATHS)
    assert result.schedule_s.tolist() == [0, 5]
    assert result.first_token_s.tolist() == [1, 6]
    assert result.finish_s.tolist() == [5, 9]
    assert column(result, "blocks_used") == [4] * 5 + [3] * 4


def test_exclusive_prefill() -> None:
    # B's 20 tokens take the steps 1-2 (16) and 2-3 (4) for themselves; A waits from 1 to 4.
    # Blocks: A 1; A 1 + B 5, twice; A 2 (5 tokens) + B 6 (21 tokens); A 2.
    rules = replace(RULES, exclusive_prefill=True)
    result = serve(make_requests((0, 4, 3), (0.5, 20, 2)), rules)
    assert column(result, "n_decode") == [0, 0, 0, 2, 1]
    assert column(result, "prefill_tokens") == [4, 16, 4, 0, 0]
    assert column(result, "blocks_used") == [1, 6, 6, 8, 2]
    assert result.first_token_s.tolist() == [1, 3]
    assert result.finish_s.tolist() == [5, 4]
    assert gaps(result) == {3.0: 1, 1.0: 2}


def test_rejection() -> None:
    # 15 + 6 > 20 tokens. 14 + 6 fits, and 14 + 6 - 1 + slots 1 = 20 tokens fill 5 blocks.
    # With 2 slots 21 tokens would need 6. A rejected request never comes to the router.
    requests = make_requests((0, 15, 6), (0, 14, 6))
    rules = replace(RULES, max_model_len=20, n_blocks=5)
    result = serve(requests, rules, fleet=Fleet(2))
    assert result.status.tolist() == ["rejected", "finished"]
    assert result.replica.tolist() == [-1, 0]
    assert np.isnan([result.schedule_s[0], result.first_token_s[0], result.finish_s[0]]).all()
    assert result.output_tokens.tolist() == [0, 6]
    assert serve(requests, replace(rules, slots=2)).status.tolist() == ["rejected"] * 2


def test_overhead_and_watermark() -> None:
    # Half a second outside the engine. A takes 2 of 4 blocks; one of the other 2 must stay free
    # while A runs, so B waits for it to finish.
    rules = replace(RULES, request_s=0.5, watermark_blocks=1, n_blocks=4)
    result = serve(make_requests((0, 8, 1), (0, 8, 1)), rules)
    assert result.schedule_s.tolist() == [0.5, 1.5]
    assert result.first_token_s.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("seed", range(40))
def test_random_cases_end_well(seed: int) -> None:
    case = random_case(seed)
    result = simulate(case.requests, case.paths, case.rules, case.cost, case.fleet)
    done = result.status == "finished"
    times = (result.arrival_s, result.schedule_s, result.first_token_s, result.finish_s)
    arrival_s, schedule_s, first_token_s, finish_s = (time[done] for time in times)
    assert (result.output_tokens[done] == case.requests.output_tokens[done]).all()
    started = (arrival_s <= schedule_s) & (schedule_s < first_token_s)
    assert (started & (first_token_s <= finish_s)).all(), case.describe()
    assert sum(count for _, count in result.itl) >= result.n_steps.sum()
    emitted = sum(column(result, "emitted"))
    assert emitted == result.output_tokens.sum() + result.discarded_tokens.sum()
    assert set(result.status) <= {"finished", "rejected", "timed_out", "failed"}
