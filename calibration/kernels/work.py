"""Least traffic and arithmetic of each operation: what its time is measured against.

The only place these are written down for timed kernels; ``models.kernels`` predicts with the same
counts. Counts are integers or integer arrays; bytes and FLOPs are floats of the broadcast shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from models.schema import BYTES_PER_KV, BYTES_PER_WEIGHT

Floats = NDArray[np.float64]


class Work(NamedTuple):
    """Least bytes moved [byte] and arithmetic [FLOP] of a kernel, both of the same shape."""

    bytes: Floats
    flops: Floats


class Operands(NamedTuple):
    """Bytes per element of weights, activations and output, and the unit that multiplies them."""

    weight_bytes: float
    activation_bytes: float
    output_bytes: float
    computes_in: str


_SCALE_16, _SCALE_32 = 1 / 16, 1 / 32
"""One byte of scale for every 16 (nvfp4) or 32 (mxfp4) elements."""

OPERANDS: dict[str, Operands] = {
    "bf16": Operands(BYTES_PER_WEIGHT["bf16"], 2, 2, "bf16"),
    "fp16": Operands(2, 2, 2, "bf16"),
    "fp32": Operands(4, 4, 4, "fp32"),
    "fp8": Operands(BYTES_PER_WEIGHT["fp8"], 1, 2, "fp8"),
    "fp8_block": Operands(1, 1, 2, "fp8"),
    "int8": Operands(BYTES_PER_WEIGHT["int8"], 2, 2, "bf16"),
    "int4": Operands(BYTES_PER_WEIGHT["int4"], 2, 2, "bf16"),
    "w8a8": Operands(1, 1, 2, "int8"),
    "nvfp4": Operands(0.5 + _SCALE_16, 0.5 + _SCALE_16, 2, "fp4"),
    "w4a16_mxfp4": Operands(0.5 + _SCALE_32, 2, 2, "bf16"),
    "w4a8_mxfp4_mxfp8": Operands(0.5 + _SCALE_32, 1 + _SCALE_32, 2, "fp8"),
    "w4afp8": Operands(0.5, 1, 2, "fp8"),
}
"""Operand types by the name in the ``dtype`` column; int8 and int4 are weights only."""

KV_BYTES = {**BYTES_PER_KV, "fp16": 2.0, "fp32": 4.0}
"""Bytes of one element of the KV cache, by the name in the ``kv_dtype`` column."""

ELEMENT_BYTES = {
    "static_fp8_quant": 3.0,
    "dynamic_fp8_quant": 3.0,
    "rms_norm": 4.0,
    "add_rms_norm": 8.0,
    "residual_add": 6.0,
    "rotary": 4.0,
    "silu_mul": 6.0,
}
"""Bytes each small kernel moves for one element of its m x n output in bf16."""

LOGIT_BYTES = 2.0


def gemm(m: ArrayLike, n: ArrayLike, k: ArrayLike, dtype: ArrayLike) -> Work:
    """Work of (m, k) by (k, n): 2mnk FLOP; weights, activations and output once.

    Raises
    ------
    ValueError
        If a ``dtype`` is not one of ``OPERANDS``.
    """
    rows, columns, inner = _floats(m, n, k)
    weight, activation, output = operand_bytes(dtype)
    moved = weight * columns * inner + activation * rows * inner + output * rows * columns
    return Work(moved, 2.0 * rows * columns * inner)


def attention(
    batch: ArrayLike,
    query_tokens: ArrayLike,
    context_tokens: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    head_dim: ArrayLike,
    kv_dtype: ArrayLike,
) -> Work:
    """Work of attention over a KV cache: keys and values once, queries and output once in bf16.

    Query token i of q attends to the ``context_tokens`` before it and to i tokens of the step: a
    causal mask. A tree mask lets it see fewer of them; kernels compute the same tiles.
    """
    sequences, q, context, query_heads, cached_heads, width = _floats(
        batch, query_tokens, context_tokens, heads, kv_heads, head_dim
    )
    kv_bytes = _by_name(kv_dtype, KV_BYTES, "kv_dtype")
    cached = (context + q) * 2.0 * cached_heads * width * kv_bytes
    moved = sequences * (cached + 2.0 * q * query_heads * width * 2.0)
    pairs = q * context + q * (q + 1.0) / 2.0
    return Work(moved, 4.0 * query_heads * width * sequences * pairs)


def all_reduce(message_bytes: ArrayLike, gpus: ArrayLike) -> Work:
    """Bytes each GPU sends over its link in a ring: 2 (gpus - 1)/gpus of the message."""
    size, group = _floats(message_bytes, gpus)
    return Work(2.0 * (group - 1.0) / group * size, np.zeros_like(size))


def experts_hit(
    m: ArrayLike, experts: ArrayLike, experts_per_token: ArrayLike, *, balanced: bool = False
) -> Floats:
    """How many experts ``m`` tokens go to.

    Notes
    -----
    Expected under uniform routing: ``X (1 - (1 - k/X)^m)``. Balanced routing, which benchmarks
    like and traffic does not show, spreads tokens over as many as there are: ``min(X, mk)``.
    """
    rows, total, each = _floats(m, experts, experts_per_token)
    if balanced:
        return np.minimum(total, rows * each)
    return total * (1.0 - (1.0 - each / total) ** rows)


def moe(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    experts: ArrayLike,
    experts_per_token: ArrayLike,
    dtype: ArrayLike,
    *,
    balanced: bool = False,
    matrices: ArrayLike = 3,
) -> Work:
    """Work of the routed experts of one layer: weights of the experts hit, and their products.

    Parameters
    ----------
    m, n, k : array_like
        Tokens, intermediate size on one GPU, hidden size.
    experts, experts_per_token : array_like
        Experts on one GPU, and how many each token goes to.
    dtype : array_like
        Types of weights and activations.
    balanced : bool
        Routing, see ``experts_hit``.
    matrices : array_like
        Matrices an expert has: gate, up and down, or 2 without a gate.
    """
    rows, each = _floats(m, experts_per_token)
    _, columns, inner, parts = _floats(m, n, k, matrices)
    weight, _, _ = operand_bytes(dtype)
    hit = experts_hit(m, experts, experts_per_token, balanced=balanced)
    per_expert = parts * inner * columns
    return Work(hit * per_expert * weight, 2.0 * rows * each * per_expert)


def elementwise(m: ArrayLike, n: ArrayLike, kernel: ArrayLike) -> Work:
    """Work of one small kernel with an m x n output; arithmetic is not counted.

    Raises
    ------
    ValueError
        If a kernel is not one of ``ELEMENT_BYTES``: its bytes must then be given.
    """
    rows, width = _floats(m, n)
    each = _by_name(kernel, ELEMENT_BYTES, "bytes are not known for kernel")
    return Work(each * rows * width, np.zeros_like(rows))


def sampling(m: ArrayLike, n: ArrayLike) -> Work:
    """Work of choosing a token in each of ``m`` rows: ``n`` logits in bf16, read once."""
    rows, vocabulary = _floats(m, n)
    return Work(LOGIT_BYTES * rows * vocabulary, np.zeros_like(rows))


def of(operation: str, columns: Mapping[str, Any]) -> Work:
    """Work of rows of one operation, from the columns of the schema that describe its shape.

    Raises
    ------
    ValueError
        If a type or kernel is not known, or the operation (``stream``) needs its bytes given.
    """
    if operation == "launch":
        nothing = np.zeros(len(columns["m"]))
        return Work(nothing, nothing)
    if operation not in _SHAPES:
        raise ValueError(f"bytes of {operation} rows must be given")
    function, names = _SHAPES[operation]
    return function(*(columns[name] for name in names))


_HEADS = ("heads", "kv_heads", "head_dim", "kv_dtype")

_SHAPES: dict[str, tuple[Callable[..., Work], tuple[str, ...]]] = {
    "gemm": (gemm, ("m", "n", "k", "dtype")),
    "attention": (attention, ("batch", "query_tokens", "context_tokens", *_HEADS)),
    "all_reduce": (all_reduce, ("message_bytes", "gpus")),
    "moe": (moe, ("m", "n", "k", "experts", "experts_per_token", "dtype")),
    "elementwise": (elementwise, ("m", "n", "kernel")),
    "sampling": (sampling, ("m", "n")),
}


def operand_bytes(dtype: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Bytes per element of weights, activations and output, each of the shape of ``dtype``."""
    weight = {name: operands.weight_bytes for name, operands in OPERANDS.items()}
    activation = {name: operands.activation_bytes for name, operands in OPERANDS.items()}
    output = {name: operands.output_bytes for name, operands in OPERANDS.items()}
    return (
        _by_name(dtype, weight, "dtype"),
        _by_name(dtype, activation, "dtype"),
        _by_name(dtype, output, "dtype"),
    )


def _by_name(names: ArrayLike, values: Mapping[str, float], what: str) -> Floats:
    """Value of each name, looked up once for every distinct one."""
    array = np.asarray(names, dtype=object)
    codes, distinct = pd.factorize(array.ravel())
    unknown = [name for name in distinct if name not in values]
    if unknown:
        raise ValueError(f"{what} '{unknown[0]}'; known are {', '.join(values)}")
    return np.array([float(values[name]) for name in distinct])[codes].reshape(array.shape)


def _floats(*counts: ArrayLike) -> list[Floats]:
    return list(np.broadcast_arrays(*(np.asarray(c, dtype=np.float64) for c in counts)))
