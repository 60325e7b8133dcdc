"""Random operands in memory, more of them than the device caches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn"}
"""Names of the ``dtype`` column, and of torch."""

PATTERN = 4_194_304
"""Elements drawn at random; larger pools repeat them."""


class Operands:
    """Weights and KV that come from memory, as in a forward pass over the whole model.

    Parameters
    ----------
    torch : module
    device : str
        ``cuda`` or ``cpu``.
    cache_bytes : int
        Last-level cache [byte]; twice as much goes by before an operand is used again.
    """

    def __init__(self, torch: Any, device: str, cache_bytes: int) -> None:
        self._torch, self.device = torch, device
        self._enough = 2 * cache_bytes
        self._pools: dict[str, Any] = {}

    def dtype(self, name: str) -> Any:
        """Type of torch for a name of the ``dtype`` column."""
        return getattr(self._torch, DTYPES[name])

    def cold(
        self, *shape: int, dtype: str, in_use: int = 1, parts: tuple[int, ...] = ()
    ) -> Callable[[], Any]:
        """What gives the next tensor of this shape, not touched for longer than caches remember.

        Parameters
        ----------
        *shape : int
        dtype : str
            Name of the ``dtype`` column.
        in_use : int
            Tensors one call takes.
        parts : tuple of int
            Rows to split each into; none leaves it whole.
        """
        size = math.prod(shape)
        pool = self._pool(dtype, size * in_use)
        views = [pool[i : i + size].view(shape) for i in range(0, len(pool) - size + 1, size)]
        views = views[: len(views) // in_use * in_use]
        return itertools.cycle([v.split(parts) for v in views] if parts else views).__next__

    def hot(self, *shape: int, dtype: str) -> Any:
        """One tensor of this shape: activations, which the kernel before has just written."""
        return self._random(math.prod(shape)).view(shape).to(self.dtype(dtype))

    def _random(self, count: int) -> Any:
        torch = self._torch
        pattern = torch.randn(min(count, PATTERN), device=self.device).to(torch.bfloat16)
        if count <= PATTERN:
            return pattern
        return pattern.repeat(-(-count // PATTERN))[:count]

    def _pool(self, dtype: str, least: int) -> Any:
        """Elements of at least twice the cache, and at least ``least``."""
        kind = self.dtype(dtype)
        count = max(least, -(-self._enough // kind.itemsize))
        pool = self._pools.get(dtype)
        if pool is None or len(pool) < count:
            self._pools.pop(dtype, None)
            del pool
            pool = self._random(count).to(kind)
            self._pools[dtype] = pool
        return pool

    def release(self) -> None:
        """Give the memory back."""
        self._pools.clear()
