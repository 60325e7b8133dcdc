"""How long one call takes: warm-up, a clock that waits for the device, median of repeats.

Notes
-----
On CUDA a repeat is a batch of calls captured in a graph, as serving engines run them, and timed
between two events, so launching from Python is not measured. On a CPU it is one call, after other
weights have gone by: they push its data and its code out of the inner caches, as they do between
two uses of a kernel in a forward pass. There the clock of one thread is its own, so that time other
processes take is not counted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

Call = Sequence[Callable[[], object]]
"""Kernels timed as one: its pieces run one after another, in a forward pass others in between."""

FASTEST_S = 1e-8
"""No call is shorter; guards against a clock that stands still."""
EMPTY_CALLS = 30


class Timing(NamedTuple):
    """Median time of a call [s], interquartile range / median, and how many repeats."""

    median_s: float
    spread: float
    repeats: int


class Clock(Protocol):
    """Times batches of one call."""

    batch_s: float
    """A batch this long is read without error that matters [s]."""

    def batch(self, call: Call, count: int) -> Callable[[], float]:
        """Make ready ``count`` calls in a row; each run of the result gives their time [s]."""


@dataclass(frozen=True)
class Limits:
    """When a measurement is over.

    Attributes
    ----------
    seconds : float
        Time for the repeats of one try [s].
    warm_up_s : float
        Time for the calls before them [s]; two are made at least.
    least, most : int
        Repeats: ``least`` even if they take longer, ``most`` even if time is left.
    spread : float
        Largest interquartile range / median that is believed.
    tries : int
        Tries, each twice as long as the one before.
    """

    seconds: float = 0.3
    warm_up_s: float = 0.02
    least: int = 7
    most: int = 200
    spread: float = 0.3
    tries: int = 3


class NoisyError(RuntimeError):
    """The repeats differ by more than is believed; ``timing`` is the steadiest try."""

    def __init__(self, what: str, timing: Timing, bound: float) -> None:
        super().__init__(
            f"{what}: spread {timing.spread:.2f} of {timing.repeats} repeats is over the bound of "
            f"{bound:g}; is something else running on this device?"
        )
        self.timing = timing


@dataclass
class HostClock:
    """Clock of this process, for calls that are over when they return.

    Parameters
    ----------
    now : callable
        Seconds; ``time.thread_time`` for one thread, ``time.perf_counter`` for several.
    between : callable, optional
        Runs before each piece of a call and is not timed.
    batch_s : float
        Repeat a call that is shorter.
    """

    now: Callable[[], float] = time.perf_counter
    between: Callable[[], object] = lambda: None
    batch_s: float = 1e-4
    _reading_s: float | None = field(default=None, init=False)

    def batch(self, call: Call, count: int) -> Callable[[], float]:
        """Calls one after another, each piece between two readings whose own time is left out."""
        if self._reading_s is None:
            empty = sorted(self._read(_nothing) for _ in range(EMPTY_CALLS))
            self._reading_s = empty[EMPTY_CALLS // 2]
        reading_s = self._reading_s * len(call) * count

        def run() -> float:
            elapsed = sum(self._read(piece) for _ in range(count) for piece in call)
            return max(elapsed - reading_s, FASTEST_S)

        return run

    def _read(self, piece: Callable[[], object]) -> float:
        self.between()
        start = self.now()
        piece()
        return self.now() - start


def _nothing() -> None:
    return None


@dataclass
class CudaClock:
    """Events on the current CUDA stream around a batch of calls.

    Parameters
    ----------
    torch : module
        Imported by the caller, which knows that there is a device.
    graph : bool
        Replay the batch from a CUDA graph; without, Python launches every kernel.
    """

    torch: Any
    graph: bool = True
    batch_s: float = 1e-3

    def batch(self, call: Call, count: int) -> Callable[[], float]:
        """Calls one after another between two events, captured first if so asked."""
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        launch = self._captured(call, count) if self.graph else lambda: _in_a_row(call, count)

        def run() -> float:
            cuda.synchronize()
            start.record()
            launch()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3

        return run

    def _captured(self, call: Call, count: int) -> Callable[[], object]:
        """Replay of a graph; one call before it lets libraries set themselves up."""
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            _in_a_row(call, 1)
        cuda.current_stream().wait_stream(side)
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            _in_a_row(call, count)
        replay: Callable[[], object] = graph.replay
        return replay


def _in_a_row(call: Call, count: int) -> None:
    for piece in itertools.chain.from_iterable(itertools.repeat(call, count)):
        piece()


def time_call(
    call: Call,
    clock: Clock,
    limits: Limits,
    what: str = "call",
    wall: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time one call.

    Parameters
    ----------
    call : sequence of callable
        Computes once; it brings its own operands, other ones each time.
    clock : Clock
        Of the device it computes on.
    limits : Limits
        How long, and which spread is believed.
    what : str
        Operation and shape, for the error.
    wall : callable
        Seconds that ``limits`` are counted in.

    Raises
    ------
    NoisyError
        If every try spreads over ``limits.spread``.
    """
    steadiest: Timing | None = None
    for attempt in range(limits.tries):
        timing = _one_try(call, clock, replace(limits, seconds=limits.seconds * 2**attempt), wall)
        if steadiest is None or timing.spread < steadiest.spread:
            steadiest = timing
        if timing.spread <= limits.spread:
            return timing
    assert steadiest is not None
    raise NoisyError(what, steadiest, limits.spread)


def _one_try(call: Call, clock: Clock, limits: Limits, wall: Callable[[], float]) -> Timing:
    once = clock.batch(call, 1)
    once()
    call_s, start = max(once(), FASTEST_S), wall()
    while wall() - start < limits.warm_up_s:
        call_s = max(min(once(), call_s), FASTEST_S)
    count = max(1, int(np.ceil(clock.batch_s / call_s)))
    run = once
    if count > 1:
        run = clock.batch(call, count)
        run()
    samples: list[float] = []
    start = wall()
    while len(samples) < limits.least or (
        len(samples) < limits.most and wall() - start < limits.seconds
    ):
        samples.append(run() / count)
    return summary(samples)


def summary(samples: list[float]) -> Timing:
    """Median and spread of the times of single calls [s]."""
    low, median, high = np.percentile(samples, [25, 50, 75])
    spread = float((high - low) / median) if median > 0 else float("inf")
    return Timing(float(median), spread, len(samples))
