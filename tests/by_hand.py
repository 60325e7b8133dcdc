"""The cost equations typed in by hand, in microseconds; only `stepping` touches the product.

The constants are those of by_hand_h100.yaml, near the catalogue's and never fitted anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from models import catalog
from models.kernels import Kernels
from models.step_time import Deployed, StepTime
from models.strategies import Strategy, fixed_types
from models.transformer import Transformer

BW = 3.35e12
BF16, FP8 = 989.5e12, 1979e12
GIB = 2**30
KIND = fixed_types()
PLAIN = KIND["autoregressive"]()
PROFILE = catalog.profile(str(Path(__file__).parent / "by_hand_h100.yaml"))


class Shape(NamedTuple):
    """Layers, hidden, feed-forward width, query heads, KV heads, head dimension, vocabulary."""

    layers: int
    h: int
    i: int
    nh: int
    kv: int
    hd: int
    v: int


LLAMA_8B = Shape(32, 4096, 14336, 32, 8, 128, 128256)
LLAMA_70B = Shape(80, 8192, 28672, 64, 8, 128, 128256)


def gemm(m: float, n: float, k: float) -> float:
    """bf16 GEMM of m rows."""
    compute = 2 * m * n * k / (0.7912 * BF16)
    memory = (2 * n * k + 2 * m * k + 2 * m * n) / (0.8601 * BW)
    return 1e6 * max(compute, memory) + 3.69


def gemm_fp8(m: float, n: float, k: float) -> float:
    """fp8 GEMM, its activations quantised by a kernel of their own."""
    compute = 2 * m * n * k / (0.4985 * FP8)
    memory = (n * k + m * k + 2 * m * n) / (0.8269 * BW)
    return 1e6 * max(compute, memory) + 6.87 + 2.5 + 1e6 * 3 * m * k / (0.8 * BW)


def all_reduce(size: float, tp: int) -> float:
    if tp == 1 or not size:
        return 0.0
    switch, small, large = {
        2: (2**24, (4.25, 0.547), (36.5, 0.696)),
        4: (2**19, (4.60, 0.344), (8.88, 0.710)),
        8: (2**18, (4.79, 0.160), (10.05, 0.875)),
    }[tp]
    c, e = small if size < switch else large
    return c + 1e6 * 2 * (tp - 1) / tp * size / (e * 450e9)


def elementwise(m: float, s: Shape, tp: int = 1, fixed: float = 10.0) -> float:
    """Small kernels of one layer: 10 us and their traffic."""
    moved = m * (2 * 4 * s.h * 2 + (s.nh + 2 * s.kv) * s.hd / tp * 2 * 2 * 2 + 3 * s.i / tp * 2)
    return fixed + 1e6 * moved / (0.8 * BW)


def layers(m: float, s: Shape, tp: int = 1, fp8: bool = False) -> float:
    """All layers without what depends on context."""
    g = gemm_fp8 if fp8 else gemm
    one = g(m, (s.nh + 2 * max(s.kv, tp)) * s.hd / tp, s.h) + g(m, s.h, s.nh * s.hd / tp)
    one += g(m, 2 * s.i / tp, s.h) + g(m, s.h, s.i / tp)
    return s.layers * (one + 12.47 + elementwise(m, s, tp) + 2 * all_reduce(2 * m * s.h, tp))


def head(rows: float, h: int, v: int, tp: int = 1) -> float:
    """LM head of `rows` rows."""
    logits = 1e6 * 16 * rows * v / (0.8 * BW)
    return gemm(rows, v / tp, h) + logits + 20 + all_reduce(2 * rows * v, tp)


def kv_read(ctx: float, s: Shape, tp: int = 1) -> float:
    """Reading `ctx` tokens of bf16 KV once in every layer."""
    return 1e6 * s.layers * ctx * 2 * max(1, s.kv / tp) * s.hd * 2 / (0.8535 * BW)


def attend(pairs: float, s: Shape, tp: int = 1) -> float:
    """Arithmetic of `pairs` (query, context) pairs in every layer."""
    return 1e6 * s.layers * 4 * s.nh / tp * s.hd * pairs / (0.547 * BF16)


def eagle_pass(m: float, rows: float, s: Shape, tp: int = 1) -> float:
    """EAGLE's layer, its projection 2h -> h and the full LM head; no context."""
    one = s._replace(layers=1)
    return layers(m, one, tp) + gemm(m, s.h, 2 * s.h) + head(rows, s.h, s.v, tp)


def eagle3_pass(m: float, rows: float, s: Shape, fc: bool) -> float:
    """EAGLE-3's layer with 2h at the attention's input, and its LM head of 32,000."""
    one = s._replace(layers=1)
    wide = gemm(m, (s.nh + 2 * s.kv) * s.hd, 2 * s.h) - gemm(m, (s.nh + 2 * s.kv) * s.hd, s.h)
    project = gemm(m, s.h, 3 * s.h) if fc else 0.0
    return layers(m, one) + wide + project + head(rows, s.h, 32000)


def stepping(
    strategy: Strategy = PLAIN,
    target: str | Transformer = "llama-3.1-8b",
    engine: str = "vllm_0.15",
    tp: int = 1,
    gpu: str = "h100_sxm",
    **changes: Any,
) -> StepTime:
    """The product's step time; greedy, 64 sequences and 2048 tokens a step unless changed."""
    found = changes.pop("entry", None) or catalog.engine(engine)
    kernels = Kernels(catalog.hardware(gpu), PROFILE)
    usual: dict[str, Any] = {
        "kernels": kernels,
        "target": catalog.transformer(target) if isinstance(target, str) else target,
        "engine": found,
        "weights": "bf16",
        "kv": "bf16",
        "tp": tp,
        "top_p": False,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
    }
    return StepTime(Deployed(**{**usual, **changes}), strategy)
