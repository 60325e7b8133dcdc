"""The kernels that are timed: from a shape to a call that computes it once with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibration.kernels.device.attention import attention
from calibration.kernels.device.operands import Operands
from calibration.kernels.device.sweep import Shape
from calibration.kernels.device.timing import Call

EPS = 1e-5
TOP_P = 0.9


def build(torch: Any, operands: Operands, shape: Shape) -> Call:
    """Call that computes a shape once, on operands of its own.

    Raises
    ------
    RuntimeError
        If there is no memory for them.
    ValueError
        If the kernel is not known.
    """
    makers: dict[str, Callable[[Any, Operands, Shape], Call]] = {
        "stream": _stream,
        "launch": _launch,
        "gemm": _gemm,
        "attention": attention,
        "elementwise": _elementwise,
        "sampling": _sampling,
    }
    if shape.operation not in makers:
        raise ValueError(f"no kernel of this process computes '{shape.operation}'")
    return makers[shape.operation](torch, operands, shape)


def _stream(torch: Any, operands: Operands, shape: Shape) -> Call:
    if shape.kernel == "copy":
        size = shape.n // 2
        source = operands.hot(size // 2, dtype="bf16")
        target = torch.empty_like(source)
        return lambda: target.copy_(source)
    source = operands.hot(shape.n // 4, dtype="fp32")
    return lambda: source.sum()


def _launch(torch: Any, operands: Operands, shape: Shape) -> Call:
    counter = torch.zeros(1, device=operands.device)
    return lambda: counter.add_(1.0)


def _gemm(torch: Any, operands: Operands, shape: Shape) -> Call:
    if shape.dtype == "fp8":
        return _scaled_gemm(torch, operands, shape)
    linear = torch.nn.functional.linear
    x = operands.hot(shape.m, shape.k, dtype=shape.dtype)
    if not shape.parts:
        weight = operands.cold(shape.n, shape.k, dtype=shape.dtype)
        return lambda: linear(x, weight())
    weights = [operands.cold(part, shape.k, dtype=shape.dtype) for part in shape.parts]

    def separate() -> None:
        for each in weights:
            linear(x, each())

    return separate


def _scaled_gemm(torch: Any, operands: Operands, shape: Shape) -> Call:
    x = operands.hot(shape.m, shape.k, dtype="fp8")
    weight = operands.cold(shape.n, shape.k, dtype="fp8")
    one = torch.ones((), device=operands.device)

    def scaled() -> Any:
        return torch._scaled_mm(
            x, weight().t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )

    return scaled


def _elementwise(torch: Any, operands: Operands, shape: Shape) -> Call:
    if shape.kernel == "static_fp8_quant":
        x = operands.hot(shape.m, shape.n, dtype="bf16")
        scale = torch.ones((), device=operands.device, dtype=torch.bfloat16)
        return lambda: (x * scale).to(operands.dtype("fp8"))
    return _layer(torch, operands, shape)


def _layer(torch: Any, operands: Operands, shape: Shape) -> Call:
    """Small kernels of one decoder layer: norms, rotary, append to the KV cache, SiLU, residuals.

    In eager mode the norm is a kernel an operation, and attention appends to the cache.
    """
    silu = torch.nn.functional.silu
    m, kind, width = shape.m, shape.dtype, shape.kv_heads * shape.head_dim
    x, out = operands.hot(m, shape.n, dtype=kind), operands.hot(m, shape.n, dtype=kind)
    weight = operands.hot(shape.n, dtype=kind)
    q = operands.hot(1, m, shape.heads, shape.head_dim, dtype=kind).transpose(1, 2)
    k = operands.hot(1, m, shape.kv_heads, shape.head_dim, dtype=kind).transpose(1, 2)
    v = operands.hot(m, width, dtype=kind)
    cos, sin = (operands.hot(1, m, shape.head_dim, dtype=kind) for _ in range(2))
    gate, up = (operands.hot(m, shape.k, dtype=kind) for _ in range(2))
    cache = operands.hot(2, m, width, dtype=kind)
    slots = torch.randperm(m, device=operands.device)
    fused = shape.kernel == "layer"

    def norm(x: Any) -> Any:
        if fused:
            return torch.nn.functional.rms_norm(x, (shape.n,), weight, EPS)
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return weight * wide.to(x.dtype)

    def layer() -> None:
        norm(x)
        columns, rows = cos.unsqueeze(1), sin.unsqueeze(1)
        _rotated(torch, q, columns, rows)
        new = _rotated(torch, k, columns, rows)
        if fused:
            cache[0].index_copy_(0, slots, new.transpose(1, 2).reshape(m, width))
            cache[1].index_copy_(0, slots, v)
        norm(x + out)
        silu(gate) * up
        x + out

    return layer


def _rotated(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Rotary position embedding, the halves of a head being the two coordinates."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _sampling(torch: Any, operands: Operands, shape: Shape) -> Call:
    logits = operands.hot(shape.m, shape.n, dtype=shape.dtype)
    if shape.kernel == "argmax":
        return lambda: logits.to(torch.float32).argmax(-1)

    def top_p() -> Any:
        wide = logits.to(torch.float32)
        ordered, order = wide.sort(dim=-1, descending=True)
        p = ordered.softmax(dim=-1)
        p = p.masked_fill(p.cumsum(dim=-1) - p > TOP_P, 0.0)
        chosen = (p / torch.empty_like(p).exponential_()).argmax(-1, keepdim=True)
        return order.gather(-1, chosen)

    return top_p
