"""Attention of trees by kernels of an engine's own, on H100."""

from __future__ import annotations

import pytest
from by_hand import KIND, PROFILE, stepping

from models import catalog
from models.engine import TreeAttention
from models.forward_pass import Attention
from models.kernels import Kernels

H100 = Kernels(catalog.hardware("h100_sxm"), PROFILE)
QWEN = catalog.transformer("qwen3-8b")
FLASHINFER = catalog.engine("sglang_0.5").tree_attention
TREE = {"total_tokens": 21, "passes": 3, "topk": 4}


def tree_attention(width: int, **changes: float) -> Attention:
    assert FLASHINFER is not None
    engine = catalog.engine("sglang_0.5").with_constants(
        {f"tree_attention.{name}": value for name, value in changes.items()}
    )
    assert engine.tree_attention is not None
    return Attention.of_tree(H100, QWEN, "bf16", 1, width, engine.tree_attention)


@pytest.mark.parametrize(
    ("rows", "computed"), [(1, 16), (16, 16), (17, 64), (84, 128), (128, 128), (129, 256)]
)
def test_query_rows_are_computed_in_blocks(rows, computed):
    assert FLASHINFER is not None
    assert FLASHINFER.padded_rows(rows) == computed


def test_blocks_must_ascend():
    assert FLASHINFER is not None
    with pytest.raises(ValueError, match="ascend"):
        TreeAttention.model_validate({**FLASHINFER.model_dump(), "block_rows": [64, 16]})


def test_a_context_token_is_read_and_then_meets_every_row_of_the_block():
    # 8 KV heads of 128 wide; 21 tokens of 4 heads each are 84 rows, computed as 128
    reading = 2 * 8 * 128 * 2 / (0.553 * 3.35e12)
    computing = 2 * 4 * 128 * 8 * 128 / (0.397 * 989.5e12)
    assert tree_attention(21).slope(21) == pytest.approx(36 * (reading + computing), rel=1e-3)


def test_tokens_that_share_a_block_cost_as_much_as_one_and_a_mask_twice_a_causal_one():
    assert tree_attention(5).slope(5) == tree_attention(16).slope(16)
    masked, causal, neither = (tree_attention(6, mask_factor=f).slope(6) for f in (2, 1, 0))
    assert masked - causal == pytest.approx(causal - neither)


def test_only_trees_are_given_to_it():
    chain = stepping(KIND["eagle3"](k=3), target="qwen3-8b", engine="sglang_0.5")
    tree = KIND["eagle3"](tree=TREE, acceptance={"tau": 2.5})
    sglang, vllm = (
        stepping(tree, target="qwen3-8b", engine=e) for e in ("sglang_0.5", "vllm_0.15")
    )
    kv = [step.breakdown(8, 8000)["kv"] for step in (chain, vllm, sglang)]
    assert kv[0] < kv[2]
    assert kv[2] / 8000 == pytest.approx(tree_attention(21).slope(21), rel=1e-3)
    assert kv[1] != kv[2]
