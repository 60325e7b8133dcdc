"""The plain loop against cases small enough to work out by hand. Every step takes 1 s."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim.engine.rules import Rules
from tests import server
from tests.plain_loop import Reference, simulate
from tests.random_case import Paths, random_case

RULES = replace(
    server.RULES,
    max_num_seqs=4,
    max_num_batched_tokens=16,
    max_model_len=1000,
    block_tokens=4,
    n_blocks=100,
)


def make_requests(*rows: tuple[float, int, int], **more: Any) -> SimpleNamespace:
    """Make requests of (arrival, prompt, output)."""
    arrival_s, prompt, output = zip(*rows, strict=True)
    fields = {
        "arrival_s": np.array(arrival_s, dtype=float),
        "prompt_tokens": np.array(prompt),
        "output_tokens": np.array(output),
        "group": np.zeros(len(rows), dtype=int),
        "prefix_tokens": np.zeros(len(rows), dtype=int),
        "users": None,
        "think_s": 0.0,
    }
    return SimpleNamespace(**(fields | more))


def make_paths(requests: SimpleNamespace, *steps: list[int]) -> Paths:
    """Make paths of what each step emits; without any, one token a step."""
    emitted = steps or tuple([1] * (int(tokens) - 1) for tokens in requests.output_tokens)
    flat = np.array([tokens for path in emitted for tokens in path], dtype=int)
    offsets = np.cumsum([0, *(len(path) for path in emitted)])
    return Paths(offsets, flat, np.ones_like(flat) if steps else flat * 0, None, None)


def serve(requests: SimpleNamespace, rules: Rules, *steps: list[int], **more: Any) -> Reference:
    return simulate(requests, make_paths(requests, *steps), rules, lambda *work: 1.0, **more)


def column(result: Reference, name: str) -> list[Any]:
    return [getattr(step, name) for step in result.steps]


def gaps(result: Reference) -> dict[float, int]:
    total: Counter[float] = Counter()
    for gap_s, count in result.itl:
        total[gap_s] += count
    return dict(total)


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


@pytest.mark.parametrize("prefix", [0, 8, 12])
def test_preemption_of_an_unfinished_prefill(prefix: int) -> None:
    # A: 7 + 3, B: 16 + 1, six blocks, budget 8.
    # 0-1: A 7 tokens (2 blocks), B 1 (all its 4 blocks).  1-2: A decodes, B 7 more: 8 in all.
    # 2-3: A context 9: a third block; B goes, its 2 full blocks are freed last. A finishes.
    # 3-4: B finds 8 tokens, its own or its group's, and computes the other 8.
    rules = replace(RULES, n_blocks=6, max_num_batched_tokens=8, prefix_cache=True)
    shared = {"group": np.array([0, 1]), "prefix_tokens": np.array([0, prefix])}
    result = serve(make_requests((0, 7, 3), (0, 16, 1), **shared), rules)
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


@pytest.mark.parametrize(
    ("drop", "cached", "chunks", "blocks"), [(False, 8, 4, 4), (True, 4, 12, 5)]
)
def test_prefix_group(drop: bool, cached: int, chunks: int, blocks: int) -> None:
    # All share 8 of 10 prompt tokens: 2 blocks (1 where the last match is dropped), 3 in all.
    # A runs 0-3 and leaves them cached. At 5 B takes them from the cache, and C while B uses
    # them: it needs only its private block (2 where the last match is dropped).
    rules = replace(RULES, prefix_cache=True, drop_matched_block=drop)
    group, prefix = np.array([1, 1, 1]), np.array([8, 8, 8])
    requests = make_requests((0, 10, 3), (5, 10, 3), (5, 10, 3), group=group, prefix_tokens=prefix)
    result = serve(requests, rules)
    assert result.cached_tokens.tolist() == [0, cached, cached]
    assert column(result, "prefill_tokens") == [10, 0, 0, chunks, 0, 0]
    assert column(result, "blocks_used") == [3, 3, 3, blocks, blocks, blocks]
    assert result.finish_s.tolist() == [3, 8, 8]


def test_prefix_group_partly_evicted() -> None:
    # Four blocks. A leaves, oldest first: one never used, its private one, group block 1, 0.
    # D takes three of them, so B still finds group block 0: 4 tokens, 6 to compute.
    rules = replace(RULES, prefix_cache=True, n_blocks=4)
    group, prefix = np.array([1, 0, 1]), np.array([8, 0, 8])
    requests = make_requests((0, 10, 3), (4, 12, 1), (5, 10, 3), group=group, prefix_tokens=prefix)
    result = serve(requests, rules)
    assert result.cached_tokens.tolist() == [0, 0, 4]
    assert column(result, "prefill_tokens") == [10, 0, 0, 12, 6, 0, 0]


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
    # With 2 slots 21 tokens would need 6. A rejected request uses up its turn at the router.
    requests = make_requests((0, 15, 6), (0, 14, 6))
    rules = replace(RULES, max_model_len=20, n_blocks=5)
    result = serve(requests, rules, replicas=2)
    assert result.status.tolist() == ["rejected", "finished"]
    assert result.replica.tolist() == [0, 1]
    assert np.isnan([result.schedule_s[0], result.first_token_s[0], result.finish_s[0]]).all()
    assert result.output_tokens.tolist() == [0, 6]
    assert serve(requests, replace(rules, slots=2)).status.tolist() == ["rejected"] * 2


def test_closed_loop() -> None:
    # User 0 is answered at 1, sends row 2 at 1.5 (served 2-3). User 1: at 2, row 3 at 2.5 (3-4).
    requests = make_requests(
        (0, 4, 1), (0, 4, 2), (np.nan, 4, 1), (np.nan, 4, 1), users=2, think_s=0.5
    )
    result = serve(requests, RULES)
    assert result.arrival_s.tolist() == [0, 0, 1.5, 2.5]
    assert result.finish_s.tolist() == [1, 2, 3, 4]


def test_router() -> None:
    # Row 1 finishes at 1, just as row 2 arrives: its replica has nothing outstanding.
    requests = make_requests((0, 4, 5), (0, 4, 1), (1, 4, 1))
    least = serve(requests, RULES, replicas=2, router="least_outstanding")
    turns = serve(requests, RULES, replicas=2)
    assert (turns.replica.tolist(), least.replica.tolist()) == ([0, 1, 0], [0, 1, 1])
    assert least.first_token_s.tolist() == [1, 1, 2]


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
    result = simulate(case.requests, case.paths, case.rules, case.cost, case.replicas, case.router)
    done = result.status == "finished"
    times = (result.arrival_s, result.schedule_s, result.first_token_s, result.finish_s)
    arrival_s, schedule_s, first_token_s, finish_s = (time[done] for time in times)
    assert (result.output_tokens[done] == case.requests.output_tokens[done]).all()
    started = (arrival_s <= schedule_s) & (schedule_s < first_token_s)
    assert (started & (first_token_s <= finish_s)).all(), case.describe()
    assert sum(count for _, count in result.itl) >= result.n_steps.sum()
