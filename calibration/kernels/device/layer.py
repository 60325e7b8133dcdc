"""The small kernels of one decoder layer: norms, rotary embedding, SiLU, residuals."""

from __future__ import annotations

from typing import Any

from calibration.kernels.device.operands import Operands
from calibration.kernels.device.sweep import Shape
from calibration.kernels.device.timing import Call

EPS = 1e-5


def layer(torch: Any, operands: Operands, shape: Shape) -> Call:
    """Pieces of a layer between its GEMMs and attention.

    Fused: as few kernels as torch has without compiling, and an append to the KV cache in place.
    As transformers: a kernel an operation and a module a projection; attention grows the cache.
    """
    if shape.stack == "transformers":
        return _eager(torch, operands, shape)
    functional = torch.nn.functional
    m, kind, width = shape.m, shape.dtype, shape.kv_heads * shape.head_dim
    x, out = operands.hot(m, shape.n, dtype=kind), operands.hot(m, shape.n, dtype=kind)
    weight = operands.hot(shape.n, dtype=kind)
    q, k = (_heads(operands, shape, heads) for heads in (shape.heads, shape.kv_heads))
    v = operands.hot(m, width, dtype=kind)
    cos, sin = (operands.hot(1, 1, m, shape.head_dim, dtype=kind) for _ in range(2))
    gate, up = (operands.hot(m, shape.k, dtype=kind) for _ in range(2))
    keys, values = (operands.hot(m, width, dtype=kind) for _ in range(2))
    slots = torch.randperm(m, device=operands.device)

    def added_norm() -> Any:
        return functional.rms_norm(x + out, (shape.n,), weight, EPS)

    def rotate_and_append() -> None:
        _rotated(torch, q, cos, sin)
        new = _rotated(torch, k, cos, sin)
        keys.index_copy_(0, slots, new.transpose(1, 2).reshape(m, width))
        values.index_copy_(0, slots, v)

    return (added_norm, rotate_and_append, added_norm, lambda: functional.silu(gate) * up)


def _heads(operands: Operands, shape: Shape, heads: int) -> Any:
    """What a projection leaves, seen as [1, heads, m, width]."""
    return operands.hot(1, shape.m, heads, shape.head_dim, dtype=shape.dtype).transpose(1, 2)


def _rotated(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Rotary position embedding, the halves of a head being the two coordinates."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _eager(torch: Any, operands: Operands, shape: Shape) -> Call:
    """Pieces of an eager layer; projections only pass on a tensor of their size, unmultiplied."""
    m, kind = shape.m, shape.dtype
    norm, projection = _modules(torch)
    x = operands.hot(1, m, shape.n, dtype=kind)
    norms = [norm(operands.hot(shape.n, dtype=kind)) for _ in range(2)]
    cos, sin = (operands.hot(1, m, shape.head_dim, dtype=kind) for _ in range(2))
    widths = [heads * shape.head_dim for heads in (shape.heads, shape.kv_heads, shape.kv_heads)]
    q, k, v = (projection(operands.hot(1, m, width, dtype=kind)) for width in widths)
    o, down = (projection(operands.hot(1, m, shape.n, dtype=kind)) for _ in range(2))
    gate, up = (projection(operands.hot(1, m, shape.k, dtype=kind)) for _ in range(2))
    silu = torch.nn.SiLU()

    def project_and_rotate() -> None:
        split = (1, m, -1, shape.head_dim)
        query, key, _ = (each(x).view(split).transpose(1, 2) for each in (q, k, v))
        columns, rows = cos.unsqueeze(1), sin.unsqueeze(1)
        _rotated(torch, query, columns, rows)
        _rotated(torch, key, columns, rows)

    return (
        lambda: norms[0](x),
        project_and_rotate,
        lambda: x + o(x),
        lambda: norms[1](x),
        lambda: silu(gate(x)) * up(x),
        lambda: x + down(x),
    )


def _modules(torch: Any) -> tuple[Any, Any]:
    """Classes of the RMS norm of eager code, and of a projection that costs only its call."""

    class Norm(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, weight: Any) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(weight, requires_grad=False)

        def forward(self, x: Any) -> Any:
            wide = x.to(torch.float32)
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
            return self.weight * wide.to(x.dtype)

    class Projection(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, out: Any) -> None:
            super().__init__()
            self.out = torch.nn.Parameter(out, requires_grad=False)

        def forward(self, x: Any) -> Any:
            return self.out

    return Norm, Projection
