"""KV memory: what is left for the cache on one GPU, and what a sequence reserves of it."""

from __future__ import annotations

from typing import NamedTuple

from models.engine import Engine
from models.hardware import Accelerator
from models.schema import Dtype, KvDtype, ModelError
from models.strategies import Strategy
from models.transformer import Transformer


class KvBudget(NamedTuple):
    """Memory of one GPU, in byte, and the KV blocks it leaves."""

    memory_bytes: float
    unused_bytes: float
    weights_bytes: float
    draft_bytes: float
    reserve_bytes: float
    kv_bytes: float
    block_bytes: float
    n_blocks: int


def kv_budget(
    accelerator: Accelerator,
    target: Transformer,
    strategy: Strategy,
    engine: Engine,
    *,
    weights: Dtype,
    kv: KvDtype,
    tp: int,
    gpu_memory_utilization: float,
) -> KvBudget:
    """Blocks left for KV: utilised memory - weights - draft - activation and graph reserve.

    Draft weights, heads and the draft's own KV come out of the same budget.

    Raises
    ------
    ModelError
        If not even one block is left (key ``model``).
    """
    extra = strategy.memory(target, weights, kv, tp)
    usable = gpu_memory_utilization * accelerator.memory_bytes
    model = target.weight_bytes(weights) / tp
    reserve = engine.memory_reserve_bytes.value
    block = engine.block_tokens * (target.kv_bytes_per_token(kv, tp) + extra.kv_bytes_per_token)
    left = usable - model - extra.weight_bytes - reserve
    if left < block:
        drafts = f" + {extra.weight_bytes / 1e9:.1f} GB of draft" if extra.weight_bytes else ""
        raise ModelError(
            f"{target.name} does not fit: {model / 1e9:.1f} GB of weights a GPU{drafts} leave no "
            f"KV block in {usable / 1e9:.1f} GB, got tp {tp} on {accelerator.name}",
            "model",
        )
    return KvBudget(
        accelerator.memory_bytes,
        accelerator.memory_bytes - usable,
        model,
        extra.weight_bytes,
        reserve,
        left,
        block,
        int(left // block),
    )


def kv_slots(engine: Engine, strategy: Strategy) -> int:
    """KV slots a decoding sequence holds past its verified tokens.

    vLLM V1 schedules K+1 query tokens and, for drafts with KV of their own, K more to draft
    ahead into; scheduling one step ahead adds the step in flight. SGLang reserves the larger of
    drafted rows and verified tokens, twice when overlapped. Trees and Lookahead, which vLLM V1
    never ran, take their verify tokens. Rejected slots are reused, never freed. Where sequences
    switch between strategies they hold the slots of the largest.
    """
    if strategy.switches:
        engine = engine if strategy.scheduled_ahead(engine) else engine.synchronous()
        return max(kv_slots(engine, mode) for mode in strategy.modes)
    ahead = strategy.scheduled_ahead(engine)
    width, k = strategy.verify_tokens, strategy.depth
    if engine.slot_rule in ("sglang", "sglang_overlap"):
        tokens = max(strategy.draft_rows, width)
        return 2 * tokens if engine.slot_rule == "sglang_overlap" and k else tokens
    if engine.slot_rule == "vllm_v1" and not strategy.needs_tree:
        drafted_into = k if strategy.drafts_ahead else 0
        return width + drafted_into + (width if ahead else 0)
    return width
