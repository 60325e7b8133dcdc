"""The kernels that are timed: from a shape to a call that computes it once with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibration.kernels.device.attention import attention
from calibration.kernels.device.layer import layer
from calibration.kernels.device.operands import Operands
from calibration.kernels.device.sweep import Shape
from calibration.kernels.device.timing import Call

TOP_P = 0.9
MOST_BYTES = 16_000_000
"""Several times what the cache of one core holds."""


def weights_go_by(torch: Any, operands: Operands, layer_bytes: float) -> Callable[[], object]:
    """Products of one row with weights that are new each time, as many as a layer has.

    That is what runs between two uses of a kernel; more than ``MOST_BYTES`` change nothing.
    """
    row, weight = operands.hot(1, 2048, dtype="bf16"), operands.cold(1024, 2048, dtype="bf16")
    count = max(1, round(min(layer_bytes, MOST_BYTES) / (1024 * 2048 * 2)))
    linear = torch.nn.functional.linear

    def go_by() -> None:
        for _ in range(count):
            linear(row, weight())

    return go_by


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
        return (lambda: target.copy_(source),)
    source = operands.hot(shape.n // 4, dtype="fp32")
    return (lambda: source.sum(),)


def _launch(torch: Any, operands: Operands, shape: Shape) -> Call:
    counter = torch.zeros(1, device=operands.device)
    return (lambda: counter.add_(1.0),)


def _gemm(torch: Any, operands: Operands, shape: Shape) -> Call:
    if shape.dtype == "fp8":
        return _scaled_gemm(torch, operands, shape)
    linear = torch.nn.functional.linear
    x = operands.hot(shape.m, shape.k, dtype=shape.dtype)
    weight = operands.cold(shape.n, shape.k, dtype=shape.dtype, parts=shape.parts)
    if not shape.parts:
        return (lambda: linear(x, weight()),)

    def separate() -> None:
        for part in weight():
            linear(x, part)

    return (separate,)


def _scaled_gemm(torch: Any, operands: Operands, shape: Shape) -> Call:
    x = operands.hot(shape.m, shape.k, dtype="fp8")
    weight = operands.cold(shape.n, shape.k, dtype="fp8")
    one = torch.ones((), device=operands.device)

    def scaled() -> Any:
        return torch._scaled_mm(x, weight().t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return (scaled,)


def _elementwise(torch: Any, operands: Operands, shape: Shape) -> Call:
    if shape.kernel == "static_fp8_quant":
        x = operands.hot(shape.m, shape.n, dtype="bf16")
        scale = torch.ones((), device=operands.device, dtype=torch.bfloat16)
        return (lambda: (x * scale).to(operands.dtype("fp8")),)
    return layer(torch, operands, shape)


def _sampling(torch: Any, operands: Operands, shape: Shape) -> Call:
    logits = operands.hot(shape.m, shape.n, dtype=shape.dtype)
    if shape.kernel == "argmax":
        return (lambda: logits.to(torch.float32).argmax(-1),)

    def top_p() -> Any:
        wide = logits.to(torch.float32)
        ordered, order = wide.sort(dim=-1, descending=True)
        p = ordered.softmax(dim=-1)
        p = p.masked_fill(p.cumsum(dim=-1) - p > TOP_P, 0.0)
        chosen = (p / torch.empty_like(p).exponential_()).argmax(-1, keepdim=True)
        return order.gather(-1, chosen)

    return (top_p,)
