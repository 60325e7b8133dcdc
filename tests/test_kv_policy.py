"""What policies keep, read and fetch, counted token by token; and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import KIND
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from models import catalog
from models.acceptance import Acceptance, chain_law
from models.kv_layout import KvLayout
from models.kv_policy import Fetch, KvPolicy
from models.kv_use import KvUse, kv_use
from models.laws import PlainLaw
from models.paths import LOSS, request_keys, step_uniforms
from models.thinning import ThinnedLaw, thinned

NONE = {"acceptance_loss": 0, "quality_loss": 0}
ENGINE = catalog.engine("vllm_0.15")


def policy(**keys):
    return TypeAdapter(KvPolicy).validate_python({**NONE, **keys})


def streaming(sinks, window):
    return policy(kind="streaming_llm", sinks=sinks, window=window)


def snap(budget):
    return policy(kind="snapkv", budget_tokens=budget)


def offload(hot, **keys):
    rate = {"gb_per_s": 50, "latency_us": 20, "overlap": True, **keys}
    return policy(kind="offload", hot_tokens=hot, **rate)


def use(policy, block=16, slots=1):
    return KvUse(KvLayout(block, slots), policy)


def blocks_of(positions, block):
    return len({position // block for position in positions})


@settings(max_examples=80, deadline=None)
@given(
    sinks=st.integers(1, 40),
    window=st.integers(1, 60),
    context=st.integers(2, 200),
    block=st.integers(1, 16),
    slots=st.integers(1, 9),
)
def test_a_window_holds_the_blocks_its_tokens_are_in(sinks, window, context, block, slots):
    kept = use(streaming(sinks, window), block, slots)
    read = [at for at in range(context) if at < sinks or at >= context - window]
    written = range(context - 1, context - 1 + slots)
    at, prompt = np.array([context]), np.array([1])
    assert kept.attended(prompt, at).tolist() == [len(read)]
    assert kept.blocks(prompt, at).tolist() == [blocks_of([*read, *written], block)]
    assert kept.cold(prompt, at).tolist() == [0]


@settings(max_examples=80, deadline=None)
@given(
    hot=st.integers(1, 60),
    context=st.integers(2, 200),
    block=st.integers(1, 16),
    slots=st.integers(1, 9),
)
def test_offload_reads_everything_and_holds_what_is_hot(hot, context, block, slots):
    kept, at, prompt = use(offload(hot), block, slots), np.array([context]), np.array([1])
    positions = range(max(context - hot, 0), context - 1 + slots)
    assert kept.attended(prompt, at).tolist() == [context]
    assert kept.cold(prompt, at).tolist() == [max(context - hot, 0)]
    assert kept.blocks(prompt, at).tolist() == [blocks_of(positions, block)]


def test_a_budget_is_of_the_prompt_and_answers_grow_beyond_it():
    kept, prompt = use(snap(100), slots=4), np.array([1000, 1000, 60])
    context = np.array([1001, 1200, 200])
    assert kept.attended(prompt, context).tolist() == [101, 300, 200]
    assert kept.blocks(prompt, context).tolist() == [-(-104 // 16), -(-303 // 16), -(-203 // 16)]
    assert kept.prefilled(prompt).tolist() == [63, 63, 4]


@pytest.mark.parametrize("tree_kv", ["inline", "copy_on_write", "contiguous"])
@pytest.mark.parametrize("kept", [streaming(4, 60), snap(50), offload(64)])
def test_the_most_blocks_are_found_under_every_policy(kept, tree_kv):
    tree = KIND["medusa"](kind="medusa", heads=4, tree="medusa_63")
    made = kv_use(ENGINE, tree, tree_kv, kept)
    for prompt, last in ((5, 17), (100, 300), (200, 201), (3, 90)):
        contexts = np.arange(prompt + 1, last + 1)
        held = made.blocks(np.full(len(contexts), prompt), contexts)
        assert (held > 0).all()
        most = max(held.max(), made.prefilled(np.array(prompt)))
        assert made.most(np.array([prompt]), np.array([last])).tolist() == [most]
        if tree_kv != "copy_on_write":  # packed tokens may end in a fuller block to copy
            assert (held <= kv_use(ENGINE, tree, tree_kv).blocks(contexts, contexts)).all()


def test_only_keeping_everything_leaves_sums_of_contexts_enough():
    assert use(None).plain
    assert not use(snap(10_000)).plain


def test_fetches_hide_behind_the_step_or_follow_it():
    beside = Fetch.of(offload(10, overlap=True), 1e5)
    after = Fetch.of(offload(10, overlap=False), 1e5)
    assert beside.fetch_s(0.01, 1000) == pytest.approx(0.01 + 20e-6)
    assert beside.fetch_s(0.001, 1000) == pytest.approx(0.002 + 20e-6)
    assert after.fetch_s(0.01, 1000) == pytest.approx(0.012 + 20e-6)
    for fetch in (beside, after, Fetch.of(snap(5), 1e5)):
        assert fetch.fetch_s(0.01, 0) == 0.01


@pytest.mark.parametrize("missing", NONE)
def test_losses_have_to_be_stated(missing):
    stated = {key: 0 for key in NONE if key != missing}
    with pytest.raises(ValidationError, match=missing):
        TypeAdapter(KvPolicy).validate_python({"kind": "snapkv", "budget_tokens": 100, **stated})


# Acceptance that is lost


def test_thinning_is_token_by_token():
    keys, counts = request_keys(3, np.arange(40), LOSS), np.full(40, 25)
    accepted = np.tile([0, 1, 2, 5, 9], 200)
    kept = thinned(accepted, keys, counts, 0.3)
    for full, left, uniform in zip(accepted, kept, step_uniforms(keys, counts), strict=True):
        survived = 0
        while survived < full and 1.0 - uniform <= 0.7 ** (survived + 1):
            survived += 1
        assert left == survived


def test_thinning_loses_the_share_it_is_told():
    keys, counts = request_keys(1, np.arange(200), LOSS), np.full(200, 500)
    kept = thinned(np.full(100_000, 4), keys, counts, 0.2)
    shares = [(kept >= level).mean() for level in range(1, 5)]
    np.testing.assert_allclose(shares, 0.8 ** np.arange(1, 5), atol=0.005)
    assert thinned(kept, keys, counts, 0.0) is kept
    assert not thinned(kept, keys, counts, 1.0).any()


def chains(depth=4):
    return chain_law(Acceptance(alpha=0.7, spread=0.0), depth, ("general",))


def test_a_thinned_law_has_the_tau_of_each_token_lost():
    law = ThinnedLaw.of(chains(), 0.25, 1)
    expected = 1 + sum((0.7 * 0.75) ** level for level in range(1, 5))
    assert law.tau == pytest.approx(expected, rel=0.005)
    assert law.depth == 4


def test_a_thinned_law_draws_the_same_steps_and_loses_some():
    inner, ids = chains(), np.arange(50)
    tokens, domains = np.full(50, 300), np.zeros(50, dtype=np.int64)
    thin = ThinnedLaw.of(inner, 0.3, 1).paths(7, ids, tokens, domains)
    whole = inner.paths(7, ids, tokens, domains)
    sums = np.add.reduceat(thin.emitted, thin.offsets[:-1])
    assert sums.tolist() == tokens.tolist()
    for r in ids:
        left = thin.accepted[thin.offsets[r] : thin.offsets[r + 1]]
        full = whole.accepted[whole.offsets[r] : whole.offsets[r + 1]]
        assert len(left) > len(full)
        assert (left[: len(full)] <= full).all()


def test_nothing_lost_is_the_law_itself():
    inner = chains()
    assert ThinnedLaw.of(inner, 0.0, 1) is inner
    plain = PlainLaw()
    assert ThinnedLaw.of(plain, 0.5, 1) is plain


@pytest.mark.parametrize(
    ("kept", "cut_from"), [(streaming(4, 96), 101), (offload(100), 101), (snap(60), 1)]
)
def test_tokens_are_lost_from_the_step_on_that_is_cut(kept, cut_from):
    lossy = kept.model_copy(update={"acceptance_loss": 0.5})
    inner, ids, prompts = chains(), np.arange(30), np.full(30, 70)
    tokens, domains = np.full(30, 120), np.zeros(30, dtype=np.int64)
    law = ThinnedLaw.of(inner, 0.0, 1, lossy)
    paths = law.paths(7, ids, tokens, domains, prompts)
    always = ThinnedLaw.of(inner, 0.5, 1).sampler(7, ids, tokens, domains).sample(tokens).accepted
    whole = inner.sampler(7, ids, tokens, domains).sample(tokens).accepted
    for r in ids:
        context, begin = 71, int(tokens[:r].sum())
        for step, at in enumerate(range(paths.offsets[r], paths.offsets[r + 1])):
            drawn = always if context >= cut_from else whole
            assert paths.accepted[at] == drawn[begin + step]
            context += int(paths.accepted[at]) + 1
    assert law.tau_at(70) == pytest.approx(inner.tau if cut_from > 1 else law.tau)
    assert law.tau_at(5000) == law.tau < inner.tau


def test_two_losses_are_independent():
    both = ThinnedLaw.of(chains(), 0.2, 1, snap(9).model_copy(update={"acceptance_loss": 0.5}))
    assert both.cut_loss == pytest.approx(0.6)
    assert both.tau == pytest.approx(ThinnedLaw.of(chains(), 0.6, 1).tau)
    assert both.tau_at(5) == ThinnedLaw.of(chains(), 0.2, 1).tau


def test_a_cut_sequence_holds_the_slots_of_its_own_k():
    prompt, context = np.array([1000, 1000]), np.array([1010, 1010])
    for kept in (snap(100), streaming(4, 100), offload(100)):
        held = use(kept, slots=33).blocks(prompt, context, np.array([1, 33]))
        single = [int(use(kept, slots=n).blocks(prompt, context)[0]) for n in (1, 33)]
        assert held.tolist() == single
        assert single[0] < single[1]
