"""The device a run is timed on: what it is, how much it caches, and one thread pinned to a core."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from calibration.kernels.device.timing import FASTEST_S, Clock, CudaClock, HostClock
from models.schema import ModelError

DEVICES = ("cuda", "cpu")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt."""

USUAL_CACHE_BYTES = 128_000_000
"""Assumed where the device does not tell: no GPU of today has more."""


class Machine(NamedTuple):
    """One device.

    Attributes
    ----------
    device : str
        ``cuda`` or ``cpu``.
    name : str
        As the driver, or /proc/cpuinfo, calls it.
    torch : str
        Version of torch.
    memory_bytes : int
        Its memory [byte].
    cache_bytes : int
        Its last-level cache [byte].
    threads : int
        CPU threads that compute; 0 on CUDA.
    gpus : int
        CUDA devices there are; 0 on CPU.
    fp8 : bool
        Whether it multiplies fp8.
    """

    device: str
    name: str
    torch: str
    memory_bytes: int
    cache_bytes: int
    threads: int
    gpus: int
    fp8: bool

    @property
    def source(self) -> str:
        """How the run was done, for the ``source`` column."""
        if self.device == "cuda":
            return "calibrate device: CUDA graphs, events, weights and KV from memory"
        plural = "" if self.threads == 1 else "s"
        return f"calibrate device: {self.threads} pinned thread{plural}, weights and KV from memory"

    def clock(self, torch: Any, between: Callable[[], object] | None = None) -> Clock:
        """Clock of this device.

        With ``between``, as kernels run in a forward pass: on CUDA from a graph, on CPUs after
        what it calls. Without: one call right after the other, launched from Python.
        """
        if self.device == "cuda":
            return CudaClock(torch, graph=between is not None)
        now = time.thread_time if self.threads == 1 else time.perf_counter
        return HostClock(now) if between is None else HostClock(now, between, FASTEST_S)


def import_torch() -> Any:
    """Import the module torch.

    Raises
    ------
    RuntimeError
        If it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise RuntimeError(
            "timing kernels needs the extra 'torch': pip install 'speccast[torch]'"
        ) from None
    return torch


def find(device: str, threads: int = 1) -> Machine:
    """Describe the device at hand.

    Raises
    ------
    ModelError
        If there is no such device, or it has fewer cores than ``threads``.
    RuntimeError
        If torch is not installed.
    """
    if device not in DEVICES:
        raise ModelError(f"must be one of {', '.join(DEVICES)}, got '{device}'", "device")
    torch = import_torch()
    if device == "cpu":
        cores = len(_cores())
        if not 1 <= threads <= cores:
            raise ModelError(f"must be 1 to the {cores} cores at hand, got {threads}", "threads")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        name = cpu_name()
        return Machine("cpu", name, torch.__version__, memory, _cpu_cache(), threads, 0, False)
    if not torch.cuda.is_available():
        raise ModelError("torch finds no CUDA device on this machine, got 'cuda'", "device")
    facts = torch.cuda.get_device_properties(0)
    cache = int(getattr(facts, "L2_cache_size", 0)) or USUAL_CACHE_BYTES
    fp8 = torch.cuda.get_device_capability(0) >= (8, 9)
    gpus = torch.cuda.device_count()
    memory = int(facts.total_memory)
    return Machine("cuda", facts.name, torch.__version__, memory, cache, 0, gpus, fp8)


@contextlib.contextmanager
def held(machine: Machine) -> Iterator[None]:
    """Compute on so many threads, each core ours as far as the system lets us; undone at the end.

    Memory once taken is kept, as it is by allocators of servers: with glibc's own rules page faults
    come and go with the state of the heap. A GPU is left as it is.
    """
    torch = import_torch()
    if machine.device == "cuda":
        yield
        return
    before, cores = torch.get_num_threads(), _cores()
    torch.set_num_threads(machine.threads)
    _pin(cores[-machine.threads :])
    _set_malloc(most_mapped=0, trim_bytes=2**31 - 1)
    try:
        yield
    finally:
        _set_malloc(most_mapped=65536, trim_bytes=128 * 1024)
        _pin(cores)
        torch.set_num_threads(before)


def _set_malloc(*, most_mapped: int, trim_bytes: int) -> None:
    """How many blocks glibc maps one by one, and when it gives the top of its heap back."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, most_mapped)
        mallopt(M_TRIM_THRESHOLD, trim_bytes)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _pin(cores: list[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cores)


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Model of this CPU with the number of its cores; the architecture where no file tells."""
    try:
        text = cpuinfo.read_text("utf-8", "replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(\S.*?)\s*$", text, re.MULTILINE)
    return found[1] if found else platform.machine() or "CPU"


def _cpu_cache(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    sizes = [USUAL_CACHE_BYTES // 4]
    for file in folder.glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(file.read_text("ascii").strip().removesuffix("K")) * 1024)
    return max(sizes)
