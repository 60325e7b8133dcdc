"""Measures of memory and bytes: arithmetic of shapes, exact but for the engine's reserve."""

from __future__ import annotations

import numpy as np

from models.schema import BYTES_PER_WEIGHT
from sim.audit.registry import register
from sim.audit.view import Look, Measured


@register("byte", simulated=False)
def added_weight_bytes(look: Look) -> Measured:
    """Weights a strategy adds to those of the target, each counted once."""
    deployment = look.view.deployment
    place = deployment.target, deployment.weights, deployment.kv, 1
    return Measured(look.chosen.memory(*place).weight_bytes)


@register("byte", simulated=False)
def added_bytes_on_gpus(look: Look) -> Measured:
    """Memory the added weights take on all GPUs of a replica; what is not split is on each."""
    return Measured(look.setup.budget.draft_bytes * look.setup.deployment.tp)


@register("byte", simulated=False)
def target_weight_bytes(look: Look) -> Measured:
    """Weights of the target, all GPUs of a replica together."""
    deployment = look.view.deployment
    return Measured(deployment.target.weight_bytes(deployment.weights))


@register("byte", simulated=False)
def target_bf16_bytes(look: Look) -> Measured:
    """Weights of the target were they kept in bf16."""
    return Measured(look.view.deployment.target.weight_bytes("bf16"))


@register("byte", simulated=False)
def head_lm_bytes(look: Look) -> Measured:
    """One LM head of the target in bf16: hidden size times vocabulary."""
    return Measured(look.view.deployment.target.lm_head_params() * BYTES_PER_WEIGHT["bf16"])


@register("byte", simulated=False)
def head_block_bytes(look: Look) -> Measured:
    """One residual block of a Medusa head in bf16: hidden size squared."""
    return Measured(look.view.deployment.target.hidden**2 * BYTES_PER_WEIGHT["bf16"])


@register("byte", simulated=False)
def gpu_memory_bytes(look: Look) -> Measured:
    """Memory of all GPUs of a replica."""
    deployment = look.view.deployment
    return Measured(deployment.accelerator.memory_bytes * deployment.tp)


@register("byte", simulated=False)
def kv_bytes_per_token(look: Look) -> Measured:
    """KV of one token of context, all GPUs of a replica together."""
    deployment = look.view.deployment
    each = deployment.target.kv_bytes_per_token(deployment.kv, deployment.tp)
    return Measured(each * deployment.tp)


@register("byte", simulated=False)
def kv_pool_bytes(look: Look) -> Measured:
    """Memory left for KV beside weights, draft and reserve, all GPUs of a replica together."""
    return Measured(look.setup.budget.kv_bytes * look.setup.deployment.tp)


@register("tokens", simulated=False)
def kv_slots_reserved(look: Look) -> Measured:
    """KV slots a decoding sequence reserves past its verified tokens."""
    return Measured(float(look.setup.rules.slots))


@register("blocks", simulated=False)
def kv_blocks_per_sequence(look: Look) -> Measured:
    """KV blocks a sequence of this context holds, or one that ends at it where all are reserved.

    An engine that never preempts reserves them at admission.
    """
    return Measured(float(_blocks(look)))


@register("byte", simulated=False)
def kv_allocated_bytes(look: Look) -> Measured:
    """KV blocks all sequences of this batch and context hold, in or beyond the pool."""
    setup = look.setup
    return Measured(look.batch * _blocks(look) * setup.budget.block_bytes * setup.deployment.tp)


@register("sequences", simulated=False)
def kv_capacity(look: Look) -> Measured:
    """Sequences of this context the KV pool holds."""
    return Measured(float(look.setup.budget.n_blocks // _blocks(look)))


@register("byte", simulated=False)
def unallocated_bytes(look: Look) -> Measured:
    """KV pool no sequence holds at this batch and context, all GPUs of a replica together."""
    budget, tp = look.setup.budget, look.setup.deployment.tp
    free = budget.n_blocks - look.batch * _blocks(look)
    if free < 0:
        return Measured(None, why="the KV pool is full")
    return Measured(free * budget.block_bytes * tp)


def _blocks(look: Look) -> int:
    rules, (prompt, output) = look.setup.rules, look.view.lengths
    if rules.preemption == "never":
        last = look.asked_context or round(prompt + output)
        first = max(min(round(prompt), last - 1), 1)
        return rules.admitted(first, first, last) + rules.kv.run
    first = look.context if look.asked_context is not None else round(prompt)
    return int(rules.kv.blocks(np.array([first]), np.array([look.context]))[0])
