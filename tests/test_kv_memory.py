"""KV blocks against start-up logs of real servers, and slots against what each engine reserves."""

from __future__ import annotations

import pytest
from by_hand import GIB, KIND, PLAIN

from models import catalog
from models.kv_memory import kv_budget, kv_slots
from models.kv_use import kv_use
from models.schema import ModelError
from models.strategies.adaptive import Adaptive

EAGLE, EAGLE3, MEDUSA = KIND["eagle"], KIND["eagle3"], KIND["medusa"]
DRAFT, MTP, NGRAM, LOOKAHEAD = (KIND[k] for k in ("draft_model", "mtp", "ngram", "lookahead"))


def budget(target, strategy=PLAIN, tp=1, util=0.9, engine="vllm_0.15", gpu="h100_sxm", **types):
    return kv_budget(
        catalog.hardware(gpu),
        catalog.transformer(target),
        strategy,
        catalog.engine(engine),
        weights=types.get("weights", "bf16"),
        kv=types.get("kv", "bf16"),
        tp=tp,
        gpu_memory_utilization=util,
    )


@pytest.mark.parametrize(
    ("target", "tp", "logged"),
    [
        # vLLM 0.15.1 on H100, utilisation 0.9: start-up logs published with inference-sim
        ("llama-2-7b", 1, 7463),
        ("llama-2-70b", 4, 31357),
        ("codellama-34b", 2, 26603),
        # 8192 and 2048 tokens a step
        ("llama-3.1-70b", 4, 30251),
        ("llama-3.1-70b", 4, 30425),
        ("mistral-nemo", 1, 19251),
        ("mistral-nemo", 2, 48009),
        ("qwen2.5-7b", 1, 65352),
        ("yi-34b", 2, 20793),
    ],
)
def test_blocks_are_those_of_real_servers(target, tp, logged):
    assert budget(target, tp=tp).n_blocks == pytest.approx(logged, rel=0.015)


@pytest.mark.parametrize(
    ("target", "tp", "util", "expected"),
    [
        ("llama-3.1-8b", 1, 0.90, 28228),
        ("llama-3.1-8b", 1, 0.95, 30253),
        ("llama-3.1-8b", 2, 0.90, 64114),
        ("mixtral-8x7b", 2, 0.90, 27234),
        ("mixtral-8x7b", 4, 0.90, 99006),
    ],
)
def test_blocks_follow_the_equation(target, tp, util, expected):
    params, layers, heads = {
        "llama-3.1-8b": (8_030_000_000, 32, 8),
        "mixtral-8x7b": (46_700_000_000, 32, 8),
    }[target]
    left = util * 79.1 * GIB - 2 * params / tp - 1.1 * GIB
    by_hand = left / (16 * 2 * heads / tp * 128 * 2 * layers)
    found = budget(target, tp=tp, util=util).n_blocks
    assert found == pytest.approx(by_hand, rel=2e-3)
    assert found == pytest.approx(expected, abs=2)


def test_the_budget_adds_up():
    found = budget("llama-3.1-8b", EAGLE3(k=3))
    used = found.unused_bytes + found.weights_bytes + found.draft_bytes + found.reserve_bytes
    assert used + found.kv_bytes == pytest.approx(found.memory_bytes)
    assert found.memory_bytes == pytest.approx(79.1 * GIB, rel=1e-4)
    assert found.n_blocks == found.kv_bytes // found.block_bytes


def test_fp8_halves_weights_and_cache():
    plain, fp8 = budget("llama-3.1-8b"), budget("llama-3.1-8b", weights="fp8")
    # embedding and LM head stay in bf16: 2 x 4096 x 128256 parameters
    assert plain.weights_bytes - fp8.weights_bytes == pytest.approx(
        8.03e9 - 2 * 4096 * 128256, rel=1e-3
    )
    assert budget("llama-3.1-8b", kv="fp8").n_blocks == pytest.approx(2 * plain.n_blocks, abs=1)


def test_kv_heads_are_split_and_then_replicated():
    blocks = [budget("qwen2.5-7b", tp=tp).block_bytes for tp in (1, 2, 4)]
    assert blocks == [16 * 2 * heads * 128 * 2 * 28 for heads in (4, 2, 1)]
    target = catalog.transformer("qwen3-30b-a3b")
    assert target.kv_bytes_per_token("bf16", 8) == target.kv_bytes_per_token("bf16", 4)


@pytest.mark.parametrize(
    ("target", "tp", "strategy", "weights_gb"),
    [
        # 4 heads: 8192^2 in bf16 on every GPU (vLLM keeps it whole), 8192 x 128256 split by four
        ("llama-3.1-70b", 4, MEDUSA(heads=4), 0.5369 + 8.4054 / 4),
        ("llama-3.1-70b", 4, MEDUSA(heads=4, shared_lm_head=True), 0.5369),
        ("llama-3.1-8b", 1, EAGLE3(k=3), 0.849),
        ("llama-3.1-8b", 1, EAGLE(k=3), 1.554 - 2 * 4096 * 128256 / 1e9),
        ("llama-3.1-8b", 1, DRAFT(draft="llama-3.2-1b", k=4), 2.47),
    ],
)
def test_drafts_take_their_weights_from_the_cache(target, tp, strategy, weights_gb):
    plain, drafting = budget(target, tp=tp), budget(target, strategy, tp=tp)
    assert drafting.draft_bytes == pytest.approx(weights_gb * 1e9, rel=2e-3)
    assert plain.kv_bytes - drafting.kv_bytes == pytest.approx(drafting.draft_bytes)
    assert drafting.n_blocks < plain.n_blocks - 0.9 * drafting.draft_bytes / plain.block_bytes


@pytest.mark.parametrize(
    ("target", "strategy", "share"),
    [
        ("llama-3.1-8b", EAGLE(k=3), 1 / 32),
        ("llama-3.1-8b", EAGLE3(k=3), 1 / 32),
        ("mimo-7b", MTP(k=1), 1 / 36),
        # 16 layers of 8 heads of 64
        ("llama-3.1-8b", DRAFT(draft="llama-3.2-1b", k=4), 16 * 64 / (32 * 128)),
        ("llama-3.1-8b", MEDUSA(), 0.0),
        ("llama-3.1-8b", NGRAM(), 0.0),
        ("llama-3.1-8b", LOOKAHEAD(), 0.0),
    ],
)
def test_draft_kv_widens_every_block(target, strategy, share):
    plain, drafting = budget(target), budget(target, strategy)
    assert drafting.block_bytes == pytest.approx((1 + share) * plain.block_bytes, rel=1e-12)
    assert drafting.n_blocks == pytest.approx(
        drafting.kv_bytes / plain.block_bytes / (1 + share), abs=1
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(ModelError, match=r"llama-3\.1-70b does not fit: 141\.1 GB") as caught:
        budget("llama-3.1-70b")
    assert caught.value.key == "model"
    # 70.6 GB of weights a GPU leave room, until eight heads of Medusa ask for 9.5 GB more
    assert budget("llama-3.1-70b", tp=2).n_blocks > 0
    with pytest.raises(ModelError, match=r"\+ 9\.5 GB of draft"):
        budget("llama-3.1-70b", MEDUSA(heads=8), tp=2)


# Slots past the verified tokens


def slots(engine, strategy):
    return kv_slots(catalog.engine(engine), strategy)


SMALL = {"total_tokens": 8, "passes": 5, "topk": 4}
WIDE = {"total_tokens": 60, "passes": 4, "topk": 10}


@pytest.mark.parametrize(
    ("engine", "strategy", "expected"),
    [
        # vLLM V1, synchronous: plain 1, K+1, and 2K+1 where the draft fills KV of its own
        ("vllm_0.10", PLAIN, 1),
        ("vllm_0.10", NGRAM(k=3), 4),
        ("vllm_0.10", MEDUSA(heads=4), 5),
        ("vllm_0.10", EAGLE(k=3), 7),
        ("vllm_0.10", EAGLE3(k=5), 11),
        ("vllm_0.15", DRAFT(draft="llama-3.2-1b", k=4), 9),
        ("vllm_0.15", NGRAM(k=3), 4),
        ("vllm_0.15", MEDUSA(heads=4), 5),
        # asynchronous: plain 2, 2K+2, 3K+2
        ("vllm_0.15", PLAIN, 2),
        ("vllm_0.15", EAGLE(k=3), 11),
        ("vllm_0.15", EAGLE3(k=2), 8),
        ("vllm_0.15", MTP(k=1), 5),
        ("vllm_0.28", DRAFT(draft="llama-3.2-1b", k=4), 14),
        ("vllm_0.33", NGRAM(k=3), 8),
        # SGLang: max(steps x topk, draft tokens), twice when overlapped
        ("sglang_0.5", PLAIN, 1),
        ("sglang_0.5", EAGLE(k=3), 4),
        ("sglang_0.5", EAGLE3(tree=SMALL), 20),
        ("sglang_0.5", EAGLE3(tree=WIDE), 60),
        ("sglang_0.5", KIND["eagle2"](), 80),
        ("sglang_0.5.23", PLAIN, 1),
        ("sglang_0.5.23", EAGLE3(tree=SMALL), 40),
        ("sglang_0.5.23", EAGLE(k=3), 8),
        # trees: nodes + 1; Lookahead: (W + G)(N - 1)
        ("transformers", MEDUSA(tree="medusa_63"), 64),
        ("tensorrt_llm", MEDUSA(tree="medusa_63"), 64),
        ("vllm_0.10", EAGLE(tree="eagle_25"), 26),
        ("vllm_0.15", KIND["eagle2"](), 60),
        ("tensorrt_llm", LOOKAHEAD(w=7, n=7, g=7), 84),
        ("vllm_0.15", LOOKAHEAD(w=15, n=5, g=15), 120),
    ],
)
def test_slots_of_a_decoding_sequence(engine, strategy, expected):
    assert slots(engine, strategy) == expected


def test_sequences_that_switch_lie_as_deep_as_they_reserve() -> None:
    """The engine runs ahead of eagle3 alone, but of no mode where a Medusa chain is beside it."""
    engine = catalog.engine("vllm_0.15")
    gate = Adaptive(primary={"kind": "eagle3", "k": 5}, fallback={"kind": "medusa", "heads": 4})
    slots = kv_slots(engine, gate)
    assert slots == kv_use(engine, gate).layout.slots == 11
    assert kv_use(engine, KIND["eagle3"](k=5)).layout.slots > slots
