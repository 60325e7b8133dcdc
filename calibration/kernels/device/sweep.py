"""Which shapes are timed for one transformer: those its forward passes have, what matters first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from calibration.kernels.device.grid import Grid
from models.transformer import Transformer

Stack = Literal["fused", "transformers"]
"""How layers are computed.

``fused``: as serving engines do, q, k and v in one GEMM, gate and up in one, KV written in place.
``transformers``: as Hugging Face transformers does in eager mode, one GEMM a projection, KV cache
grown by concatenation.
"""


@dataclass(frozen=True)
class Shape:
    """One kernel to time: the columns of ``sim.kernel_rows.KERNELS`` that describe it.

    ``stack`` and ``parts``, widths of separate GEMMs timed together as one of ``n`` columns, say
    how it is computed; ``bytes`` is given where the schema does not tell it. Of the small kernels
    of a layer, ``n`` is the hidden and ``k`` the intermediate size.
    """

    operation: str
    kernel: str
    dtype: str = ""
    kv_dtype: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 0
    query_tokens: int = 0
    context_tokens: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    mask: str = ""
    gpus: int = 0
    message_bytes: int = 0
    bytes: float | None = None
    parts: tuple[int, ...] = ()
    stack: Stack = "fused"

    def columns(self) -> dict[str, Any]:
        """Columns of its row; those it leaves to be worked out are missing."""
        values = asdict(self)
        apart = ("parts", "stack")
        return {key: v for key, v in values.items() if key not in apart and v is not None}

    def __str__(self) -> str:
        shown = ", ".join(f"{key} {v}" for key, v in self.columns().items() if key in _SHOWN and v)
        return " ".join(part for part in (self.operation, self.kernel, self.dtype, shown) if part)


_SHOWN = ("m", "n", "k", "batch", "query_tokens", "context_tokens", "gpus", "message_bytes", "mask")


def sweep(
    net: Transformer,
    tp: int,
    counts: Grid,
    *,
    stack: Stack = "fused",
    dtypes: Sequence[str] = ("bf16",),
    graphs: bool = False,
    gpus: int = 1,
) -> list[Shape]:
    """Shapes of one GPU's share of a transformer, in the order of what matters.

    Parameters
    ----------
    net : Transformer
        Its dense part; experts are not timed.
    tp : int
        GPUs a layer is split over.
    counts : Grid
        Tokens, sequences and contexts.
    stack : str
        How layers are computed.
    dtypes : sequence of str
        Types of the GEMMs of a layer; the LM head and the rest compute in the first.
    graphs : bool
        Whether the device has CUDA graphs.
    gpus : int
        GPUs at hand; groups of two and more sum messages over their link.

    Raises
    ------
    ModelError
        If ``tp`` does not split the transformer.
    """
    net.check_tp(tp)
    first = dtypes[0]
    tiers: list[Iterator[Shape]] = [
        _streams(counts),
        _launches(graphs),
        _gemms(net, tp, counts, stack, first),
        _small(net, tp, counts, stack, first),
        _cached(net, tp, counts, stack, first, "causal"),
        _prompts(net, tp, counts, stack, first),
        *(_gemms(net, tp, counts, stack, other) for other in dtypes[1:]),
        _quantising(net, counts, dtypes),
        _cached(net, tp, _fewer(counts), stack, first, "tree"),
        _sampling(net, counts),
        _all_reduces(counts, gpus),
    ]
    return [shape for tier in tiers for shape in tier]


def _streams(counts: Grid) -> Iterator[Shape]:
    for size in counts.stream_bytes:
        yield Shape("stream", "copy", n=2 * size, bytes=2.0 * size)
        yield Shape("stream", "read", n=size, bytes=float(size))


def _launches(graphs: bool) -> Iterator[Shape]:
    yield Shape("launch", "eager")
    if graphs:
        yield Shape("launch", "graph")


def kv_heads(net: Transformer, tp: int) -> int:
    """KV heads one GPU holds; they are replicated past ``tp``."""
    return max(net.kv_heads, tp) // tp


def _gemms(net: Transformer, tp: int, counts: Grid, stack: Stack, dtype: str) -> Iterator[Shape]:
    query, cached = net.heads // tp * net.head_dim, kv_heads(net, tp) * net.head_dim
    inputs, hidden = net.hidden * net.qkv_inputs, net.hidden
    together: list[tuple[tuple[int, ...], int]] = [((query, cached, cached), inputs)]
    together.append(((hidden,), query))
    for width in _dense_widths(net):
        part = -(-width // tp)
        together += [((part, part), hidden), ((hidden,), part)]
    head = -(-net.vocab // tp)
    name = "linear" if stack == "fused" else "separate"
    for m in counts.m:
        for parts, k in together:
            split = parts if stack == "transformers" and len(parts) > 1 else ()
            yield Shape("gemm", name, dtype, m=m, n=sum(parts), k=k, parts=split)
        if m <= counts.head_rows and dtype != "fp8":
            yield Shape("gemm", name, dtype, m=m, n=head, k=hidden)


def _dense_widths(net: Transformer) -> list[int]:
    """Widths of the feed-forward blocks that are no routed experts."""
    widths = [net.intermediate] if net.layers > net.moe_layers else []
    return widths + ([net.shared_experts * net.expert_intermediate] if net.shared_experts else [])


def layer_bytes(net: Transformer, tp: int) -> float:
    """Bytes a token moves in the small kernels of a layer, as ``models.kernels`` counts them."""
    heads = (net.heads + 2 * net.kv_heads) * net.head_dim
    return 2 * 4 * net.hidden * 2 + heads / tp * 8 + 3 * net.intermediate / tp * 2


def _small(net: Transformer, tp: int, counts: Grid, stack: Stack, dtype: str) -> Iterator[Shape]:
    heads, width = net.heads // tp, -(-net.intermediate // tp)
    for m in counts.m:
        yield Shape(
            "elementwise",
            "layer",
            dtype,
            m=m,
            n=net.hidden,
            k=width,
            heads=heads,
            kv_heads=kv_heads(net, tp),
            head_dim=net.head_dim,
            bytes=m * layer_bytes(net, tp),
            stack=stack,
        )


def _quantising(net: Transformer, counts: Grid, dtypes: Sequence[str]) -> Iterator[Shape]:
    if "fp8" in dtypes:
        for m in counts.m:
            yield Shape("elementwise", "static_fp8_quant", "fp8", m=m, n=net.hidden)


def _attention(
    net: Transformer, tp: int, stack: Stack, dtype: str, mask: str = "causal"
) -> dict[str, Any]:
    fused = "sdpa_packed" if mask == "tree" else "sdpa"
    return {
        "operation": "attention",
        "kernel": fused if stack == "fused" else "dynamic_cache",
        "mask": mask,
        "stack": stack,
        "dtype": dtype,
        "kv_dtype": dtype,
        "heads": net.heads // tp,
        "kv_heads": kv_heads(net, tp),
        "head_dim": net.head_dim,
    }


def _cached(
    net: Transformer, tp: int, counts: Grid, stack: Stack, dtype: str, mask: str
) -> Iterator[Shape]:
    """Decoding (one query token) and verification against a context."""
    common = _attention(net, tp, stack, dtype, mask)
    for query in counts.query:
        if mask == "tree" and query < 3:
            continue
        for batch in _powers(counts.batch, every=1 if query in (1, 4, 8, 64) else 2):
            for context in _powers(counts.context, every=1 if query == 1 else 2):
                if batch * (context + query) <= counts.largest:
                    yield Shape(
                        batch=batch,
                        query_tokens=query,
                        context_tokens=context,
                        **common,
                    )


def _powers(values: tuple[int, ...], every: int) -> tuple[int, ...]:
    """All of a short list; of a long one every so many, the last among them."""
    return values if len(values) <= 5 else values[::-1][::every][::-1]


def _fewer(counts: Grid) -> Grid:
    """Corners for masks whose time hardly depends on their pattern."""
    return counts._replace(
        query=tuple(q for q in counts.query if q in (8, 16, 32, 64)),
        batch=tuple(b for b in counts.batch if b in (1, 8, 64)),
        context=tuple(c for c in counts.context if c in (128, 512, 2048, 8192)),
    )


def _prompts(net: Transformer, tp: int, counts: Grid, stack: Stack, dtype: str) -> Iterator[Shape]:
    common = _attention(net, tp, stack, dtype)
    for batch in (1, 4):
        for tokens in counts.prompt:
            if batch * tokens <= counts.largest:
                yield Shape(batch=batch, query_tokens=tokens, **common)


def _sampling(net: Transformer, counts: Grid) -> Iterator[Shape]:
    for kernel in ("argmax", "top_p"):
        for m in counts.sampled:
            yield Shape("sampling", kernel, "bf16", m=m, n=net.vocab)


def _all_reduces(counts: Grid, gpus: int) -> Iterator[Shape]:
    for group in (2, 4, 8):
        if group <= gpus:
            for size in counts.message_bytes:
                yield Shape("all_reduce", "nccl", "bf16", gpus=group, message_bytes=size)
