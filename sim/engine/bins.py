"""What a replica did over time, in bins of simulated time that widen as the run gets longer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.engine.totals import StepTotals
from sim.histogram import LogHistogram
from sim.tables import Columns

FIRST_WIDTH_S = 1.0
MOST_BINS = 512
"""Finer than any picture of a run is drawn; memory stays the same however long the run."""


class Reading(NamedTuple):
    """The sums of a replica at the end of a bin."""

    steps: int = 0
    decode_s: float = 0.0
    stalled_s: float = 0.0
    n_s: float = 0.0
    prefilling_s: float = 0.0
    waiting_s: float = 0.0
    blocks_s: float = 0.0
    surplus: int = 0
    first_tokens: int = 0
    resumed: int = 0
    preemptions: int = 0
    gaps: int = 0
    decoded: int = 0

    @classmethod
    def of(cls, totals: StepTotals, gaps: int, decoded: int) -> Reading:
        """The sums as they stand, and the chunk gaps and tokens decoded so far."""
        return cls._make((*(getattr(totals, name) for name in cls._fields[:-2]), gaps, decoded))

    def towards(self, after: Reading, passed: float) -> Reading:
        """The sums when a share of a step has passed: of its time as much, of its counts none."""
        times = {
            name: (1 - passed) * getattr(self, name) + passed * getattr(after, name)
            for name in self._fields
            if name.endswith("_s")
        }
        return self._replace(**times)


class Bins:
    """Readings of a replica's sums at equal distances in time.

    Time is shared out between the bins a step runs in; what it counts belongs to the one it ends
    in. When there are ``MOST_BINS`` of them, pairs are joined.

    Attributes
    ----------
    end_s : float
        End of the bin being filled [s].
    width_s : float
        Width of all bins [s].
    """

    def __init__(self, totals: StepTotals, gaps: LogHistogram) -> None:
        self._totals, self._gaps = totals, gaps
        self._readings: list[Reading] = []
        self.width_s = self.end_s = FIRST_WIDTH_S

    def reading(self, decoded: int) -> Reading:
        """The sums as they stand."""
        return Reading.of(self._totals, self._gaps.count, decoded)

    def close(self, before: Reading, start_s: float, end_s: float, decoded: int) -> float:
        """Close every bin that ends by the end of a step; end of the one filled then [s].

        Parameters
        ----------
        before : Reading
            The sums before the step.
        start_s, end_s : float
            The step [s].
        decoded : int
            Tokens decoded by its end.
        """
        after = self.reading(decoded)
        while self.end_s <= end_s:
            passed = min(max((self.end_s - start_s) / (end_s - start_s), 0.0), 1.0)
            self._readings.append(after if passed == 1.0 else before.towards(after, passed))
            if len(self._readings) == MOST_BINS:
                self._readings = self._readings[1::2]
                self.width_s *= 2
            self.end_s = (len(self._readings) + 1) * self.width_s
        return self.end_s

    def finish(self, decoded: int) -> None:
        """The run is over: close the bin being filled, where something is in it."""
        reading = self.reading(decoded)
        if reading != (self._readings or [Reading()])[-1]:
            self._readings.append(reading)

    def columns(self, replica: int, n_blocks: int) -> Columns:
        """Timeline of one replica to its last step; every column of shape (bins,)."""
        readings = [Reading(), *self._readings]
        rises = np.diff(np.array(readings, dtype=np.float64), axis=0)
        sums = dict(zip(Reading._fields, rises.T, strict=True))
        bins = len(rises)
        ends_s = self.width_s * np.arange(1, bins + 1)
        # Every decode step of a sequence ends one gap; so does the token of a resumed prefill.
        accepted, steps = sums["decoded"] + sums["surplus"], sums["gaps"] - sums["resumed"]
        tau = np.divide(accepted, steps, out=np.full(bins, np.nan), where=steps > 0)
        return {
            "replica": np.full(bins, replica),
            "start_s": ends_s - self.width_s,
            "width_s": np.full(bins, self.width_s),
            "steps": sums["steps"].astype(np.int64),
            "busy_s": sums["decode_s"] + sums["stalled_s"],
            "running": (sums["n_s"] + sums["prefilling_s"]) / self.width_s,
            "waiting": sums["waiting_s"] / self.width_s,
            "kv_use": sums["blocks_s"] / self.width_s / n_blocks,
            "emitted": (sums["decoded"] + sums["first_tokens"]).astype(np.int64),
            "tau": tau,
            "preemptions": sums["preemptions"].astype(np.int64),
        }
