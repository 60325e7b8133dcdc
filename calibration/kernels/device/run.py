"""A run on the device at hand: sweep, rows, and a line that sums it up."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from calibration.kernels import rows as kernel_rows
from calibration.kernels.device import machine as machines
from calibration.kernels.device.accelerator import accelerator_of, best
from calibration.kernels.device.collective import time_all_reduces
from calibration.kernels.device.grid import Grid, grid
from calibration.kernels.device.machine import Machine
from calibration.kernels.device.operands import Operands
from calibration.kernels.device.operations import build, weights_go_by
from calibration.kernels.device.resume import Note, Partial, Timed, enough_time, silent, time_shapes
from calibration.kernels.device.sweep import Shape, Stack, sweep
from calibration.kernels.device.timing import Limits, Timing, time_call
from models import catalog
from models.hardware import Accelerator
from models.schema import ModelError
from models.transformer import Transformer
from sim.progress import OnProgress

USUAL = {"cuda": "llama-3.1-8b", "cpu": "smollm2-135m"}
"""Transformer whose layers are timed where none is named."""

STACKS: dict[str, Stack] = {"cuda": "fused", "cpu": "transformers"}
"""What commonly serves on a device."""

SPREAD = {"cuda": 0.2, "cpu": 0.5}
"""Bounds of the spread of one kernel. Its code comes from memory on a CPU; it spreads by nature."""


@dataclass(frozen=True)
class Options:
    """How a device is timed.

    Attributes
    ----------
    stack : str or None
        How layers are computed, see ``sweep.Stack``; None: as commonly on the device.
    quick : bool
        Few shapes and repeats, to try it out.
    threads : int
        CPU threads.
    budget_s : float or None
        Seconds after which no further kernel is begun; None: all are timed.
    """

    stack: Stack | None = None
    quick: bool = False
    threads: int = 1
    budget_s: float | None = None


class Calibrated(NamedTuple):
    """What was timed, on what, and in short (one JSON line); ``partial`` may go once it is kept.

    ``left`` kernels were not begun in the time there was.
    """

    rows: pd.DataFrame
    accelerator: Accelerator
    summary: dict[str, Any]
    partial: Path
    left: int


def calibrate_device(
    device: str,
    transformer: str | None,
    tp: int,
    out: Path,
    options: Options,
    on_progress: OnProgress | None = None,
    note: Note = silent,
) -> Calibrated:
    """Time the kernels of a transformer on this machine: what ``speccast calibrate device`` does.

    The caller fits a profile to the rows, writes both, and removes ``partial``.

    Parameters
    ----------
    device : str
        ``cuda`` or ``cpu``.
    transformer : str or None
        Catalogue name, or a ``config.json``; None: the usual one of the device.
    tp : int
        Tensor-parallel GPUs of a replica, whose share is timed.
    out : Path
        The profile to be; ``.partial`` beside it keeps what was timed so far.
    options : Options
    on_progress, note : callable, optional
        Told how far it is, and what a user should know.

    Raises
    ------
    ModelError
        If there is no such device or transformer, ``tp`` does not split it, or the budget was over
        too early; it names the option.
    InputError
        If ``partial`` holds another run.
    RuntimeError
        If torch is not installed, or too many kernels spread too much.
    """
    start = time.perf_counter()
    with _naming():
        machine = machines.find(device, options.threads)
    with _naming("--transformer"):
        net = catalog.transformer(transformer or USUAL[device])
    with _naming("--tp", "" if transformer else f", the default --transformer of {device}"):
        net.check_tp(tp)
    partial = partial_of(out)
    rows, left = measure(machine, net, tp, partial, options, on_progress, note)
    with enough_time(left, partial):
        accelerator = accelerator_of(machine, rows)
    summary = summed_up(machine, rows, time.perf_counter() - start)
    return Calibrated(rows, accelerator, summary, partial, left)


@contextlib.contextmanager
def _naming(option: str = "", more: str = "") -> Iterator[None]:
    """Name the option at fault, by default that of the key at fault."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{error}{more}", option or f"--{error.key}") from error


def partial_of(out: Path) -> Path:
    """File that keeps what was timed so far."""
    return out.with_name(out.name + ".partial")


def measure(
    machine: Machine,
    net: Transformer,
    tp: int,
    partial: Path,
    options: Options,
    on_progress: OnProgress | None = None,
    note: Note = silent,
) -> tuple[pd.DataFrame, int]:
    """Rows of all kernels of a sweep, those that spread too much flagged; how many are left.

    Parameters
    ----------
    machine : Machine
        From ``machine.find``.
    net, tp
        Whose layers, split over how many GPUs.
    partial : Path
        Kernels are appended here as they come, and those that are there are not timed again.
    options : Options
    on_progress, note : callable, optional

    Raises
    ------
    ModelError
        If ``tp`` does not split the transformer.
    InputError
        If ``partial`` holds another run.
    RuntimeError
        If too many kernels spread too much.
    """
    stack = options.stack or STACKS[machine.device]
    counts = grid(machine.device, quick=options.quick)
    shapes = sweep(
        net,
        tp,
        counts,
        stack=stack,
        dtypes=("bf16", "fp8") if machine.fp8 and stack == "fused" else ("bf16",),
        graphs=machine.device == "cuda",
        gpus=machine.gpus,
    )
    about = {"device": machine.name, "torch": machine.torch, "threads": machine.threads}
    run = about | {"transformer": net.model_dump(mode="json"), "tp": tp, "stack": stack}
    kept = Partial(partial, run | {"quick": options.quick})
    if kept.timed:
        note(f"{partial}: {len(kept.timed)} kernels of an interrupted run are kept")
    if machine.gpus == 1:
        note("one GPU: all-reduce is not timed")
    if net.experts:
        note(f"{net.name}: the experts of its mixture are not timed")
    with machines.held(machine):
        limits = Limits(spread=SPREAD[machine.device])
        if options.quick:
            limits = replace(limits, seconds=0.05, tries=2)
        timer = _timer(machine, net, counts, limits)
        left = time_shapes(shapes, timer, kept, options.budget_s, on_progress, note)
    source = f"{machine.source}; {stack} layers of {net.name}"
    return to_rows(kept.of(shapes), machine, source), left


def _timer(
    machine: Machine, net: Transformer, counts: Grid, limits: Limits
) -> Callable[[Shape], Timing]:
    """What times one shape on the device."""
    torch = machines.import_torch()
    operands = Operands(torch, machine.device, machine.cache_bytes)
    passing = weights_go_by(torch, operands, 2.0 * net.layer_params() / net.layers)
    usual, bare = machine.clock(torch, passing), machine.clock(torch)

    @functools.cache
    def summed(gpus: int) -> dict[int, Timing]:
        operands.release()
        return time_all_reduces(gpus, counts.message_bytes)

    def timer(shape: Shape) -> Timing:
        if shape.operation == "all_reduce":
            return summed(shape.gpus)[shape.message_bytes]
        clock = bare if (shape.operation, shape.kernel) == ("launch", "eager") else usual
        with torch.inference_mode():
            call = build(torch, operands, shape)
            return time_call(call, clock, limits, str(shape))

    return timer


def to_rows(timed: Sequence[tuple[Shape, Timed]], machine: Machine, source: str) -> pd.DataFrame:
    """Rows of the schema, in the order given."""

    def alike(pair: tuple[Shape, Timed]) -> tuple[str, list[str]]:
        return pair[0].operation, list(pair[0].columns())

    def frames() -> Iterator[pd.DataFrame]:
        for (operation, names), group in groupby(timed, key=alike):
            pairs = list(group)
            columns = {name: [shape.columns()[name] for shape, _ in pairs] for name in names}
            del columns["operation"]
            if "bytes" in columns:
                columns["flops"] = [0.0] * len(pairs)
            yield kernel_rows.frame(
                operation,
                **columns,
                time_s=[one.time_s for _, one in pairs],
                spread=[one.spread for _, one in pairs],
                flag=[one.flag for _, one in pairs],
                device=machine.name,
                engine="torch",
                version=machine.torch,
                source=source,
            )

    return kernel_rows.join(list(frames()))


def summed_up(machine: Machine, rows: pd.DataFrame, seconds: float) -> dict[str, Any]:
    """The run in one JSON line: rates in GB/s and TFLOP/s, times in microseconds."""

    def rate(operation: str, of: str, unit: float, **where: str) -> float | None:
        found = best(rows, operation, of, **where)
        return None if found is None else round(found / unit, 3)

    launch = rows[rows["operation"] == "launch"].set_index("kernel")["time_s"]
    return {
        "device": machine.name,
        "rows": len(rows),
        "seconds": round(seconds, 1),
        "copy_gb_per_s": rate("stream", "bytes", 1e9, kernel="copy"),
        "read_gb_per_s": rate("stream", "bytes", 1e9, kernel="read"),
        "gemm_tflop_per_s": rate("gemm", "flops", 1e12),
        "launch_us": {str(name): round(time_s * 1e6, 3) for name, time_s in launch.items()},
        "noisy_rows": int((rows["flag"] != "").sum()),
    }
