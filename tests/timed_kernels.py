"""Timed kernels made up from known constants, with noise and some rows far off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from calibration.kernels import rows
from models import catalog
from models.gemm import gemm_s
from models.kernel_constants import GemmConstants
from models.schema import Constant

H100 = catalog.hardware("h100_sxm")
US = 1e-6

M = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 512, 768, 1024, 2048, 4096)
UNALIGNED = (257, 513, 769, 1025, 2049, 3073)
WIDTHS = (1024, 2048, 4096, 8192, 16384)
GEMM = {"compute": 0.7, "memory": 0.85, "launch_us": 4.0}


def number(value: float) -> Constant:
    return Constant(value=value, source="made up")


def noisy(seconds: Any, seed: int = 0, noise: float = 0.05, outliers: float = 0.02) -> Any:
    """Times with errors of 5 %, and 2 % of them ten times too long or too short."""
    rng = np.random.default_rng(seed)
    times = np.asarray(seconds, dtype=float) * np.exp(noise * rng.standard_normal(len(seconds)))
    far = rng.random(len(times)) < outliers
    return np.where(far, times * rng.choice([0.1, 10.0], len(times)), times)


def grid(**columns: Any) -> dict[str, Any]:
    """Columns of every combination of some values."""
    meshes = np.meshgrid(*columns.values(), indexing="ij")
    return {name: mesh.ravel() for name, mesh in zip(columns, meshes, strict=True)}


def timed(operation: str, seconds: Any, **columns: Any) -> pd.DataFrame:
    kept = {"kernel": "made_up", "source": "a made-up table of kernels"} | columns
    return rows.frame(operation, time_s=seconds, **kept)


def gemms(
    dtype: str = "bf16", seed: int = 1, noise: float = 0.05, outliers: float = 0.02, **true: Any
) -> pd.DataFrame:
    """GEMMs of the shapes of large layers by the closed form of the product."""
    forms = ("tile", "few_tiles")
    constants = {name: number(value) for name, value in (GEMM | true).items() if name not in forms}
    tile = {name: true[name] for name in forms if name in true}
    shape = grid(m=(*M, *UNALIGNED) if tile else M, n=WIDTHS, k=WIDTHS)
    seconds = gemm_s(GemmConstants(**constants, **tile), H100, *shape.values(), dtype)
    return timed("gemm", noisy(seconds, seed, noise, outliers), dtype=dtype, **shape)


def roof(table: pd.DataFrame, dtype: str, compute: float, memory: float, fixed_us: float) -> Any:
    """The larger of both roofs and a fixed time [s]."""
    computing = table["flops"] / (compute * H100.peak_flops[dtype])
    moving = table["bytes"] / (memory * H100.memory_bandwidth_bytes_per_s)
    return np.maximum(computing, moving) + fixed_us * US


def decodes(kv: str = "bf16", memory: float = 0.85, launch_us: float = 12.0) -> pd.DataFrame:
    table = attention(kv, query_tokens=(1,), context_tokens=(127, 511, 2047, 8191, 32767))
    moving = table["bytes"] / (memory * H100.memory_bandwidth_bytes_per_s)
    return table.assign(time_s=noisy(moving + launch_us * US))


def prompts(compute: float = 0.65, memory: float = 0.4, launch_us: float = 12.0) -> pd.DataFrame:
    table = attention("bf16", query_tokens=(128, 512, 2048, 8192), context_tokens=(0,))
    computing = table["flops"] / (compute * H100.peak_flops["bf16"])
    moving = table["bytes"] / (memory * H100.memory_bandwidth_bytes_per_s)
    return table.assign(time_s=noisy(computing + moving + launch_us * US, 1))


def verifications(compute: float = 0.05, launch_us: float = 12.0) -> pd.DataFrame:
    table = attention("bf16", query_tokens=(2, 8, 16, 64), context_tokens=(512, 2048, 8192))
    return table.assign(time_s=noisy(roof(table, "bf16", compute, 0.85, launch_us), 2))


def attention(kv: str, **lengths: Any) -> pd.DataFrame:
    shape = grid(batch=(1, 4, 16, 64, 256), kv_heads=(1, 2, 4, 8), shared_by=(4, 8), **lengths)
    heads = shape.pop("shared_by") * shape["kv_heads"]
    return timed(
        "attention", 1.0, dtype="bf16", kv_dtype=kv, heads=heads, head_dim=128, **shape
    ).astype({"time_s": float})


def all_reduces(gpus: tuple[int, ...] = (2, 4, 8), from_bytes: int = 2**20) -> pd.DataFrame:
    """4 us and 30 % of the link below ``from_bytes``, 15 us and 80 % from there on."""
    shape = grid(gpus=gpus, message_bytes=2 ** np.arange(8, 31))
    table = timed("all_reduce", np.ones(len(shape["gpus"])), dtype="bf16", **shape)
    link = H100.interconnect
    assert link is not None
    moving = table["bytes"] / link.bandwidth_bytes_per_s
    small = table["message_bytes"] < from_bytes
    seconds = np.where(small, 4 * US + moving / 0.3, 15 * US + moving / 0.8)
    return table.assign(time_s=noisy(seconds, 3, noise=0.02, outliers=0.0))


def experts(compute: float = 0.5, memory: float = 0.86, fixed_us: float = 30.0) -> pd.DataFrame:
    shape = grid(m=M, n=(1792, 3584, 7168, 14336), k=(4096, 6144))
    kept = {"experts": 8, "experts_per_token": 2, "dtype": "bf16", "kernel": "triton balanced"}
    table = timed("moe", np.ones(len(shape["m"])), **kept, **shape)
    return table.assign(time_s=noisy(roof(table, "bf16", compute, memory, fixed_us), 4))


def small_kernels(kernel: str = "static_fp8_quant", floor_us: float = 2.0) -> pd.DataFrame:
    shape = grid(m=(*M, 8192, 16384, 32768), n=WIDTHS)
    bytes_ = 3.0 * shape["m"] * shape["n"]
    kept = {"kernel": kernel, "dtype": "fp8", "bytes": bytes_, "flops": 0.0 * bytes_}
    seconds = bytes_ / (0.8 * H100.memory_bandwidth_bytes_per_s) + floor_us * US
    return timed("elementwise", noisy(seconds, 5), **kept, **shape)


def everything() -> pd.DataFrame:
    """One table of all operations."""
    parts = [gemms(), gemms("fp8", seed=6, compute=0.5), decodes(), decodes("fp8", 0.7, 15.0)]
    parts += [prompts(), all_reduces((4,)), experts(), small_kernels()]
    return rows.join(parts)
