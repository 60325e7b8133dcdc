"""All-reduce over several GPUs of this machine, one process each."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibration.kernels.device.machine import import_torch
from calibration.kernels.device.timing import Clock, CudaClock, HostClock, Timing, summary

REPEATS, CALLS, WARM_UP = 15, 20, 3
"""The same on every GPU: they wait for each other in every call."""
MOST_S = 180.0


def time_all_reduces(
    gpus: int, message_bytes: Sequence[int], backend: str = "nccl"
) -> dict[int, Timing]:
    """Time sums over a group for messages of each size [byte], bf16.

    Parameters
    ----------
    gpus : int
        Size of the group.
    message_bytes : sequence of int
        Sizes.
    backend : str
        Of torch.distributed; ``gloo`` sums on the CPU.

    Raises
    ------
    RuntimeError
        If a process fails, or they do not end.
    """
    torch = import_torch()
    with tempfile.TemporaryDirectory() as folder:
        job = (gpus, tuple(message_bytes), backend, folder)
        group = torch.multiprocessing.spawn(_one_of, args=job, nprocs=gpus, join=False)
        end = time.monotonic() + MOST_S
        try:
            while not group.join(timeout=1.0):
                if time.monotonic() > end:
                    raise RuntimeError(f"all-reduce of {gpus} GPUs hangs for {MOST_S:g} s")
        finally:
            for process in group.processes:
                if process.is_alive():
                    process.kill()
        samples = json.loads(Path(folder, "samples.json").read_text("ascii"))
    return {int(size): summary(times) for size, times in samples.items()}


def _one_of(rank: int, gpus: int, sizes: tuple[int, ...], backend: str, folder: str) -> None:
    """What the process of one GPU does; the first writes the times down."""
    torch = import_torch()
    clock: Clock = HostClock()
    if backend == "nccl":
        torch.cuda.set_device(rank)
        clock = CudaClock(torch)
    where = "cuda" if backend == "nccl" else "cpu"
    torch.distributed.init_process_group(
        backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=gpus
    )
    try:
        samples = {size: _times(torch, clock, where, size) for size in sizes}
    finally:
        torch.distributed.destroy_process_group()
    if rank == 0:
        Path(folder, "samples.json").write_text(json.dumps(samples), "ascii")


def _times(torch: Any, clock: Clock, where: str, size: int) -> list[float]:
    message = torch.zeros(max(1, size // 2), dtype=torch.bfloat16, device=where)
    run = clock.batch((lambda: torch.distributed.all_reduce(message),), CALLS)
    for _ in range(WARM_UP):
        run()
    return [run() / CALLS for _ in range(REPEATS)]
