"""Blocks of a sequence under every layout of a token tree, against layouts drawn block by block."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import KIND
from hypothesis import given, settings
from hypothesis import strategies as st

from models import catalog
from models.kv_layout import Branches, KvLayout
from models.kv_memory import kv_slots
from models.kv_use import kv_use
from models.trees import make_tree, tree_leaves

ENGINE = catalog.engine("vllm_0.15")
MEDUSA_63 = KIND["medusa"](kind="medusa", heads=4, tree="medusa_63")
CONTEXTS = np.arange(1, 400)


def strategies():
    return {
        "medusa": MEDUSA_63,
        "medusa small": KIND["medusa"](kind="medusa", heads=2, tree=[3, 3]),
        "eagle": KIND["eagle"](kind="eagle", tree="eagle_25"),
        "eagle2": KIND["eagle2"](kind="eagle2"),
        "eagle3": KIND["eagle3"](kind="eagle3", tree={"total_tokens": 32, "passes": 5}),
        "lookahead": KIND["lookahead"](kind="lookahead"),
    }


def layout(strategy, tree_kv, engine=ENGINE):
    return kv_use(engine, strategy, tree_kv).layout


def blocks_by_hand(leaves: int, depth: int, context: int, block: int) -> int:
    """Copy-on-write, one token at a time: a table of blocks for every branch."""
    held = set()
    for leaf in range(leaves):
        for position in range(context + depth):
            number = position // block
            shared = (number + 1) * block <= context - 1
            held.add((None if shared else leaf, number))
    return len(held)


@settings(max_examples=60, deadline=None)
@given(
    leaves=st.integers(2, 6),
    depth=st.integers(1, 40),
    context=st.integers(1, 80),
    block=st.integers(1, 20),
)
def test_copies_are_those_counted_branch_by_branch(leaves, depth, context, block):
    made = KvLayout(block, 1, "copy_on_write", (Branches(leaves, 1 + depth),))
    expected = blocks_by_hand(leaves, depth, context, block)
    assert made.held(np.array([context])).tolist() == [expected]


def test_leaves_are_the_nodes_nobody_continues():
    tree = make_tree("medusa_63")
    ends = [path for path in tree if not any(other[:-1] == path for other in tree)]
    assert tree_leaves(tree) == len(ends) == 42
    assert tree_leaves(make_tree([1, 1, 1])) == 1
    assert tree_leaves(make_tree([3, 3])) == 9


@pytest.mark.parametrize("name", strategies())
@pytest.mark.parametrize("engine", ["vllm_0.15", "vllm_v0", "sglang_0.4", "sglang_0.5"])
def test_copies_never_take_less_than_slots_in_a_row(name, engine):
    engine, strategy = catalog.engine(engine), strategies()[name]
    inline, copied = (layout(strategy, kind, engine) for kind in ("inline", "copy_on_write"))
    assert (copied.held(CONTEXTS) >= inline.held(CONTEXTS)).all()
    # As many tokens as the engine reserves have a place in the branches.
    assert sum(n * tokens for n, tokens in copied.branches) >= kv_slots(engine, strategy)


def test_an_engine_that_reserves_twice_does_so_for_every_branch():
    engine = ENGINE.model_copy(update={"slot_rule": "sglang_overlap"})
    assert kv_slots(engine, MEDUSA_63) == 2 * 64
    assert layout(MEDUSA_63, "copy_on_write").branches == (Branches(42, 5),)
    assert layout(MEDUSA_63, "copy_on_write", engine).branches == (Branches(42, 10),)


@pytest.mark.parametrize("kind", ["copy_on_write", "contiguous"])
@pytest.mark.parametrize("engine", ["vllm_0.15", "sglang_0.5"])
def test_chains_are_laid_out_inline(kind, engine):
    engine = catalog.engine(engine)
    chains = [KIND["eagle3"](kind="eagle3", k=5), KIND["medusa"](kind="medusa", heads=4)]
    for strategy in (KIND["autoregressive"](kind="autoregressive"), *chains):
        assert layout(strategy, kind, engine) == layout(strategy, "inline", engine)
        assert layout(strategy, kind, engine).run == 0


def test_inline_is_the_slots_behind_the_context():
    held = layout(MEDUSA_63, "inline").held(CONTEXTS)
    np.testing.assert_array_equal(held, -(-(CONTEXTS + 63) // 16))


def test_branches_of_medusa_need_one_stretch_of_adjacent_blocks():
    made = layout(MEDUSA_63, "contiguous")
    assert made.run == 42
    # Behind 100 tokens computed the context has room for the root and four accepted ones.
    assert made.held(np.array([101])).tolist() == [-(-105 // 16) + 42]


def test_only_guesses_of_lookahead_are_branches_and_its_window_is_one_more():
    made = layout(KIND["lookahead"](kind="lookahead", w=15, n=5, g=15), "copy_on_write")
    assert made.branches == (Branches(15, 5), Branches(1, 60))
    assert sum(n * tokens for n, tokens in made.branches) == 135
    assert made.held(np.array([97])).tolist() == [6 + 15 + 4]


def test_a_tree_grown_anew_every_step_reserves_for_the_most_leaves():
    (branches,) = KIND["eagle2"](kind="eagle2").branches
    assert branches == Branches(59 - 7, 9)


def test_the_most_a_sequence_holds_is_the_most_of_its_steps():
    for name, strategy in strategies().items():
        for kind in ("inline", "copy_on_write", "contiguous"):
            use = kv_use(ENGINE, strategy, kind)
            for prompt, last in ((1, 2), (5, 17), (16, 40), (30, 33), (100, 300)):
                contexts = np.arange(prompt + 1, last + 1)
                steps = use.blocks(np.full(len(contexts), prompt), contexts).max()
                prefill = use.prefilled(np.array(prompt))
                found = use.most(np.array([prompt]), np.array([last]))
                assert found.tolist() == [max(steps, prefill)], (name, kind, prompt, last)


@pytest.mark.parametrize(
    ("name", "copied", "contiguous"),
    [
        ("medusa", (161, 591), (176, 303)),
        ("eagle", (49, 207), (48, 111)),
        ("eagle2", (209, 735), (208, 383)),
        ("lookahead", (65, 239), (64, 143)),
    ],
)
def test_contexts_at_which_a_tree_takes_the_published_3_2_to_4_8_times(name, copied, contiguous):
    """The factor is one of tree and context; the number of streams it is said to need cancels."""
    contexts = np.arange(16, 20_000)
    plain = layout(KIND["autoregressive"](kind="autoregressive"), "inline").held(contexts)
    for tree_kv, expected in (("copy_on_write", copied), ("contiguous", contiguous)):
        ratio = layout(strategies()[name], tree_kv).held(contexts) / plain
        inside = contexts[(ratio >= 3.2) & (ratio <= 4.8)]
        assert (inside.min(), inside.max()) == expected
        assert ratio[-1] < 1.1
    behind = layout(strategies()[name], "inline").held(contexts) / plain
    assert (behind[contexts >= 48] < 3.2).all()
