"""Time of one forward pass of one network, as tables over the integers it depends on.

Everything but the context sums depends on small integers (query tokens, head rows), so a pass is
evaluated once for every count and then costs two look-ups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.engine import GraphRule, TreeAttention
from models.gemm import Seconds
from models.kernels import Kernels
from models.kv_reads import large_read_s
from models.schema import BYTES_PER_KV, Dtype, KvDtype
from models.transformer import Transformer

Parts = dict[str, Seconds]


def layer_parts(
    kernels: Kernels, net: Transformer, weights: Dtype, kv: KvDtype, tp: int, m: NDArray[np.int64]
) -> Parts:
    """Time of all layers for ``m`` tokens by component, without what depends on context [s]."""
    hidden, hd = net.hidden, net.head_dim
    heads = (net.heads + 2 * max(net.kv_heads, tp)) * hd / tp
    projections = kernels.gemm(m, heads, hidden * net.qkv_inputs, weights)
    projections = projections + kernels.gemm(m, hidden, net.heads * hd / tp, weights)
    matmuls = net.layers * projections
    dense = net.layers - net.moe_layers
    if dense:
        matmuls = matmuls + dense * _ffn(kernels, net, net.intermediate, weights, tp, m)
    if net.moe_layers:
        mixture = kernels.experts(m, net, weights, tp)
        if net.shared_experts:
            shared = net.shared_experts * net.expert_intermediate
            mixture = mixture + _ffn(kernels, net, shared, weights, tp, m)
        matmuls = matmuls + net.moe_layers * mixture
    if net.fc_inputs:
        matmuls = matmuls + kernels.gemm(m, hidden, net.fc_inputs * hidden, weights)
    busy = (m > 0).astype(np.float64)
    return {
        "weights": matmuls,
        "attention": net.layers * kernels.attention_launch_s(kv) * busy,
        "elementwise": net.layers * kernels.elementwise(m, net, tp),
        "collectives": 2 * net.layers * kernels.all_reduce(2.0 * m * hidden, tp),
    }


def _ffn(
    kernels: Kernels, net: Transformer, width: int, weights: Dtype, tp: int, m: NDArray[np.int64]
) -> Seconds:
    up = kernels.gemm(m, 2 * width / tp, net.hidden, weights)
    return up + kernels.gemm(m, net.hidden, width / tp, weights)


def head_parts(kernels: Kernels, net: Transformer, tp: int, rows: NDArray[np.int64]) -> Parts:
    """Time of the LM head for ``rows`` rows by component [s]."""
    return {
        "lm_head": kernels.lm_head(rows, net.hidden, net.vocab, tp),
        "collectives": kernels.all_reduce(2.0 * rows * net.vocab, tp),
    }


def total(parts: Parts) -> Seconds:
    """Sum of all components [s]."""
    return np.asarray(sum(parts.values()))


def graph_sizes(
    rule: GraphRule, width: int, max_num_seqs: int, max_num_batched_tokens: int, decode_only: bool
) -> list[int]:
    """CUDA-graph capture sizes, ascending; empty without graphs.

    Parameters
    ----------
    rule : GraphRule
    width : int
        Query tokens of a sequence: K+1 of a chain, nodes and root of a tree.
    max_num_seqs, max_num_batched_tokens : int
        Limits of a step.
    decode_only : bool
        The step holds full-width decodes and no prefill.
    """
    if not rule.enabled:
        return []
    grown = 2 * max_num_seqs * (width if rule.per_sequence_tokens else 1)
    largest = min(rule.largest, grown, max_num_batched_tokens)
    coarse = range(rule.fine_to + 8, rule.largest + 1, 16)
    sizes = [s for s in (1, 2, 4, *range(8, rule.fine_to + 1, 8), *coarse) if s <= largest]
    if rule.round_to_width or (rule.decode_only_width and decode_only):
        rounded = {-(-size // width) * width for size in sizes}
        return sorted(size for size in rounded if size <= largest)
    return sizes


def padded(sizes: Sequence[int], count: int) -> NDArray[np.int64]:
    """Tokens that steps of 0..count-1 tokens really compute: the next capture size, if any."""
    m = np.arange(count)
    if not sizes:
        return m
    table = np.asarray(sizes)
    index = np.minimum(np.searchsorted(table, m), len(table) - 1)
    captured = (m > 0) & (m <= table[-1]) & (table[index] < count)
    return np.where(captured, table[index], m)


@dataclass(frozen=True)
class Attention:
    """Context-dependent time of a pass.

    ``max(kv(ctx), query_s query_ctx) + read_s ctx + pair_s pairs + token_s prompt tokens`` with
    ``kv(ctx) = min(kv_s ctx, far_s + far_kv_s ctx)``: ``kv_s``, or where much is read ``far_kv_s``,
    or ``read_s`` reads one context token's KV once a step however many query tokens attend
    to it, behind arithmetic or before it; ``query_s`` and ``pair_s`` compute one (query, context)
    pair, of a sequence that decodes and of a prompt; ``token_s`` streams a prompt token.
    """

    kv_s: float
    far_s: float
    far_kv_s: float
    read_s: float
    query_s: float
    pair_s: float
    token_s: float

    @classmethod
    def of(cls, kernels: Kernels, net: Transformer, kv: KvDtype, tp: int, width: int) -> Attention:
        """Attention of all layers of ``net`` at ``width`` query tokens a sequence."""
        hidden, before = kernels.kv_read_s(net, kv, tp), kernels.verify_read_s(net, kv, tp)
        read_as: KvDtype = kv if kernels.slow_fp8_kv(kv) is None else "bf16"
        far_s, far = large_read_s(kernels.profile.attention_of(read_as), hidden)
        if width == 1 or before is None:
            before = 0.0
        else:
            hidden = far_s = far = 0.0
        return cls(
            net.layers * hidden,
            net.layers * far_s,
            net.layers * far,
            net.layers * before,
            net.layers * kernels.verify_pair_s(net, tp),
            net.layers * kernels.pair_s(net, tp),
            net.layers * kernels.prompt_token_s(net, tp),
        )

    @classmethod
    def of_tree(
        cls,
        kernels: Kernels,
        net: Transformer,
        kv: KvDtype,
        tp: int,
        width: int,
        tree: TreeAttention,
    ) -> Attention:
        """The same at ``width`` tokens of a tree, by an engine's own kernels; prompts as ever."""
        usual = cls.of(kernels, net, kv, tp, width)
        accelerator, kv_heads = kernels.accelerator, -(-net.kv_heads // tp)
        rows = tree.padded_rows(width * net.heads / tp / kv_heads)
        flops = tree.mask_factor.value * 4.0 * net.head_dim * kv_heads * rows
        computing = flops / (tree.compute.value * accelerator.peak_flops["bf16"])
        size = 2 * kv_heads * net.head_dim * BYTES_PER_KV[kv]
        reading = size / (tree.memory.value * accelerator.memory_bandwidth_bytes_per_s)
        both = net.layers * (computing + reading)
        return cls(0.0, 0.0, 0.0, both, 0.0, usual.pair_s, usual.token_s)

    def slope(self, width: int) -> float:
        """Seconds a context token, at ``width`` query tokens a sequence, where little is read."""
        return max(self.kv_s, self.query_s * width) + self.read_s

    def far(self, width: int) -> tuple[float, float, float] | None:
        """Context tokens from which a step reads much; then the fixed time, and that of a token.

        None where arithmetic outlasts reading only where much is read: then it is no line.
        """
        query_s, gain = self.query_s * width, self.kv_s - self.far_kv_s
        if gain <= 0 or query_s >= self.kv_s:
            return math.inf, 0.0, 0.0
        if query_s > self.far_kv_s:
            return None
        return self.far_s / gain, self.far_s, self.far_kv_s + self.read_s

    def seconds(
        self, ctx: float, query_ctx: float, pairs: float = 0.0, prompt_tokens: float = 0.0
    ) -> float:
        """Time for contexts ``ctx``, sum of width x context, prefill pairs and tokens [s]."""
        kv = min(self.kv_s * ctx, self.far_s + self.far_kv_s * ctx)
        decode = max(kv, self.query_s * query_ctx) + self.read_s * ctx
        return decode + self.pair_s * pairs + self.token_s * prompt_tokens


class PassTime(NamedTuple):
    """One draft pass as tables: ``body[tokens] + head[rows]``, attention, launch costs.

    A tuple, because a step unpacks it: ``repeat``, ``covers_prefill`` and ``rows`` are those of
    ``DraftPass``, ``kv_s`` to ``token_s`` those of ``Attention``.
    """

    repeat: int
    covers_prefill: bool
    rows: int
    body: list[float]
    head: list[float]
    kv_s: float
    read_s: float
    query_s: float
    pair_s: float
    token_s: float
    floor_s: float
    launch_s: float

    def slope(self, width: int) -> float:
        """Seconds a context token in a decode step of ``width`` tokens a sequence."""
        tokens = width if self.covers_prefill else self.rows
        return self.repeat * (max(self.kv_s, self.query_s * tokens) + self.read_s)

    def floor_binds(self, sequences: int, width: int) -> bool:
        """Whether launching the layers may take longer than running them."""
        rows = sequences * self.rows
        count = sequences * width if self.covers_prefill else rows
        return self.body[count] + self.head[rows] < self.floor_s


def draft_seconds(
    passes: Sequence[PassTime],
    sequences: int,
    tokens: int,
    ctx: float,
    query_ctx: float,
    pairs: float,
    prompt_tokens: float = 0.0,
) -> float:
    """Time of a draft phase: every pass with its repeats, one after another [s].

    Parameters
    ----------
    passes : sequence of PassTime
    sequences : int
        Sequences that draft.
    tokens : int
        Query and prefill tokens of the step.
    ctx, query_ctx, pairs, prompt_tokens : float
        As in ``Attention.seconds``.
    """
    total_s = 0.0
    for (
        repeat,
        covers,
        rows,
        body,
        head,
        kv_s,
        read_s,
        query_s,
        pair_s,
        token_s,
        floor_s,
        launch_s,
    ) in passes:
        count = tokens if covers else sequences * rows
        if not count:
            continue
        gpu = body[count] + head[sequences * rows]
        if covers:
            gpu += max(kv_s * ctx, query_s * query_ctx) + read_s * ctx
            gpu += pair_s * pairs + token_s * prompt_tokens
        else:
            gpu += (max(kv_s, query_s * rows) + read_s) * ctx
        total_s += repeat * (max(gpu, floor_s) + launch_s)
    return total_s
