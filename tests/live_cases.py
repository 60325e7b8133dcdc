"""Recorded servers of tests/measured/live: calibrated on two loads, predicted at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from calibration.live import recording
from calibration.live.compare.comparison import Comparison
from calibration.live.compare.stages import compare
from calibration.live.fit import files
from calibration.live.fit.command import Asked, Calibrated, calibrate
from calibration.live.recording import Observation
from sim.analysis.metrics import tok_per_s
from sim.analysis.steady import whole_run
from sim.scenario.load import load_scenario

RECORD = Path(__file__).resolve().parent / "measured" / "live"
CPU = RECORD.parent / "decoding" / "cpu.yaml"
KINDS = ("plain", "ngram", "medusa")
LADDER = (1, 2, 4, 8)
FITTED_ON = (1, 4)
SURE = 0.05


class Speedup(NamedTuple):
    """Speedup over plain decoding at one load.

    Attributes
    ----------
    load : int
    repeats : tuple of float
        Measured, a repeat each: those of one repeat were measured one after the other.
    predicted : float
    """

    load: int
    repeats: tuple[float, ...]
    predicted: float

    @property
    def measured(self) -> float:
        """Median of the repeats."""
        return float(np.median(self.repeats))

    @property
    def p(self) -> float:
        """Chance of so uneven a split if the median were 1 (two-sided sign test)."""
        above = sum(one > 1 for one in self.repeats)
        return float(stats.binomtest(above, len(self.repeats)).pvalue)

    @property
    def significant(self) -> bool:
        """Whether the repeats say on which side of 1 it is."""
        return self.p < SURE

    @property
    def right(self) -> bool:
        """Whether the prediction is on the side of the median."""
        return (self.predicted > 1) == (self.measured > 1)


@cache
def observed(kind: str, repeats: int | None = None) -> Observation:
    """A server as it was recorded, or its first repeats alone."""
    seen = recording.read(RECORD / kind)
    kept = [n for n, one in enumerate(seen.stages) if repeats is None or one.replication < repeats]
    stages, runs = (tuple(of[n] for n in kept) for of in (seen.stages, seen.runs))
    return seen._replace(stages=stages, runs=runs)


def calibrated(folder: Path, repeats: int | None = None) -> tuple[Calibrated, Path]:
    """Fit to plain decoding at two loads; the scenario it leaves."""
    runs = RECORD / "plain"
    if repeats is not None:
        seen, runs = observed("plain", repeats), folder / "runs"
        recording.write(runs, seen.about, seen.stages, seen.runs)
    asked = Asked(
        folders=(runs,),
        hardware=str(CPU),
        transformer="smollm2-135m",
        engine="vllm_cpu_0.32",
        loads=tuple(map(float, FITTED_ON)),
    )
    found = calibrate(asked)
    written = files.write(found, folder / "live.yaml", "tests/live_cases.py")
    return found, written[0]


def compared(kind: str, scenario: Path, repeats: int | None = None) -> Comparison:
    """A server beside its prediction, acceptance as its requests had it."""
    band = ["run.band=true" if repeats is None else "run.band=false"]
    return compare(observed(kind, repeats), load_scenario(scenario, band), repeat=True)


def mape(comparison: Comparison, loads: Sequence[int], metric: str) -> float:
    """Mean absolute relative error over some loads."""
    errors = [
        row.scores[metric].relative for row in comparison.rows if row.point["concurrency"] in loads
    ]
    return float(np.mean([abs(one) for one in errors if one is not None]))


def speedups(plain: Comparison, other: Comparison) -> list[Speedup]:
    """Ratios of tokens a second at every load, repeat by repeat."""
    found = []
    for load in LADDER:
        rates = [_rates(one.observation, load) for one in (plain, other)]
        base, own = (_predicted(one, load) for one in (plain, other))
        # Medusa had fewer repeats, the first of all.
        ratios = tuple(b / a for a, b in zip(*rates, strict=False))
        found.append(Speedup(load, ratios, own / base))
    return found


def _rates(seen: Observation, load: int) -> list[float]:
    """Tokens a second of each repeat."""
    found = []
    for stage, run in zip(seen.stages, seen.runs, strict=True):
        if stage.point["concurrency"] == load:
            rate = tok_per_s(run.columns, whole_run(run.columns))
            assert rate is not None
            found.append(rate)
    return found


def _predicted(comparison: Comparison, load: int) -> float:
    (row,) = [row for row in comparison.rows if row.point["concurrency"] == load]
    value = row.scores["tok_per_s"].predicted
    assert value is not None
    return value
