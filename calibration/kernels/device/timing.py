"""How long one call takes: warm-up, a clock that waits for the device, median of repeats.

Notes
-----
A repeat is a batch of calls long enough for the clock. On CUDA the batch is captured in a graph,
as serving engines run it, and timed between two events, so launching from Python is not measured.
On one CPU thread the clock is the thread's own: time that other processes take is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

Call = Callable[[], object]

FASTEST_S = 1e-7
"""No call is shorter; guards against a clock that stands still."""


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
        Time for the calls before them [s]; at least one is made.
    least, most : int
        Repeats: ``least`` even if they take longer, ``most`` even if time is left.
    spread : float
        Largest interquartile range / median that is believed.
    tries : int
        Tries, each twice as long as the one before.
    """

    seconds: float = 0.2
    warm_up_s: float = 0.02
    least: int = 7
    most: int = 200
    spread: float = 0.2
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
    """

    now: Callable[[], float] = time.perf_counter
    batch_s: float = 50e-6

    def batch(self, call: Call, count: int) -> Callable[[], float]:
        """Calls one after another between two readings."""

        def run() -> float:
            start = self.now()
            for _ in range(count):
                call()
            return self.now() - start

        return run


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
        launch = self._captured(call, count) if self.graph else _in_a_row(call, count)

        def run() -> float:
            cuda.synchronize()
            start.record()
            launch()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3

        return run

    def _captured(self, call: Call, count: int) -> Callable[[], object]:
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            call()
        cuda.current_stream().wait_stream(side)
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(count):
                call()
        graph.replay()
        cuda.synchronize()
        replay: Callable[[], object] = graph.replay
        return replay


def _in_a_row(call: Call, count: int) -> Callable[[], None]:
    def launch() -> None:
        for _ in range(count):
            call()

    return launch


def time_call(call: Call, clock: Clock, limits: Limits, what: str = "call") -> Timing:
    """Time one call.

    Parameters
    ----------
    call : callable
        Computes once; it brings its own operands, other ones each time.
    clock : Clock
        Of the device it computes on.
    limits : Limits
        How long, and which spread is believed.
    what : str
        Operation and shape, for the error.

    Raises
    ------
    NoisyError
        If every try spreads over ``limits.spread``.
    """
    steadiest: Timing | None = None
    for attempt in range(limits.tries):
        timing = _one_try(call, clock, replace(limits, seconds=limits.seconds * 2**attempt))
        if steadiest is None or timing.spread < steadiest.spread:
            steadiest = timing
        if timing.spread <= limits.spread:
            return timing
    assert steadiest is not None
    raise NoisyError(what, steadiest, limits.spread)


def _one_try(call: Call, clock: Clock, limits: Limits) -> Timing:
    once = clock.batch(call, 1)
    call_s, spent = max(once(), FASTEST_S), 0.0
    while spent < limits.warm_up_s:
        call_s = max(min(once(), call_s), FASTEST_S)
        spent += call_s
    count = max(1, int(np.ceil(clock.batch_s / call_s)))
    run = once if count == 1 else clock.batch(call, count)
    if count > 1:
        run()
    samples: list[float] = []
    spent = 0.0
    while len(samples) < limits.least or (spent < limits.seconds and len(samples) < limits.most):
        elapsed = run()
        spent += max(elapsed, FASTEST_S)
        samples.append(elapsed / count)
    return summary(samples)


def summary(samples: list[float]) -> Timing:
    """Median and spread of the times of single calls [s]."""
    low, median, high = np.percentile(samples, [25, 50, 75])
    spread = float((high - low) / median) if median > 0 else float("inf")
    return Timing(float(median), spread, len(samples))
