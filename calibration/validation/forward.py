"""One forward pass over a KV cache: how long it is predicted to take, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from models.forward_pass import Attention, head_parts, layer_parts, total
from models.kernels import Kernels
from models.transformer import Transformer


class Point(NamedTuple):
    """``batch`` sequences of ``context`` cached tokens, each given ``new_tokens`` more."""

    batch: int
    new_tokens: int
    context: int


class ForwardTime(NamedTuple):
    """Median time of a forward pass [s], and interquartile range / median of its repeats."""

    point: Point
    forward_s: float
    spread: float


POINTS = tuple(
    Point(batch, new_tokens, context)
    for context in (128, 512)
    for batch in (1, 2, 4, 8)
    for new_tokens in (1, 2, 4, 8, 16, 32, 64)
)
"""Decoding (one new token) and verification, from one sequence to 512 tokens a pass."""


def predict_forward(kernels: Kernels, net: Transformer, point: Point) -> float:
    """Time of a forward pass in bf16 on one device, logits of all new tokens included [s].

    Parameters
    ----------
    kernels : Kernels
        Of the device.
    net : Transformer
    point : Point
        New token i of a sequence attends to its context and to the i new tokens up to itself.
    """
    batch, new, context = point
    m = np.array([batch * new])
    body = total(layer_parts(kernels, net, "bf16", "bf16", 1, m))
    head = total(head_parts(kernels, net, 1, m))
    attention = Attention.of(kernels, net, "bf16", 1, new)
    pairs = new * context + new * (new + 1) / 2
    return float(body[0] + head[0]) + attention.seconds(batch * (context + new), batch * pairs)


def forward_times(
    model: Any,
    points: Sequence[Point] = POINTS,
    repeats: int = 7,
    now: Callable[[], float] = time.thread_time,
) -> list[ForwardTime]:
    """Time forward passes of a causal language model of transformers.

    Parameters
    ----------
    model : torch.nn.Module
    points : sequence of Point
        Repeats go round over all of them, after one round for warming up, so that a slow minute
        touches every point alike.
    repeats : int
        Rounds that count.
    now : callable
        Seconds. By default the clock of this thread, which stands still while others have the core:
        for one thread on a CPU.

    Notes
    -----
    The cache holds random keys and values. It is cut back to its context after every pass, outside
    of what is timed.
    """
    import torch

    sizes = sorted({(point.batch, point.context) for point in points})
    caches = {size: _filled_cache(model, *size) for size in sizes}
    vocab = model.config.vocab_size
    inputs = {point: torch.randint(vocab, (point.batch, point.new_tokens)) for point in points}
    seconds: dict[Point, list[float]] = {point: [] for point in points}
    with torch.inference_mode():
        for _ in range(1 + repeats):
            for point in points:
                cache = caches[point.batch, point.context]
                start = now()
                model(inputs[point], cache=cache)
                seconds[point].append(now() - start)
                cache.crop(-point.new_tokens)
    return [_summary(point, times[1:]) for point, times in seconds.items()]


def _filled_cache(model: Any, batch: int, context: int) -> Any:
    """KV cache of ``batch`` sequences of ``context`` tokens."""
    import torch
    from transformers import DynamicCache

    config = model.config
    cache = DynamicCache(config=config)
    shape = (batch, config.num_key_value_heads, context, config.head_dim)
    for layer in range(config.num_hidden_layers):
        keys, values = (torch.randn(shape).to(model.dtype) for _ in range(2))
        cache.update(keys, values, layer)
    return cache


def _summary(point: Point, times: Sequence[float]) -> ForwardTime:
    low, median, high = np.percentile(times, [25, 50, 75])
    return ForwardTime(point, float(median), float((high - low) / median))
