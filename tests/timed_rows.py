"""Made-up timed kernels that a profile explains, for the tests of calibration."""

from __future__ import annotations

import numpy as np
import pandas as pd

from calibration.kernels import predict, rows
from models import catalog

H100 = catalog.hardware("h100_sxm")
PROFILE = catalog.profile("h100_sxm")
WIDTHS = (1024, 2048, 4096, 8192)


def gemms(
    m=(1, 16, 256, 4096), shapes=((4096, 4096), (8192, 4096), (4096, 16384)), dtype="bf16"
) -> pd.DataFrame:
    grid = [(rows_m, n, k) for n, k in shapes for rows_m in m]
    columns = dict(zip("mnk", np.array(grid).T, strict=True))
    return rows.frame("gemm", kernel="linear", dtype=dtype, time_s=1.0, **columns)


def attention(query, context, batch=(1, 8, 64), **given) -> pd.DataFrame:
    grid = np.array([(b, q, c) for b in batch for q in query for c in context])
    usual = {"kv_dtype": "bf16", "heads": 32, "kv_heads": 8, "head_dim": 128, "time_s": 1.0}
    return rows.frame(
        "attention",
        kernel="fa3",
        dtype="bf16",
        batch=grid[:, 0],
        query_tokens=grid[:, 1],
        context_tokens=grid[:, 2],
        **usual | given,
    )


def all_reduces() -> pd.DataFrame:
    size = np.tile([2**power for power in range(10, 28)], 2)
    gpus = np.repeat([2, 4], 18)
    return rows.frame(
        "all_reduce", kernel="vllm_graph", dtype="bf16", gpus=gpus, message_bytes=size, time_s=1.0
    )


def timed(factor: float = 1.0) -> pd.DataFrame:
    """Rows of every kind, each as slow as the profile says times a factor."""
    parts = [
        gemms(),
        gemms(dtype="fp8"),
        attention([1], [512, 4096, 32768]),
        attention([2, 8, 32], [1024, 8192]),
        attention([512, 4096], [0]),
        all_reduces(),
    ]
    joined = rows.join(parts)
    return joined.assign(time_s=factor * predict.seconds(joined, PROFILE, H100))


def enough_to_fit(seed: int = 0) -> pd.DataFrame:
    """Rows that scatter by 5 % around what the profile says, of shapes enough to hold some out."""
    shapes = [(n, k) for n in WIDTHS for k in WIDTHS if n * k > 2e6]
    parts = [
        gemms([1, 8, 64, 128, 256, 512, 1024, 4096], shapes),
        attention([1], [512, 2048, 8192, 32768], batch=(1, 4, 16, 64)),
        attention([1], [512, 2048, 8192, 32768], batch=(4, 16, 64), heads=8, kv_heads=2),
        attention([256, 1024, 4096], [0], batch=(1, 2, 8)),
        attention([256, 1024, 4096], [0], batch=(1, 2, 8), heads=8, kv_heads=2),
        all_reduces(),
    ]
    joined = rows.join(parts)
    scatter = np.exp(0.05 * np.random.default_rng(seed).standard_normal(len(joined)))
    return joined.assign(time_s=scatter * predict.seconds(joined, PROFILE, H100))
