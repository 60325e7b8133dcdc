"""One engine step against its equation: target pass, draft passes, padding, sampling, host."""

from __future__ import annotations

from itertools import pairwise

import by_hand
import numpy as np
import pytest
from by_hand import BW, KIND, LLAMA_8B, LLAMA_70B, PLAIN, PROFILE, stepping

from models import catalog
from models.kernels import Kernels
from models.schema import Constant

US = 1e6
EAGLE3, MEDUSA, LOOKAHEAD = KIND["eagle3"], KIND["medusa"], KIND["lookahead"]
EAGLE, NGRAM = KIND["eagle"](k=3), KIND["ngram"](k=3)
DEEP = KIND["draft_model"](draft="qwen3-0.6b", k=3)
ONE_B = KIND["draft_model"](draft="llama-3.2-1b", k=4)


def us(seconds):
    return US * float(seconds)


def close(expected):
    return pytest.approx(expected, rel=1e-11)


def test_streaming_a_prompt_costs_in_the_target_and_in_passes_over_it():
    memory = Constant(value=0.4, source="test")
    prefill = PROFILE.prefill_attention.model_copy(update={"memory": memory})
    streaming = PROFILE.model_copy(update={"prefill_attention": prefill})
    kernels = Kernels(catalog.hardware("h100_sxm"), streaming)
    one_layer = US * 500 * (64 + 16) * 128 * 2 / (0.4 * BW)
    # the target has 32 layers; of three passes of EAGLE's one, the first is over the prompt
    for strategy, layers in ((PLAIN, 32), (EAGLE, 33)):
        steps = stepping(strategy), stepping(strategy, kernels=kernels)
        before, after = (us(step.mixed(4, 800, 16, 3200, 500, 500, 125_000)) for step in steps)
        assert after - before == pytest.approx(layers * one_layer, rel=1e-6)
        without = [step.mixed(4, 800, 16, 3200) for step in steps]
        assert without[0] == without[1]


# The whole step of plain decoding


@pytest.mark.parametrize(
    ("n", "ctx", "m"), [(1, 0, 1), (1, 500, 1), (3, 3000, 4), (16, 16_384, 16), (61, 80_000, 64)]
)
def test_plain_step_of_llama_8b(n, ctx, m):
    expected = by_hand.layers(m, LLAMA_8B) + by_hand.head(n, 4096, 128256)
    expected += by_hand.kv_read(ctx, LLAMA_8B)
    assert us(stepping().decode(n, ctx)) == close(expected)
    assert us(stepping(engine="vllm_0.10").decode(n, ctx)) == close(expected + 840 + 9 * n)


@pytest.mark.parametrize(("n", "ctx", "m"), [(1, 500, 1), (16, 16_384, 16), (50, 80_000, 56)])
def test_plain_step_of_llama_70b_on_four_gpus(n, ctx, m):
    expected = by_hand.layers(m, LLAMA_70B, 4) + by_hand.head(n, 8192, 128256, 4)
    expected += by_hand.kv_read(ctx, LLAMA_70B, 4)
    assert us(stepping(target="llama-3.1-70b", tp=4).decode(n, ctx)) == close(expected)


def test_kv_heads_short_of_the_group_are_replicated():
    few = LLAMA_8B._replace(kv=2)
    target = catalog.transformer("llama-3.1-8b").model_copy(update={"kv_heads": 2})
    expected = by_hand.layers(16, few, 4) + by_hand.head(16, 4096, 128256, 4)
    expected += by_hand.kv_read(30_000, few, 4)
    assert us(stepping(target=target, tp=4).decode(16, 30_000)) == close(expected)


def test_fp8_weights_keep_a_bf16_head():
    expected = by_hand.layers(16, LLAMA_8B, fp8=True) + by_hand.head(16, 4096, 128256)
    assert us(stepping(weights="fp8").decode(16, 0)) == close(expected)


def test_mixture_step_replaces_the_feed_forward_block():
    hit = 8 * (1 - 0.75**4)
    experts = US * hit * 3 * 4096 * 14336 / 2 * 2 / (0.86 * BW) + 12 + by_hand.gemm(4, 8, 4096)
    layer = by_hand.gemm(4, 24 * 128, 4096) + by_hand.gemm(4, 4096, 16 * 128) + experts + 12.47
    # elementwise kernels see the two experts of a token
    layer += by_hand.elementwise(4, LLAMA_8B._replace(i=2 * 14336), 2)
    layer += 2 * by_hand.all_reduce(2 * 4 * 4096, 2)
    expected = 32 * layer + by_hand.head(4, 4096, 32000, 2)
    assert us(stepping(target="mixtral-8x7b", tp=2).decode(4, 0)) == close(expected)


def test_shared_experts_and_leading_dense_layers():
    glm = catalog.transformer("glm-4.5-air")
    alone = glm.model_copy(update={"shared_experts": 0})
    both = [stepping(target=net) for net in (glm, alone)]
    shared = by_hand.gemm(1, 2 * 1408, 4096) + by_hand.gemm(1, 4096, 1408)
    extra = np.diff([us(s.breakdown(1, 0)["weights"]) for s in both])[0]
    assert extra == close(-45 * shared)
    dense = stepping(target=glm.model_copy(update={"dense_layers": 2}))
    block = by_hand.gemm(1, 2 * 10944, 4096) + by_hand.gemm(1, 4096, 10944)
    mixed = US * 8 * 3 * 4096 * 1408 * 2 / (0.86 * BW) + 12 + by_hand.gemm(1, 128, 4096) + shared
    more = us(dense.breakdown(1, 0)["weights"]) - us(both[0].breakdown(1, 0)["weights"])
    assert more == pytest.approx(block - mixed, rel=1e-9)


# One step, three ways of asking

EVERY = {
    "plain": PLAIN,
    "eagle": EAGLE,
    "eagle tree": KIND["eagle"](tree="eagle_25"),
    "eagle2": KIND["eagle2"](),
    "eagle3": EAGLE3(k=2),
    "draft model": ONE_B,
    "medusa chain": MEDUSA(),
    "medusa tree": MEDUSA(tree="medusa_63"),
    "lookahead": LOOKAHEAD(w=4, n=3, g=4),
    "ngram": NGRAM,
}


@pytest.mark.parametrize("engine", ["vllm_0.10", "vllm_0.15", "vllm_v0", "transformers"])
@pytest.mark.parametrize("name", EVERY)
def test_decode_is_mixed_and_the_sum_of_its_parts(name, engine):
    step = stepping(EVERY[name], engine=engine, top_p=True, max_num_seqs=16)
    width = EVERY[name].verify_tokens
    for n, ctx in ((1, 0), (1, 700), (5, 12_000), (16, 200_000)):
        decode = step.decode(n, ctx)
        assert step.mixed(n, ctx, n * width, width * ctx) == pytest.approx(decode, rel=1e-12)
        assert sum(step.breakdown(n, ctx).values()) == pytest.approx(decode, rel=1e-12)


@pytest.mark.parametrize("strategy", [PLAIN, EAGLE, DEEP, MEDUSA(tree="medusa_63")])
def test_decode_is_affine_in_the_context_unless_a_floor_binds(strategy):
    step = stepping(strategy, target="qwen3-8b", max_num_seqs=16)
    at = [step.decode(4, ctx) for ctx in (0, 1000, 2000, 40_000)]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1], rel=1e-9)
    qwen = LLAMA_8B._replace(layers=36)
    width = strategy.verify_tokens
    slope = max(by_hand.kv_read(1000, qwen), by_hand.attend(1000 * width, qwen))
    passes = 3 / 36 if strategy is EAGLE else 0.0
    # the floor of a deep draft hides its own context to about 15,000 tokens
    assert us(at[1] - at[0]) == pytest.approx(slope * (1 + passes), rel=1e-9)
    linear = at[0] + 40 * (at[1] - at[0])
    if strategy is DEEP:
        assert at[3] > linear + 1e-3
    else:
        assert at[3] == pytest.approx(linear, rel=1e-12)


# Verification


@pytest.mark.parametrize(("strategy", "width"), [(EAGLE, 4), (MEDUSA(tree="medusa_63"), 64)])
def test_verification_computes_every_row_and_reads_the_context_once(strategy, width):
    ctx = 60_000
    parts = stepping(strategy, engine="transformers", max_num_seqs=4).breakdown(2, ctx)
    rows = 2 * width
    read, compute = by_hand.kv_read(ctx, LLAMA_8B), by_hand.attend(width * ctx, LLAMA_8B)
    assert us(parts["kv"]) == close(max(read, compute))
    assert (compute > read) is (width == 64)
    assert us(parts["lm_head"]) == close(by_hand.head(rows, 4096, 128256))
    whole = parts["weights"] + parts["attention"] + parts["elementwise"]
    assert us(whole) == close(by_hand.layers(rows, LLAMA_8B))


def test_lookahead_verifies_window_and_guesses_in_one_pass():
    step = stepping(LOOKAHEAD(w=15, n=5, g=15), engine="transformers", max_num_seqs=2)
    expected = by_hand.layers(120, LLAMA_8B) + by_hand.head(120, 4096, 128256)
    assert us(step.decode(1, 0) - step.host_s(1)) == close(expected)


# Host


@pytest.mark.parametrize(
    ("engine", "strategy", "expected"),
    [
        ("vllm_0.10", PLAIN, 840 + 9 * 10),
        ("vllm_0.10", EAGLE, 950 + 9 * 10 + 2.9 * 30),
        ("vllm_0.15", PLAIN, 0),
        ("vllm_0.15", EAGLE, 0),
        ("vllm_0.15", EAGLE3(), 0),
        ("vllm_0.15", ONE_B, 950 + 9 * 10 + 2.9 * 40),
        ("vllm_0.15", MEDUSA(), 950 + 9 * 10 + 2.9 * 40),
        ("vllm_0.28", ONE_B, 0),
        # the CPU proposer: 15 us and 2.8 us a sequence
        ("vllm_0.15", NGRAM, 950 + 9 * 10 + 2.9 * 30 + 15 + 2.8 * 10),
        ("vllm_0.33", NGRAM, 0),
        ("vllm_v0", PLAIN, 1540 + 251 * 10),
        ("vllm_v0", MEDUSA(), 5272 + 649 * 10),
    ],
)
def test_host_time_of_ten_sequences(engine, strategy, expected):
    step = stepping(strategy, engine=engine)
    assert us(step.breakdown(10, 0)["host"]) == pytest.approx(expected, abs=1e-6)
    drafted = 10 * strategy.drafted
    assert us(step.host_s(10, drafted)) == pytest.approx(expected, abs=1e-6)


def test_a_step_waits_for_the_tokens_it_drafted_only():
    step = stepping(NGRAM, engine="vllm_0.10")
    wide, narrow = (step.mixed(10, 9000, tokens, 9000) for tokens in (22, 21))
    gpu = [step.breakdown(10, 900, tokens) for tokens in (22, 21)]
    assert us(wide - narrow) == pytest.approx(2.9 + us(gpu[0]["lm_head"] - gpu[1]["lm_head"]))


def test_engines_of_2023_wait_by_group_size():
    host = {
        tp: us(stepping(target="llama-2-70b", engine="tgi_2023", tp=tp).host_s(1))
        for tp in (2, 4, 8)
    }
    assert host == pytest.approx({2: 10_000, 4: 14_000, 8: 21_000}, rel=0.03)


# Mixed steps


def test_a_prompt_shares_the_step_of_the_decodes():
    n, ctx, chunk, pairs = 8, 8000, 1000, 1000**2 / 2
    found = stepping().mixed(n, ctx, n, ctx, chunk, chunk, pairs, finishing=1)
    expected = by_hand.layers(1008, LLAMA_8B) + by_hand.head(9, 4096, 128256)
    expected += by_hand.kv_read(ctx + chunk, LLAMA_8B) + by_hand.attend(pairs, LLAMA_8B)
    assert us(found) == close(expected)
    unfinished = stepping().mixed(n, ctx, n, ctx, chunk, chunk, pairs)
    head = by_hand.head(9, 4096, 128256) - by_hand.head(8, 4096, 128256)
    assert us(found - unfinished) == pytest.approx(head, rel=1e-6)


def test_a_speculating_step_with_a_prompt():
    n, ctx, chunk, pairs, v = 8, 8000, 1000, 1000**2 / 2, 128256
    step = stepping(EAGLE, engine="vllm_0.10", top_p=True)
    found = step.mixed(n, ctx, 4 * n, 4 * ctx, chunk, chunk, pairs, finishing=1)
    one = LLAMA_8B._replace(layers=1)
    verify = by_hand.layers(1032, LLAMA_8B) + by_hand.head(4 * n + 1, 4096, v)
    verify += by_hand.kv_read(ctx + chunk, LLAMA_8B) + by_hand.attend(pairs, LLAMA_8B)
    # nine sequences draft, in passes padded to 16 rows
    draft = by_hand.eagle_pass(1032, 9, LLAMA_8B) + by_hand.attend(pairs, one)
    draft += 2 * by_hand.eagle_pass(16, 9, LLAMA_8B)
    draft += 3 * (by_hand.kv_read(ctx + chunk, one) + 250)
    # FlashInfer for a token of every sequence, a sort for the drafts
    sampling = 9 * v * 0.007e-3 + 24 * v * 0.215e-3
    assert us(found) == close(verify + draft + sampling + 950 + 9 * 9 + 2.9 * 24)


def test_a_chunk_alone_is_drafted_for_but_yields_no_row():
    pairs = 1000**2 / 2
    found = stepping(EAGLE).mixed(0, 0, 0, 0, 1000, 1000, pairs)
    one = LLAMA_8B._replace(layers=1)
    expected = by_hand.layers(1000, LLAMA_8B) + by_hand.layers(1000, one)
    expected += by_hand.gemm(1000, 4096, 8192) + 250
    for shape in (LLAMA_8B, one):
        expected += by_hand.kv_read(1000, shape) + by_hand.attend(pairs, shape)
    assert us(found) == close(expected)


def test_only_matches_of_an_ngram_step_are_verified():
    # 2 of 8 sequences found 3 tokens each
    step = stepping(NGRAM, top_p=True)
    found = step.mixed(8, 8000, 14, 14_000)
    expected = by_hand.layers(16, LLAMA_8B) + by_hand.head(14, 4096, 128256)
    expected += by_hand.kv_read(8000, LLAMA_8B) + 2 * 159 + 14 * 128256 * 0.152e-3
    assert us(found) == close(expected + 950 + 9 * 8 + 2.9 * 6 + 15 + 2.8 * 8)


def test_the_host_waits_for_sequences_that_finish_their_prompt_too():
    found = [
        stepping(engine="vllm_v0").mixed(8, 0, 8, 0, 100, 100, 5000.0, finishing=f) for f in (0, 2)
    ]
    head = by_hand.head(10, 4096, 128256) - by_hand.head(8, 4096, 128256)
    assert us(found[1] - found[0]) == pytest.approx(2 * 251 + head, rel=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_steps_grow_with_sequences_and_context(name):
    step = stepping(EVERY[name], engine="transformers", max_num_seqs=32)
    by_n = [step.decode(n, 1000 * n) for n in range(1, 32)]
    by_ctx = [step.decode(8, ctx) for ctx in range(0, 100_000, 5000)]
    assert all(a < b for a, b in pairwise(by_n))
    assert all(a < b for a, b in pairwise(by_ctx))
