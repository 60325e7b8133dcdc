"""NVIDIA's measured kernel tables, read from the installed package ``aiconfigurator-core``.

The package keeps Parquet files under ``systems/data/<system>/<family>/<engine>/<version>/``. They
are read where they are; nothing of them is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from packaging.version import InvalidVersion, Version

from calibration.kernels import rows, work
from calibration.kernels.input_columns import counts, nearest, numbers, read_parquet, require
from models.schema import ModelError

PACKAGE = "aiconfigurator-core"
MS = 1e-3

DTYPES = {
    "bfloat16": "bf16",
    "half": "bf16",
    "int8_wo": "int8",
    "int4_wo": "int4",
    "sq": "w8a8",
    "w4a8_mxfp4_mxfp8_trtllm": "w4a8_mxfp4_mxfp8",
    "w4a16_mxfp4_cutlass": "w4a16_mxfp4",
}
"""Their names of operand types in ours, all 16-bit floats as bf16; the others are the same."""


class Table(NamedTuple):
    """One kind of Parquet file: its folder and name, what it holds, and who turns it into rows."""

    family: str
    file: str
    operation: str
    columns: tuple[str, ...]
    read: Callable[[pd.DataFrame, Path], pd.DataFrame]


def systems(root: Path | None = None) -> list[str]:
    """Names of the systems that have tables, in alphabetical order.

    Parameters
    ----------
    root : Path, optional
        Folder to read instead of the installed package's.

    Raises
    ------
    RuntimeError
        If the package is not installed.
    """
    data = _data(root)
    return sorted({path.parts[len(data.parts)] for path in data.rglob("*.parquet")})


def versions(system: str, root: Path | None = None) -> dict[str, list[str]]:
    """Operations a system has tables of, by ``engine/version``, older versions first.

    Raises
    ------
    ModelError
        If there is no such system; it lists those that are there.
    """
    data = _data(root)
    known = systems(root)
    if system not in known:
        hint = nearest(system, known)
        raise ModelError(f"no kernel tables of '{system}'; there are {', '.join(known)}{hint}")
    found: dict[tuple[str, str], list[str]] = {}
    for table in TABLES:
        for path in data.glob(f"{system}/{table.family}/*/*/{table.file}"):
            engine, release = path.parts[-3:-1]
            if table.file != NCCL or engine == "nccl":
                operations = found.setdefault((engine, release), [])
                operations += [table.operation] * (table.operation not in operations)
    order = sorted(found, key=lambda key: (key[0], _newness(key[1])))
    return {f"{engine}/{release}": found[engine, release] for engine, release in order}


def read(system: str, engine: str, release: str, root: Path | None = None) -> pd.DataFrame:
    """Every timed kernel of one engine version on one system, one row each.

    Parameters
    ----------
    system : str
        Such as ``h100_sxm``; see ``systems``.
    engine, release : str
        Such as ``vllm`` and ``0.24.0``; see ``versions``. The version must have GEMM tables.
    root : Path, optional
        Folder to read instead of the installed package's.

    Returns
    -------
    DataFrame
        Columns of ``sim.kernel_rows.KERNELS``. An operation this version lacks comes from the
        newest version of the engine before it, as its ``version`` says; NCCL's collectives come
        from its newest. Attention with a sliding window and experts spread over several GPUs are
        left out.

    Raises
    ------
    ModelError
        If there is no such system or version; it lists those that are there.
    InputError
        If a file cannot be read, lacks a column, or holds text or a negative number for a count
        or time.
    RuntimeError
        If the package is not installed.
    """
    data = _data(root)
    _check_version(system, engine, release, versions(system, root))
    parts = []
    for table in TABLES:
        owner = "nccl" if table.file == NCCL else engine
        path = _newest(data / system / table.family / owner, table.file, owner, engine, release)
        if path is None:
            continue
        raw = read_parquet(path)
        require(raw, (*table.columns, "latency"), path)
        part = table.read(raw, path)
        part["device"], part["engine"], part["version"] = system, owner, path.parent.name
        part["source"] = f"{_package(root)} {path.relative_to(data)}".strip()
        parts.append(part)
    return rows.join(parts)


def _data(root: Path | None) -> Path:
    """Folder of the tables; the package is looked up, not imported."""
    if root is not None:
        return root
    spec = find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "NVIDIA's kernel tables need the extra 'tables': pip install 'speccast[tables]'"
        )
    return Path(spec.origin).parent / "systems" / "data"


def _package(root: Path | None) -> str:
    try:
        return "" if root is not None else f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        return PACKAGE


def _newness(release: str) -> tuple[Version, str]:
    try:
        return Version(release), release
    except InvalidVersion:
        return Version("0"), release


def _check_version(system: str, engine: str, release: str, there: dict[str, list[str]]) -> None:
    asked = f"{engine}/{release}"
    usable = [name for name, operations in there.items() if "gemm" in operations]
    if asked in usable:
        return
    only = f" has no GEMM tables, only {', '.join(there[asked])}" if asked in there else ""
    what = f"{asked} of {system}{only}" if only else f"no kernel tables of {asked} for {system}"
    raise ModelError(f"{what}; there are {', '.join(usable)}{nearest(asked, usable)}")


def _newest(folder: Path, file: str, owner: str, engine: str, release: str) -> Path | None:
    """Path of the newest version of a file, not newer than the one asked for."""
    last = _newness(release)
    paths = folder.glob(f"*/{file}")
    usable = [p for p in paths if owner != engine or _newness(p.parent.name) <= last]
    return max(usable, key=lambda path: _newness(path.parent.name), default=None)


def _dtypes(names: pd.Series[str]) -> pd.Series[str]:
    return names.astype(str).replace(DTYPES)


def _gemm(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    return rows.frame(
        "gemm",
        kernel=raw["kernel_source"],
        dtype=_dtypes(raw["gemm_dtype"]),
        **{name: counts(raw, name, path) for name in ("m", "n", "k")},
        time_s=numbers(raw, "latency", path) * MS,
    )


def _attention(raw: pd.DataFrame, path: Path, *, decode: bool) -> pd.DataFrame:
    """Full attention of one layer; older tables have no column of windows."""
    if "window_size" in raw:
        raw = raw[counts(raw, "window_size", path) == 0]
    return rows.frame(
        "attention",
        kernel=raw["kernel_source"],
        dtype=_dtypes(raw["attn_dtype"]),
        kv_dtype=_dtypes(raw["kv_cache_dtype"]),
        batch=counts(raw, "batch_size", path),
        query_tokens=1 if decode else counts(raw, "isl", path),
        context_tokens=counts(raw, "step", path),
        heads=counts(raw, "num_heads", path),
        kv_heads=counts(raw, "num_key_value_heads", path),
        head_dim=counts(raw, "head_dim", path),
        time_s=numbers(raw, "latency", path) * MS,
    )


def _prefill(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    return _attention(raw, path, decode=False)


def _decode(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    return _attention(raw, path, decode=True)


def _all_reduce(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Messages are counted in elements of two bytes, whoever timed them."""
    raw = raw[raw["op_name"] == "all_reduce"]
    if "nccl_dtype" in raw:
        raw = raw[raw["nccl_dtype"] == "half"]
    dtype = raw["nccl_dtype" if "nccl_dtype" in raw else "allreduce_dtype"]
    return rows.frame(
        "all_reduce",
        kernel=raw["backend" if "backend" in raw else "kernel_source"].str.lower(),
        dtype=_dtypes(dtype),
        gpus=counts(raw, "num_gpus", path),
        message_bytes=2 * counts(raw, "message_size", path),
        time_s=numbers(raw, "latency", path) * MS,
    )


def _moe(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Experts held whole or cut by tensor parallelism, the routing kept in the kernel's name."""
    raw = raw[counts(raw, "moe_ep_size", path) == 1]
    shape: dict[str, Any] = {
        "m": counts(raw, "num_tokens", path),
        "n": counts(raw, "inter_size", path) // np.maximum(counts(raw, "moe_tp_size", path), 1),
        "k": counts(raw, "hidden_size", path),
        "experts": counts(raw, "num_experts", path),
        "experts_per_token": counts(raw, "topk", path),
        "dtype": _dtypes(raw["moe_dtype"]),
    }
    matrices = np.where(raw["kernel_source"].str.endswith("nongated"), 2, 3)
    uniform = work.moe(**shape, matrices=matrices)
    balanced = work.moe(**shape, matrices=matrices, balanced=True)
    return rows.frame(
        "moe",
        kernel=raw["kernel_source"] + " " + raw["distribution"],
        **shape,
        bytes=np.where(raw["distribution"] == "balanced", balanced.bytes, uniform.bytes),
        flops=uniform.flops,
        time_s=numbers(raw, "latency", path) * MS,
    )


def _quantise(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Activations of m rows of width k from bf16 to fp8, with a scale known beforehand."""
    return rows.frame(
        "elementwise",
        kernel="static_fp8_quant",
        dtype=_dtypes(raw["quant_dtype"]),
        m=counts(raw, "m", path),
        n=counts(raw, "k", path),
        time_s=numbers(raw, "latency", path) * MS,
    )


def _quantise_with_scale(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The same with a scale found on the way: their table has what that adds to a known scale.

    Engines whose kernel always finds the scale (sglang) show no difference, hence no rows.
    """
    both = raw.merge(read_parquet(path.with_name(QUANTISE)), on=["m", "k", "quant_dtype"])
    added = numbers(both, "latency_x", path, least=-np.inf)
    if not np.median(added) > 0:
        both, added = both[:0], added[:0]
    return rows.frame(
        "elementwise",
        kernel="dynamic_fp8_quant",
        dtype=_dtypes(both["quant_dtype"]),
        m=counts(both, "m", path),
        n=counts(both, "k", path),
        time_s=(added + numbers(both, "latency_y", path)) * MS,
    )


NCCL = "nccl_perf.parquet"
QUANTISE = "scale_matrix_perf.parquet"

_HEADS = ("num_heads", "num_key_value_heads", "head_dim", "attn_dtype", "kv_cache_dtype")
_SEQUENCES = ("kernel_source", "batch_size", "isl", "step", *_HEADS)
_EXPERTS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
_GROUP = ("op_name", "kernel_source", "num_gpus", "message_size")

TABLES = (
    Table("gemm", "gemm_perf.parquet", "gemm", ("kernel_source", "gemm_dtype", *"mnk"), _gemm),
    Table("attention", "context_attention_perf.parquet", "attention", _SEQUENCES, _prefill),
    Table("attention", "generation_attention_perf.parquet", "attention", _SEQUENCES, _decode),
    Table(
        *("comm", "custom_allreduce_perf.parquet", "all_reduce"),
        (*_GROUP, "allreduce_dtype"),
        _all_reduce,
    ),
    Table("comm", NCCL, "all_reduce", (*_GROUP, "nccl_dtype"), _all_reduce),
    Table(
        *("moe", "moe_perf.parquet", "moe"),
        ("kernel_source", "moe_dtype", "distribution", "num_tokens", *_EXPERTS),
        _moe,
    ),
    Table("quantize", QUANTISE, "elementwise", (*"mk", "quant_dtype"), _quantise),
    Table(
        *("quantize", "computescale_perf.parquet", "elementwise"),
        (*"mk", "quant_dtype"),
        _quantise_with_scale,
    ),
)
