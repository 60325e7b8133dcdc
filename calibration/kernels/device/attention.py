"""Attention over a KV cache, as serving engines and as Hugging Face transformers compute it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from calibration.kernels.device.operands import Operands
from calibration.kernels.device.sweep import Shape
from calibration.kernels.device.timing import Call

LAYERS = 32
"""Layers whose caches a model holds at a time, about."""


def attention(torch: Any, operands: Operands, shape: Shape) -> Call:
    """Call that attends once: decoding, verification (chain or tree) or a prompt."""
    if shape.stack == "transformers":
        return _dynamic_cache(torch, operands, shape)
    keys = shape.context_tokens + shape.query_tokens
    sizes = (shape.batch, keys, shape.kv_heads, shape.head_dim)
    cached = operands.cold(*sizes, dtype=shape.kv_dtype, in_use=2)
    if shape.mask == "tree":
        return _packed_tree(torch, operands, shape, cached)
    attend = torch.nn.functional.scaled_dot_product_attention
    query = _query(operands, shape)
    grouped = shape.heads != shape.kv_heads
    how: dict[str, Any] = {"enable_gqa": True} if grouped else {}
    if not shape.context_tokens:
        how["is_causal"] = True
    elif shape.query_tokens > 1:
        how["attn_mask"] = _lower_right(torch, operands.device, shape)
    return (lambda: attend(query, cached().transpose(1, 2), cached().transpose(1, 2), **how),)


def _query(operands: Operands, shape: Shape) -> Any:
    """Queries as the projection leaves them: [batch, heads, tokens, width], heads side by side."""
    sizes = (shape.batch, shape.query_tokens, shape.heads, shape.head_dim)
    return operands.hot(*sizes, dtype=shape.dtype).transpose(1, 2)


def _lower_right(torch: Any, device: str, shape: Shape) -> Any:
    """Causal mask of the last tokens; on CUDA one that flash attention computes by itself."""
    keys = shape.context_tokens + shape.query_tokens
    if device == "cuda":
        from torch.nn.attention.bias import causal_lower_right

        return causal_lower_right(shape.query_tokens, keys)
    return visible(torch, device, shape)


def visible(torch: Any, device: str, shape: Shape) -> Any:
    """Which keys each query token sees, true or false, of shape [query_tokens, keys].

    All of the context; of the step itself the tokens before it (causal), or its ancestors in a
    tree where token i hangs under token (i - 1) // 2.
    """
    query, context = shape.query_tokens, shape.context_tokens
    new = torch.ones(query, query, dtype=torch.bool).tril()
    if shape.mask == "tree":
        new = torch.eye(query, dtype=torch.bool)
        for node in range(1, query):
            new[node] |= new[(node - 1) // 2]
    old = torch.ones(query, context, dtype=torch.bool)
    return torch.cat((old, new), dim=1).to(device)


def _packed_tree(torch: Any, operands: Operands, shape: Shape, cached: Callable[[], Any]) -> Call:
    """Tree verification: the query heads of a KV head as rows of one product, under one mask.

    Kernels that take a mask do not share KV heads; packed, they read each key once all the same.
    """
    group = shape.heads // shape.kv_heads
    rows, keys = group * shape.query_tokens, shape.context_tokens + shape.query_tokens
    query = operands.hot(shape.batch, shape.kv_heads, rows, shape.head_dim, dtype=shape.dtype)
    seen = visible(torch, operands.device, shape).repeat(group, 1)
    # Memory-efficient kernels take a mask only in rows of a multiple of 16 elements.
    wide = torch.zeros(rows, -(-keys // 16) * 16, device=operands.device, dtype=query.dtype)
    mask = wide[:, :keys].masked_fill_(~seen, float("-inf"))
    mask = mask.expand(shape.batch, shape.kv_heads, rows, keys)
    attend = torch.nn.functional.scaled_dot_product_attention

    def attend_once() -> Any:
        return attend(query, cached().transpose(1, 2), cached().transpose(1, 2), attn_mask=mask)

    return (attend_once,)


def _dynamic_cache(torch: Any, operands: Operands, shape: Shape) -> Call:
    """As eager transformers 5: grow the cache by copying it, spread KV heads where masked.

    The copies of other layers stay, so that each goes to memory that is in no cache.
    """
    attend = torch.nn.functional.scaled_dot_product_attention
    group = shape.heads // shape.kv_heads
    query = _query(operands, shape)
    kv, width = shape.kv_heads, shape.head_dim
    sizes = (shape.batch, kv, shape.context_tokens, width)
    cached: Callable[[], Any] = _nothing(torch, query)
    if shape.context_tokens:
        cached = operands.cold(*sizes, dtype=shape.kv_dtype, in_use=2)
    new = operands.hot(shape.batch, shape.query_tokens, kv, width, dtype=shape.kv_dtype)
    new = new.transpose(1, 2)
    masked = shape.context_tokens > 0 and shape.query_tokens > 1
    how: dict[str, Any] = {"enable_gqa": group > 1, "is_causal": not shape.context_tokens}
    if masked:
        seen = visible(torch, operands.device, shape)
        how = {"attn_mask": seen.expand(shape.batch, 1, *seen.shape)}

    def spread(x: Any) -> Any:
        if not masked or group == 1:
            return x
        wide = x[:, :, None].expand(-1, -1, group, -1, -1)
        return wide.reshape(shape.batch, shape.heads, -1, width)

    kept: deque[Any] = deque(maxlen=2 * LAYERS)

    def grown() -> Any:
        kept.append(torch.cat((cached(), new), dim=-2))
        return kept[-1]

    for _ in range(2 * LAYERS):
        grown()

    def attend_once() -> Any:
        keys, values = grown(), grown()
        out = attend(query, spread(keys), spread(values), **how)
        return out.transpose(1, 2).reshape(shape.batch, shape.query_tokens, -1).contiguous()

    return (attend_once,)


def _nothing(torch: Any, like: Any) -> Callable[[], Any]:
    empty = torch.tensor([], dtype=like.dtype, device=like.device)
    return lambda: empty
