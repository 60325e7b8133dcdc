"""What every strategy drafts, verifies, stores and refuses, from its published description."""

from __future__ import annotations

import pytest
from by_hand import KIND, PLAIN
from pydantic import ValidationError

from models import catalog
from models.schema import ModelError

EAGLE, EAGLE2, EAGLE3, MEDUSA = (KIND[k] for k in ("eagle", "eagle2", "eagle3", "medusa"))
DRAFT, MTP, NGRAM, LOOKAHEAD = (KIND[k] for k in ("draft_model", "mtp", "ngram", "lookahead"))
LLAMA_8B = catalog.transformer("llama-3.1-8b")
MIMO = catalog.transformer("mimo-7b")
VLLM = catalog.engine("vllm_0.15")

ONE_B = DRAFT(draft="llama-3.2-1b", k=4)
TOP_3 = MEDUSA(heads=5, tree=[3, 3, 3, 3])
SEVEN = EAGLE3(tree={"total_tokens": 8, "passes": 5, "topk": 4}, acceptance={"tau": 3})
SMALL = LOOKAHEAD(w=7, n=7, g=7, acceptance={"tau": 1.7})
FIRST = (1, True, 1, False)

CASES = [
    # strategy, name, depth, drafted, verified, family, band family
    (PLAIN, "autoregressive", 0, 0, 1, "plain", "plain"),
    (ONE_B, "draft_model llama-3.2-1b K=4", 4, 4, 5, "draft_model", "draft_model"),
    (MEDUSA(heads=4), "medusa 4 heads chain", 4, 4, 5, "medusa", "medusa"),
    (MEDUSA(tree="medusa_63"), "medusa 4 heads tree of 63", 4, 63, 64, "medusa", "medusa"),
    (TOP_3, "medusa 5 heads tree of 120", 4, 120, 121, "medusa", "medusa"),
    (EAGLE(k=3), "eagle K=3", 3, 3, 4, "eagle", "eagle"),
    (EAGLE(tree="eagle_25"), "eagle tree of 25", 5, 25, 26, "eagle", "tree"),
    (EAGLE2(), "eagle2 tree of 59", 8, 59, 60, "tree", "tree"),
    (EAGLE3(k=7), "eagle3 K=7", 7, 7, 8, "eagle3", "eagle3"),
    (SEVEN, "eagle3 tree of 7", 5, 7, 8, "eagle3", "tree"),
    (MTP(k=2), "mtp K=2", 2, 2, 3, "mtp", "mtp"),
    (LOOKAHEAD(), "lookahead W=15 N=5 G=15", 4, 119, 120, "lookahead", "lookahead"),
    (SMALL, "lookahead W=7 N=7 G=7", 6, 83, 84, "lookahead", "lookahead"),
    (NGRAM(k=5), "ngram K=5", 5, 5, 6, "ngram", "ngram"),
]  # fmt: skip


def test_every_kind_is_covered_here():
    assert {case[0].kind for case in CASES} == set(KIND)


@pytest.mark.parametrize(
    ("strategy", "name", "depth", "drafted", "verified", "family", "band"), CASES
)
def test_shape_and_name(strategy, name, depth, drafted, verified, family, band):
    assert strategy.name == name
    assert (strategy.depth, strategy.drafted, strategy.verify_tokens) == (depth, drafted, verified)
    assert (strategy.family, strategy.band_family) == (family, band)
    assert strategy.needs_tree is (drafted > depth)
    assert strategy.law(VLLM, ("all",)).depth == depth
    assert strategy.model_copy(update={"label": "mine"}).name == "mine"


@pytest.mark.parametrize(
    "strategy",
    [
        EAGLE2(tree={"total_tokens": 5, "passes": 4, "topk": 2}),
        EAGLE3(tree={"total_tokens": 6, "passes": 5, "topk": 1}),
        EAGLE(tree=[2, 1, 1]),
        LOOKAHEAD(w=2, n=3, g=1),
        EAGLE2(
            tree={"total_tokens": 30, "passes": 8, "topk": 10},
            acceptance={"catalog": "eagle2_llama31_8b_mtbench"},
        ),
    ],
)
def test_a_published_tau_is_not_carried_to_another_shape(strategy):
    with pytest.raises(ModelError, match="state the acceptance of this shape"):
        strategy.law(VLLM, ("all",))


def test_a_published_draft_tau_depends_on_k():
    taus = [DRAFT(draft="llama-3.2-1b", k=k).law(VLLM, ("all",)).tau for k in (1, 2, 5, 8)]
    assert taus == sorted(taus)
    assert taus[2] == pytest.approx(2.27, rel=0.01)
    assert taus[0] < 1.7


@pytest.mark.parametrize("kind", sorted(set(KIND) - {"autoregressive"}))
def test_acceptance_has_a_default_and_a_strategy_never_changes(kind):
    strategy = ONE_B if kind == "draft_model" else KIND[kind]()
    assert strategy.kind == kind
    assert 1 < strategy.law(VLLM, ("all",)).tau <= strategy.depth + 1
    with pytest.raises(ValidationError, match="frozen"):
        strategy.label = "other"


def test_plain_decoding_emits_one_token_a_step():
    assert PLAIN.law(VLLM, ("all",)).tau == 1


# Memory beyond the target, on one GPU


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize(
    ("strategy", "weight_bytes", "kv_bytes"),
    [
        (PLAIN, 0, 0),
        (NGRAM(), 0, 0),
        (LOOKAHEAD(), 0, 0),
        # qkv and output projections, gated feed-forward, 2h -> h
        (EAGLE(k=3), 2 * (4096 * 6144 + 4096**2 + 3 * 4096 * 14336 + 2 * 4096**2), 4096),
        (EAGLE2(), 2 * (4096 * 6144 + 4096**2 + 3 * 4096 * 14336 + 2 * 4096**2), 4096),
        # 2h into the attention, 3h -> h, a head of 32,000
        (
            EAGLE3(k=3),
            2 * (8192 * 6144 + 4096**2 + 3 * 4096 * 14336 + 3 * 4096**2 + 4096 * 32000),
            4096,
        ),
    ],
)
def test_memory(strategy, weight_bytes, kv_bytes, tp):
    extra = strategy.memory(LLAMA_8B, "fp8", "bf16", tp)
    assert extra.weight_bytes == pytest.approx(weight_bytes / tp)
    assert extra.kv_bytes_per_token == pytest.approx(kv_bytes / tp)


@pytest.mark.parametrize("tp", [1, 4])
def test_medusa_splits_its_lm_heads_but_not_its_residual_blocks(tp):
    own = MEDUSA(heads=3).memory(LLAMA_8B, "fp8", "bf16", tp)
    shared = MEDUSA(heads=3, shared_lm_head=True).memory(LLAMA_8B, "fp8", "bf16", tp)
    assert own.weight_bytes == pytest.approx(3 * 2 * (4096**2 + 4096 * 128256 / tp))
    assert shared.weight_bytes == pytest.approx(3 * 2 * 4096**2)
    assert own.kv_bytes_per_token == shared.kv_bytes_per_token == 0


def test_memory_of_a_draft_model_follows_its_own_split():
    # 1.236 B parameters, tied embeddings; 16 layers of 8 KV heads of 64
    whole = DRAFT(draft="llama-3.2-1b").memory(LLAMA_8B, "bf16", "bf16", 4)
    assert whole.weight_bytes == pytest.approx(2 * 1.236e9, rel=1e-3)
    assert whole.kv_bytes_per_token == 16 * 2 * 8 * 64 * 2
    half = DRAFT(draft="llama-3.2-1b", draft_tp=2).memory(LLAMA_8B, "bf16", "fp8", 4)
    assert half.weight_bytes == whole.weight_bytes / 2
    assert half.kv_bytes_per_token == whole.kv_bytes_per_token / 4
    small = DRAFT(draft="llama-3.2-1b", draft_weights="int4").memory(LLAMA_8B, "bf16", "bf16", 4)
    # the embedding, 263 M parameters, stays in bf16
    assert small.weight_bytes == pytest.approx(2 * 262.7e6 + 0.5 * 973.1e6, rel=1e-3)


def test_the_layer_of_eagle_is_dense_beside_a_mixture_too():
    dense = 2 * (4096 * 6144 + 4096**2 + 3 * 4096 * 14336 + 2 * 4096**2)
    mixtral = catalog.transformer("mixtral-8x7b")
    assert EAGLE().memory(mixtral, "bf16", "bf16", 1).weight_bytes == dense


def test_memory_of_mtp_is_a_layer_of_the_targets_own_kind():
    extra = MTP().memory(MIMO, "bf16", "bf16", 1)
    assert extra.weight_bytes == 2 * (4096 * 6144 + 4096**2 + 3 * 4096 * 11008 + 2 * 4096**2)
    glm = catalog.transformer("glm-4.5-air")
    experts = 3 * 4096 * 1408 * 129 + 4096 * 128
    attention = 4096 * (96 + 16) * 128 + 96 * 128 * 4096
    assert MTP().memory(glm, "fp8", "bf16", 1).weight_bytes == experts + attention + 2 * 4096**2


# Passes of the draft phase


def passes(strategy, target=LLAMA_8B, engine="vllm_0.15", tp=1):
    found = strategy.draft_passes(target, catalog.engine(engine), "bf16", tp)
    return [(p.repeat, p.covers_prefill, p.rows, p.head_only) for p in found]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (PLAIN, []),
        (NGRAM(), []),
        (LOOKAHEAD(), []),
        (EAGLE(k=1), [FIRST]),
        (EAGLE(k=3), [FIRST, (2, False, 1, False)]),
        (EAGLE(tree="eagle_25"), [FIRST, *((1, False, r, False) for r in (4, 4, 1, 1))]),
        (EAGLE2(), [FIRST, (7, False, 10, False)]),
        (EAGLE3(k=1), [FIRST]),
        (EAGLE3(k=5), [FIRST, (4, False, 1, False)]),
        (DRAFT(draft="llama-3.2-1b", k=1), [FIRST]),
        (DRAFT(draft="llama-3.2-1b", k=4), [FIRST, (3, False, 1, False)]),
        (MTP(k=1), [FIRST]),
        (MTP(k=3), [FIRST, (2, False, 1, False)]),
        (MEDUSA(heads=4), [(4, False, 1, True)]),
    ],
)
def test_draft_passes(strategy, expected):
    assert passes(strategy, MIMO if strategy.kind == "mtp" else LLAMA_8B) == expected


def test_medusa_heads_run_on_the_tree_in_the_reference_code_only():
    tree = MEDUSA(tree="medusa_63")
    assert passes(tree, engine="transformers") == [(4, False, 64, True)]
    assert passes(tree, engine="vllm_v0") == [(4, False, 1, True)]


def test_networks_of_the_passes():
    first, later = EAGLE3(k=3).draft_passes(LLAMA_8B, VLLM, "fp8", 2)
    assert (first.net.layers, first.net.fc_inputs, first.net.qkv_inputs) == (1, 3, 2)
    assert (later.net.fc_inputs, later.net.vocab, later.tp, later.weights) == (0, 32000, 2, "bf16")
    (eagle,) = EAGLE(k=1).draft_passes(LLAMA_8B, VLLM, "fp8", 2)
    assert (eagle.net.fc_inputs, eagle.net.qkv_inputs, eagle.net.vocab) == (2, 1, 128256)
    (mtp,) = MTP(k=1).draft_passes(MIMO, VLLM, "fp8", 1)
    assert (mtp.net.layers, mtp.net.fc_inputs, mtp.weights) == (1, 2, "fp8")
    draft = DRAFT(draft="llama-3.2-1b", draft_tp=2, draft_weights="fp8", k=1)
    (small,) = draft.draft_passes(LLAMA_8B, VLLM, "bf16", 4)
    assert (small.net.name, small.tp, small.weights) == ("llama-3.2-1b", 2, "fp8")


def test_width_varies_where_matches_or_guesses_may_be_missing():
    padded = catalog.engine("vllm_0.33")
    assert NGRAM().varies_width(VLLM)
    assert not NGRAM().varies_width(padded)
    assert LOOKAHEAD(found_share=0.5).varies_width(VLLM)
    assert not LOOKAHEAD().varies_width(VLLM)
    assert not EAGLE().varies_width(VLLM)


def test_only_drafts_that_read_the_targets_features_drop_the_matched_block():
    dropping = {kind for kind, cls in KIND.items() if cls.drops_matched_block}
    assert dropping == {"eagle", "eagle2", "eagle3", "mtp"}


# What is refused

DEEP_TREE = [[0], [0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        *[(kind, {"k": 0}, "greater than 0") for kind in ("eagle", "eagle3", "mtp", "ngram")],
        ("draft_model", {"draft": "llama-3.2-1b", "k": 0}, "greater than 0"),
        ("draft_model", {}, "draft\n  Field required"),
        ("eagle", {"k": 3, "tree": "eagle_25"}, "give k for a chain or tree for a tree, not both"),
        ("eagle3", {"k": 3, "tree": {}}, "give k for a chain or tree for a dynamic tree, not both"),
        ("medusa", {"heads": 2, "tree": DEEP_TREE}, "depth 3 needs as many heads, got 2"),
        ("medusa", {"heads": 0}, "greater than 0"),
        ("eagle2", {"tree": {"total_tokens": 8, "passes": 8}}, r"must exceed passes \(8\)"),
        ("lookahead", {"n": 1}, "greater than or equal to 2"),
        ("lookahead", {"found_share": 1.5}, "less than or equal to 1"),
        ("eagle", {"kk": 3}, "Extra inputs are not permitted"),
        ("eagle", {"tree": "eagle_26"}, "did you mean 'eagle_25'"),
    ],
)
def test_contradictions_are_refused(kind, given, message):
    with pytest.raises(ValidationError, match=message):
        KIND[kind](**given)


@pytest.mark.parametrize(
    ("strategy", "target", "tp", "key", "message"),
    [
        (DRAFT(draft="qwen3-0.6b"), "llama-3.1-8b", 1, "draft", "vocabulary of 151936"),
        (DRAFT(draft="llama-3.2-1b", draft_tp=2), "llama-3.1-8b", 1, "draft_tp", "exceed"),
        (DRAFT(draft="llama-3.2-1b", draft_tp=3), "llama-3.1-70b", 4, "draft_tp", "divide"),
        (MTP(), "llama-3.1-8b", 1, "kind", "no multi-token-prediction layer"),
    ],
)
def test_targets_a_strategy_cannot_serve_are_refused(strategy, target, tp, key, message):
    with pytest.raises(ModelError, match=message) as caught:
        strategy.check(catalog.transformer(target), tp)
    assert caught.value.key == key


def test_targets_a_strategy_can_serve_pass():
    DRAFT(draft="llama-3.2-1b", draft_tp=4).check(catalog.transformer("llama-3.1-70b"), 4)
    MTP().check(MIMO, 1)
    for strategy in (PLAIN, EAGLE(), EAGLE3(), EAGLE2(), MEDUSA(), LOOKAHEAD(), NGRAM()):
        strategy.check(LLAMA_8B, 1)
