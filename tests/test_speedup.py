"""Speculation pays less the more sequences share a step; what it tends to in the limits."""

from __future__ import annotations

from itertools import pairwise

import by_hand
import pytest
from by_hand import KIND, LLAMA_8B, PLAIN, stepping

EAGLE, NGRAM = KIND["eagle"](k=3), KIND["ngram"](k=3)
LARGE = {"max_num_seqs": 2048, "max_num_batched_tokens": 8192}
DOUBLING = [1, 2, 4, 8, 16, 32, 64, 128]
ENGINES = ["vllm_0.10", "vllm_0.15", "tensorrt_llm"]


def ratio(n, strategy=EAGLE, engine="vllm_0.15", ctx=500):
    """Step time over that of plain decoding, at the same batch and context."""
    plain, drafting = (stepping(s, engine=engine, **LARGE) for s in (PLAIN, strategy))
    return drafting.decode(n, ctx * n) / plain.decode(n, ctx * n)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_speculating_step_costs_relatively_more_at_every_larger_batch(engine):
    ratios = [ratio(n, engine=engine) for n in DOUBLING]
    assert all(a < b for a, b in pairwise(ratios))
    # padding to graph sizes may undo a little of it between neighbours
    plain, eagle = (stepping(s, engine=engine, max_num_seqs=128) for s in (PLAIN, EAGLE))
    every = [eagle.decode(n, 500 * n) / plain.decode(n, 500 * n) for n in range(1, 129)]
    assert all(b > a * 0.995 for a, b in pairwise(every))


@pytest.mark.parametrize("tau", [1.7, 2.0, 2.4])
def test_the_speedup_falls_with_the_batch_and_crosses_one(tau):
    tpot_ratio = [tau / ratio(n) for n in [*DOUBLING, 256, 512]]
    assert all(a > b for a, b in pairwise(tpot_ratio))
    assert tpot_ratio[0] > 1.2
    assert tpot_ratio[-1] < 1


def test_the_crossing_moves_to_larger_batches_with_tau():
    plain, eagle = (stepping(s, **LARGE) for s in (PLAIN, EAGLE))

    def crossing(tau):
        steps = ((n, eagle.decode(n, 500 * n) / plain.decode(n, 500 * n)) for n in range(1, 513))
        return next(n for n, ratio in steps if ratio > tau)

    assert 64 < crossing(1.7) < crossing(1.9) < crossing(2.1) < 256


def test_published_steps_at_batch_one():
    # EAGLE K=3 on Llama-3.1-8B, synchronous: draft 2.55 ms of a step near 9.8 ms
    step = stepping(EAGLE, engine="vllm_0.10")
    parts = step.breakdown(1, 500)
    assert 1e3 * parts["draft"] == pytest.approx(2.55, rel=0.05)
    assert parts["draft"] / step.decode(1, 500) == pytest.approx(0.26, abs=0.02)


def test_one_sequence_pays_for_its_passes_and_almost_nothing_else():
    # textbook: T_spec / T = 1 + K c, with c the cost of a pass in steps; no host, 20 us a pass
    step = 1e6 * stepping(PLAIN, engine="tensorrt_llm", **LARGE).decode(1, 500)
    c = (by_hand.eagle_pass(1, 1, LLAMA_8B) + 20) / step
    assert ratio(1, engine="tensorrt_llm") == pytest.approx(1 + 3 * c, rel=0.01)
    assert ratio(1, NGRAM, "tensorrt_llm") == pytest.approx(1, rel=0.01)


def test_a_full_gpu_pays_for_every_verified_token():
    # compute-bound: K+1 tokens cost K+1 times one, so that even perfect drafts lose; a pass has
    # 252 M parameters of layer and projection and 525 M of head beside 6979 M and 525 M
    flops = 4 * (6979 + 525) + (4 * 252 + 525) + 2 * (252 + 525)
    assert ratio(2048, engine="tensorrt_llm", ctx=0) == pytest.approx(flops / 7504, rel=0.02)
    assert ratio(2048, NGRAM, "tensorrt_llm", ctx=0) == pytest.approx(4, rel=0.05)
    assert 4 / ratio(2048, engine="tensorrt_llm", ctx=0) < 1


def test_long_contexts_are_read_once_a_step_and_once_a_pass():
    # 32 layers for the target, one layer a pass
    plain, eagle = (stepping(s, engine="tensorrt_llm", **LARGE) for s in (PLAIN, EAGLE))
    slopes = [step.decode(64, 10**7) - step.decode(64, 0) for step in (plain, eagle)]
    assert slopes[1] / slopes[0] == pytest.approx((32 + 3) / 32, rel=1e-9)
    assert ratio(64, ctx=10**7) == pytest.approx((32 + 3) / 32, rel=0.01)
