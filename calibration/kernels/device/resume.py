"""What was timed so far, kept beside the output: an interrupted run goes on where it was."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calibration.json_lines import append_line, differing, read_lines
from calibration.kernels.device.sweep import Shape
from calibration.kernels.device.timing import NoisyError, Timing
from models.schema import ModelError
from models.strict_yaml import InputError
from sim.progress import OnProgress

NOISY_SHARE = 0.1
"""A run of which more kernels than this spread too much is refused."""

Note = Callable[[str], None]


def silent(text: str) -> None:
    """Tell nobody."""


class Timed(NamedTuple):
    """One kernel of the sweep: its time [s] and spread, or why it could not be timed."""

    shape: str
    time_s: float
    spread: float
    flag: str = ""
    skipped: str = ""


class Partial:
    """A file of JSON lines: what is run, then one kernel a line as it comes.

    Parameters
    ----------
    path : Path
    run : mapping
        What all its kernels share: device, torch, transformer, options.

    Attributes
    ----------
    timed : dict
        By shape as text. Flagged ones of an earlier run are left out: they are timed again.

    Raises
    ------
    InputError
        If the file there holds kernels of another run, or something else; it is left as it is.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path, self.timed = path, dict[str, Timed]()
        self._read(run)
        if self.timed:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(run)) + "\n", "utf-8")

    def _read(self, run: Mapping[str, Any]) -> None:
        """Take over the lines of a run like this one; a last line cut short is left out."""
        try:
            before, *lines = read_lines(self.path) or [dict[str, Any]()]
            found = [Timed(**line) for line in lines]
        except (ValueError, TypeError):
            message = "holds no timed kernels that can be read; remove it to start anew"
            raise InputError(str(self.path), None, "", message) from None
        if found and before != dict(run):
            message = (
                f"{len(found)} kernels of another run are kept there ({differing(before, run)}); "
                "give the same options to go on with it, or remove it to start anew"
            )
            raise InputError(str(self.path), None, "", message)
        self.timed = {one.shape: one for one in found if not one.flag}

    def append(self, timed: Timed) -> None:
        """Keep one kernel; it is on disk when this returns."""
        self.timed[timed.shape] = timed
        append_line(self.path, timed._asdict())

    def of(self, shapes: list[Shape]) -> list[tuple[Shape, Timed]]:
        """Those of these shapes that have a time, in their order."""
        known = ((shape, self.timed.get(str(shape))) for shape in shapes)
        return [(shape, one) for shape, one in known if one is not None and not one.skipped]

    def remove(self) -> None:
        """Drop the file, once what it holds is written elsewhere."""
        self.path.unlink(missing_ok=True)


def time_shapes(
    shapes: Sequence[Shape],
    timer: Callable[[Shape], Timing],
    kept: Partial,
    budget_s: float | None = None,
    on_progress: OnProgress | None = None,
    note: Note = silent,
    now: Callable[[], float] = time.perf_counter,
) -> int:
    """Time what is not kept yet, in order; what cannot be computed is noted and left out.

    Returns
    -------
    int
        How many are left because the budget was over.

    Raises
    ------
    RuntimeError
        If more than a tenth spread too much.
    """
    start, left = now(), 0
    for index, shape in enumerate(shapes):
        if on_progress is not None:
            on_progress(shape.operation, index, len(shapes))
        if str(shape) in kept.timed:
            continue
        if budget_s is not None and now() - start > budget_s:
            left = len(shapes) - index
            note(f"{budget_s:g} s are over: {left} kernels are left out")
            break
        one = _tried(shape, timer)
        if one.skipped:
            note(f"left out: {shape}: {one.skipped}")
        elif one.flag:
            note(f"not used in fits: {shape}: {one.flag} is over the bound")
        kept.append(one)
    noisy = [one for _, one in kept.of(list(shapes)) if one.flag]
    if len(noisy) > NOISY_SHARE * len(kept.timed):
        raise RuntimeError(
            f"{len(noisy)} of {len(kept.timed)} kernels spread too much (first: {noisy[0].shape}: "
            f"{noisy[0].flag}); run it again when nothing else runs: only those are timed again"
        )
    return left


def kept_in(path: Path) -> int:
    """How many kernels a file of an interrupted run keeps; 0 where there is none."""
    try:
        lines = path.read_text("utf-8").split("\n")
        return sum(not Timed(**json.loads(line)).flag for line in lines[1:-1])
    except (OSError, ValueError, TypeError):
        return 0


def interruption(partial: Path) -> str:
    """What an interrupted run leaves, in one line."""
    kept = kept_in(partial)
    if not kept:
        return "interrupted: no kernel was timed yet"
    return f"interrupted: {kept} kernels are kept in {partial}; the same command goes on from there"


@contextlib.contextmanager
def enough_time(left: int, partial: Path) -> Iterator[None]:
    """Say that rows are too few for a fit because the budget was over, and how to go on.

    Parameters
    ----------
    left : int
        Kernels that were not begun; 0: whatever the block raises has another reason.
    partial : Path
        What keeps those that were.

    Raises
    ------
    ModelError
        In place of any, or a RuntimeError, of the block.
    """
    try:
        yield
    except (ModelError, RuntimeError) as error:
        if not left:
            raise
        raise ModelError(
            f"too short for a profile ({error}); {kept_in(partial)} kernels timed so far are kept "
            f"in {partial}, {left} are left: run the same command again to go on",
            "--budget-s",
        ) from error


def _tried(shape: Shape, timer: Callable[[Shape], Timing]) -> Timed:
    try:
        timing = timer(shape)
    except NoisyError as error:
        timing = error.timing
        return Timed(str(shape), timing.median_s, timing.spread, f"spread {timing.spread:.2f}")
    except (RuntimeError, NotImplementedError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        if "CUDA error" in reason and "captur" not in reason:
            raise  # the driver context is lost, and with it every kernel to come
        return Timed(str(shape), 0.0, 0.0, skipped=reason)
    return Timed(str(shape), timing.median_s, timing.spread)
