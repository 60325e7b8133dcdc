"""The draft phase of a step against its equation: passes, rows, launches, floors, heads."""

from __future__ import annotations

import by_hand
import pytest
from by_hand import BW, KIND, LLAMA_8B, stepping

from models import catalog

US = 1e6
EAGLE3, MEDUSA = KIND["eagle3"], KIND["medusa"]
EAGLE = KIND["eagle"](k=3)
DEEP = KIND["draft_model"](draft="qwen3-0.6b", k=3)


def us(seconds):
    return US * float(seconds)


def close(expected):
    return pytest.approx(expected, rel=1e-11)


def no_graphs(name):
    engine = catalog.engine(name)
    return engine.model_copy(update={"graphs": engine.graphs.model_copy(update={"enabled": False})})


@pytest.mark.parametrize(
    ("strategy", "target", "tp", "launch", "published"),
    [
        (EAGLE, "llama-3.1-8b", 1, 250, 606),
        (EAGLE3(k=3), "llama-3.1-8b", 1, 250 + 80, 322),
        (EAGLE, "llama-3.1-70b", 4, 250, 511),
    ],
)
def test_gpu_time_of_one_pass(strategy, target, tp, launch, published):
    # the last pass of a step, without the time of its launch
    longer = strategy.model_copy(update={"k": 4})
    one, more = (
        stepping(s, target=target, tp=tp).draft_s(1, 4, 0, 0, 0) for s in (strategy, longer)
    )
    assert us(more - one) - launch == pytest.approx(published, rel=0.05)


def test_eagle_drafts_k_passes_the_first_over_the_prompts_too():
    step = stepping(EAGLE)
    ctx = 9000
    read, later = by_hand.kv_read(ctx, LLAMA_8B._replace(layers=1)), 2
    decode = by_hand.eagle_pass(8, 2, LLAMA_8B) + 2 * by_hand.eagle_pass(4, 2, LLAMA_8B)
    assert us(step.draft_s(2, 8, ctx, 4 * ctx, 0)) == close(decode + 3 * (read + 250))
    # two sequences and 1000 prompt tokens: 1008 rows, beyond the largest graph
    pairs = 1000**2 / 2
    prompt = by_hand.eagle_pass(1008, 2, LLAMA_8B) + later * by_hand.eagle_pass(4, 2, LLAMA_8B)
    prompt += by_hand.attend(pairs, LLAMA_8B._replace(layers=1)) + 3 * (read + 250)
    assert us(step.draft_s(2, 1008, ctx, 4 * ctx, pairs)) == close(prompt)


def test_eagle3_projects_once_and_maps_the_logits_of_its_small_head():
    first, later = (by_hand.eagle3_pass(4, 1, LLAMA_8B, fc) for fc in (True, False))
    passes = first + 2 * later + 3 * (250 + 80)
    assert us(stepping(EAGLE3(k=3)).draft_s(1, 4, 0, 0, 0)) == close(passes)


def test_tree_drafts_one_pass_a_level():
    # parents by level of the 25-node tree: 4, 4, 1 and 1
    rows = (4, 4, 1, 1)
    step = stepping(KIND["eagle"](tree="eagle_25"), engine="transformers", max_num_seqs=2)
    expected = by_hand.eagle_pass(26, 1, LLAMA_8B)
    expected += sum(by_hand.eagle_pass(r, r, LLAMA_8B) for r in rows)
    assert us(step.draft_s(1, 26, 0, 0, 0)) - 5 * 500 == close(expected)


def test_dynamic_tree_runs_eight_passes_of_ten_rows():
    step = stepping(KIND["eagle2"](), engine="sglang_0.5", max_num_seqs=2)
    ctx = 20_000
    expected = by_hand.eagle_pass(60, 1, LLAMA_8B) + 7 * by_hand.eagle_pass(10, 10, LLAMA_8B)
    one = LLAMA_8B._replace(layers=1)
    first = max(by_hand.kv_read(ctx, one), by_hand.attend(60 * ctx, one))
    # FlashInfer reads the context for every branch; choosing and planning cost 290 us a pass
    expected += first + 7 * 10 * by_hand.kv_read(ctx, one) + 8 * (20 + 290)
    assert first > by_hand.kv_read(ctx, one)
    exact = stepping(KIND["eagle2"](), entry=no_graphs("sglang_0.5"), max_num_seqs=2)
    assert us(exact.draft_s(1, 60, ctx, 60 * ctx, 0)) == close(expected)
    assert step.draft_s(1, 60, ctx, 60 * ctx, 0) >= exact.draft_s(1, 60, ctx, 60 * ctx, 0)


def test_depth_prices_a_small_draft():
    step = stepping(DEEP, target="qwen3-8b")
    # 28 layers x 80 us + 250 us; measured 2.55 ms a pass
    assert us(step.draft_s(1, 4, 500, 2000, 0)) == close(3 * 2490)
    assert pytest.approx(2550, rel=0.03) == 2490
    # 90,000 tokens of its KV outlast the floor
    assert us(step.draft_s(8, 32, 90_000, 360_000, 0)) > 3 * 3500


def test_full_graphs_lift_the_floor_and_most_of_the_launch():
    old, new = (stepping(DEEP, target="qwen3-8b", engine=e) for e in ("vllm_0.28", "vllm_0.31"))
    assert us(old.draft_s(1, 4, 0, 0, 0)) == close(3 * 2490)
    assert us(new.draft_s(1, 4, 0, 0, 0)) < 3 * (1600 + 21)
    eagle = [stepping(EAGLE, engine=e).draft_s(1, 4, 0, 0, 0) for e in ("vllm_0.22", "vllm_0.24")]
    assert us(eagle[0] - eagle[1]) == pytest.approx(3 * 230, rel=3e-3)


def test_medusa_heads_run_once_on_one_row_or_on_every_row_of_the_tree():
    def one_head(rows):
        logits = US * 8 * rows * 128256 / (0.8 * BW)
        gemms = by_hand.gemm(rows, 4096, 4096) + by_hand.gemm(rows, 128256, 4096)
        return gemms + logits + 10

    tree = MEDUSA(heads=4, tree="medusa_63")
    one, every = stepping(tree, engine="vllm_v0"), stepping(tree, engine="transformers")
    assert us(one.draft_s(3, 3 * 64, 9000, 64 * 9000, 0)) == close(4 * one_head(3))
    assert us(every.draft_s(3, 3 * 64, 9000, 64 * 9000, 0)) == close(4 * one_head(3 * 64))
