"""The table of timed kernels: one row a kernel, wherever it was measured.

A count that does not apply to an operation is 0, a text "". Published tables, runs on a device at
hand and the measured rows beside a profile all have this schema.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.kernel_table import COLUMNS, KernelTable
from models.strict_yaml import InputError
from sim.tables import COUNT, NUMBER, SECONDS, TEXT, field, write_parquet

OPERATIONS = (
    "gemm",
    "attention",
    "all_reduce",
    "moe",
    "elementwise",
    "sampling",
    "launch",
    "stream",
)

SIZES = {
    "gemm": ("m", "n", "k"),
    "moe": ("m", "n", "k", "experts", "experts_per_token"),
    "all_reduce": ("gpus", "message_bytes"),
}
"""What a row must have for an operation that measured rows may stand in for."""

KERNELS = pa.schema(
    [
        field("operation", TEXT, "", " | ".join(OPERATIONS)),
        field("kernel", TEXT, "", "kernel, library or variant that was timed"),
        field("dtype", TEXT, "", "type the operands are computed in"),
        field("kv_dtype", TEXT, "", "type of the KV cache (attention)"),
        field("m", COUNT, "token", "rows: tokens of the step (gemm, moe, elementwise, sampling)"),
        field(
            "n", COUNT, "", "columns on one GPU; of moe: intermediate size, of sampling: vocabulary"
        ),
        field("k", COUNT, "", "inner dimension; of moe: hidden size"),
        field("batch", COUNT, "sequence", "sequences (attention)"),
        field("query_tokens", COUNT, "token", "query tokens of each sequence (attention)"),
        field(
            "context_tokens", COUNT, "token", "KV tokens of each sequence before its query tokens"
        ),
        field("heads", COUNT, "", "query heads on one GPU"),
        field("kv_heads", COUNT, "", "KV heads on one GPU"),
        field("head_dim", COUNT, "", "width of a head"),
        field("mask", TEXT, "", "causal | tree (attention)"),
        field("gpus", COUNT, "", "GPUs of the group (all_reduce)"),
        field("message_bytes", COUNT, "byte", "bytes reduced (all_reduce)"),
        field("experts", COUNT, "", "routed experts on one GPU (moe)"),
        field("experts_per_token", COUNT, "", "experts each token goes to (moe)"),
        field("bytes", NUMBER, "byte", "least traffic of the kernel"),
        field("flops", NUMBER, "FLOP", "arithmetic of the kernel"),
        field("time_s", SECONDS, "s", "median time of one call"),
        field("spread", NUMBER, "", "interquartile range / median of the repeats, 0 if not known"),
        field("device", TEXT, "", "GPU or CPU it ran on"),
        field("engine", TEXT, "", "software it was timed in"),
        field("version", TEXT, "", "its version"),
        field("source", TEXT, "", "file or run it comes from"),
        field("flag", TEXT, "", "why fits leave it out; empty if they use it"),
    ]
)


def read_kernels(path: str | Path) -> pa.Table:
    """Read a table of timed kernels written by ``write_kernels``.

    Raises
    ------
    InputError
        If there is no such file, it is not whole, or columns are missing or hold other things.
    """
    try:
        table = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise InputError(str(path), None, "", "no such file") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(str(path), None, "", f"cannot be read as Parquet: {reason}") from error
    missing = [name for name in KERNELS.names if name not in table.column_names]
    if missing:
        raise InputError(str(path), None, "", f"columns missing: {', '.join(missing)}")
    try:
        return table.select(KERNELS.names).cast(KERNELS)
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(str(path), None, "", f"columns are not as written: {reason}") from error


def kernel_table(path: Path) -> KernelTable:
    """Measured kernels of a Parquet file as the model takes them, flagged rows left out.

    Raises
    ------
    InputError
        As ``read_kernels``, and where a row in use has a size or time that cannot be.
    """
    try:
        stat = path.stat()
    except OSError:
        raise InputError(str(path), None, "", "no such file") from None
    return _kernel_table(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _kernel_table(path: Path, changed_ns: int, size: int) -> KernelTable:
    table = read_kernels(path)
    used = table.filter(pc.equal(table["flag"], ""))
    columns = {name: used[name].to_numpy(zero_copy_only=False) for name in COLUMNS}
    _check(columns, path)
    return KernelTable.of(columns)


def _check(columns: dict[str, Any], path: Path) -> None:
    """Refuse rows in use without a positive, finite time, or with sizes that are none."""
    for operation, sizes in SIZES.items():
        rows = columns["operation"] == operation
        for name in ("time_s", *sizes):
            values = columns[name][rows]
            bad = values[~((values > 0) & np.isfinite(values))]
            if len(bad):
                message = f"must be above 0 in every {operation} row without a flag, got {bad[0]}"
                raise InputError(str(path), None, name, message)


def write_kernels(table: pa.Table, path: str | Path) -> None:
    """Write a table of timed kernels; it appears only when complete."""
    write_parquet(table.select(KERNELS.names).cast(KERNELS), Path(path))
