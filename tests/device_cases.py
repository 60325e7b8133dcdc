"""What the tests of timing a device share."""

from __future__ import annotations

from calibration.kernels.device.machine import Machine
from calibration.kernels.device.sweep import Shape
from calibration.kernels.device.timing import (
    Timing,
)
from models import catalog

LLAMA = catalog.transformer("llama-3.1-8b")
BOX = Machine("cpu", "Some CPU (R) 9000", "2.13.0", 2**34, 2**25, 1, 0, False)
SHAPES = [Shape("gemm", "linear", "bf16", m=m, n=64, k=64) for m in (1, 2, 4, 8)]
STEADY = Timing(1e-3, 0.01, 9)


class Ticking:
    """A clock that stands still but for what is computed: each call takes the next time."""

    def __init__(self, *times: float) -> None:
        self.now_s, self.times, self.calls = 0.0, times, 0

    def call(self) -> None:
        self.now_s += self.times[self.calls % len(self.times)]
        self.calls += 1

    def now(self) -> float:
        return self.now_s
