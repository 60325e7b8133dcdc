"""How one call is timed, on a CPU and on a GPU, and when the time is believed. No torch."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from device_cases import Ticking

from calibration.kernels.device.timing import (
    CudaClock,
    HostClock,
    Limits,
    NoisyError,
    Timing,
    time_call,
)


def timed(ticking: Ticking, **limits: float) -> Timing:
    once = Limits(**{"warm_up_s": 0.0, "least": 8, "most": 8, "tries": 1, **limits})
    return time_call((ticking.call,), HostClock(ticking.now), once, "gemm m 1", ticking.now)


def test_the_time_of_a_call_is_the_median_and_the_spread_the_middle_half():
    found = timed(Ticking(1.0, 1.1, 1.2, 1.3), seconds=100)
    assert found.median_s == pytest.approx(1.15)
    assert found.spread == pytest.approx(
        np.subtract(*np.percentile([1, 1.1, 1.2, 1.3], [75, 25])) / 1.15
    )
    assert found.repeats == 8


def test_short_calls_are_repeated_until_the_clock_can_tell():
    ticking = Ticking(1e-6)
    found = timed(ticking)
    assert found.median_s == pytest.approx(1e-6)
    assert ticking.calls > 8 * 100


def test_repeats_end_with_the_time_for_them():
    found = timed(Ticking(0.1), most=100, seconds=2.05)
    assert found.repeats == 21


def test_noise_is_refused_with_what_was_timed_the_spread_and_the_bound():
    with pytest.raises(NoisyError, match=r"^gemm m 1: spread 1\.\d\d of 8 repeats .* of 0\.3;"):
        timed(Ticking(1.0, 3.0))


def test_a_noisy_call_is_tried_again_and_the_steadiest_try_kept():
    ticking = Ticking(*[1.0, 3.0] * 5, *[2.0] * 90)
    assert timed(ticking, tries=2) == Timing(2.0, 0.0, 8)
    with pytest.raises(NoisyError) as refused:
        timed(Ticking(*[1.0, 3.0] * 5, *[1.0, 1.6] * 90), tries=2)
    assert refused.value.timing.median_s == pytest.approx(1.3)


def test_each_try_has_twice_the_time_of_the_one_before():
    with pytest.raises(NoisyError) as refused:
        timed(Ticking(0.1, *[0.1, 0.3] * 40), tries=3, seconds=2.0, least=2, most=100)
    assert refused.value.timing.repeats > 2 * 2.0 / 0.2


def test_what_runs_between_the_pieces_of_a_call_is_not_timed():
    ticking, seen = Ticking(0.5), []

    def between() -> None:
        ticking.now_s += 100.0
        seen.append("between")

    clock = HostClock(ticking.now, between, 1e-8)
    run = clock.batch((ticking.call, ticking.call), 1)
    seen.clear()
    assert run() == pytest.approx(1.0)
    assert seen == ["between"] * 2


def test_reading_the_clock_is_not_counted():
    ticking = Ticking(0.5)

    def now() -> float:
        ticking.now_s += 0.125
        return ticking.now_s

    assert HostClock(now).batch((ticking.call,) * 3, 2)() == pytest.approx(3.0)


class Cuda:
    """Writes down what a CUDA clock asks of the driver."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: self.log.append("replay"))
        self.Stream = lambda: SimpleNamespace(wait_stream=lambda other: None)
        self.current_stream = self.Stream
        self.stream = lambda side: contextlib.nullcontext()
        self.synchronize = lambda: self.log.append("synchronize")

    def Event(self, *, enable_timing: bool) -> SimpleNamespace:  # noqa: N802
        assert enable_timing
        return SimpleNamespace(
            record=lambda: self.log.append("record"),
            synchronize=lambda: self.log.append("wait"),
            elapsed_time=lambda end: 6.0,
        )

    @contextlib.contextmanager
    def graph(self, captured):
        self.log.append("capture")
        yield
        self.log.append("captured")


def test_cuda_calls_are_captured_once_and_timed_between_events_that_are_waited_for():
    cuda = Cuda()
    run = CudaClock(SimpleNamespace(cuda=cuda)).batch((lambda: cuda.log.append("call"),), 3)
    assert cuda.log == ["call", "synchronize", "capture", "call", "call", "call", "captured"]
    cuda.log.clear()
    assert run() == pytest.approx(6e-3)
    assert cuda.log == ["synchronize", "record", "replay", "record", "wait"]


def test_without_graphs_every_call_is_launched_between_the_events():
    cuda = Cuda()
    clock = CudaClock(SimpleNamespace(cuda=cuda), graph=False)
    clock.batch((lambda: cuda.log.append("call"),), 2)()
    assert cuda.log == ["synchronize", "record", "call", "call", "record", "wait"]
