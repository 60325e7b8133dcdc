"""How far predictions are from a recorded run: by point, by metric, and in one figure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from calibration.live import remarks
from calibration.live.compare.predict import Ends
from calibration.live.recording import Observation
from sim.analysis.metrics import QUANTILES, finished
from sim.scenario.load import ScenarioFile

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
STATISTICS = ("mean", *QUANTILES)
METRICS = (
    *(f"{latency}_{statistic}" for latency in LATENCIES for statistic in STATISTICS),
    *("tok_per_s", "tau", "kv_use"),
)
OVERALL = ("ttft_s_mean", "tpot_s_mean", "e2e_s_mean", "tok_per_s")
"""What the one figure averages over: each is known of every server, and of equal weight."""

Values = dict[str, float | None]


class Score(NamedTuple):
    """One metric at one point.

    Attributes
    ----------
    measured, predicted : float or None
        Pooled over repeats; None where there is none.
    least, most : float or None
        Of the repeats measured; None of a single one.
    lo, hi : float or None
        The band of the prediction; None where it has none, or an open end.
    """

    measured: float | None
    predicted: float | None
    least: float | None = None
    most: float | None = None
    lo: float | None = None
    hi: float | None = None

    @property
    def relative(self) -> float | None:
        """Predicted / measured - 1."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the band holds what was measured; None without a band."""
        if self.measured is None or (self.lo is None and self.hi is None):
            return None
        above = self.lo is None or self.measured >= self.lo
        return above and (self.hi is None or self.measured <= self.hi)


class Compared(NamedTuple):
    """All repeats of one point.

    Attributes
    ----------
    point : dict
        As of its stages.
    requests : dict
        Measured requests by status.
    repeats, late : int
        Stages pooled, and requests in them sent later than due.
    tau_from : str or None
        Where the measured tau is from: ``requests``, ``counters`` or ``gauge`` of the server.
    saturated : bool
        It is predicted that the server cannot keep up.
    scores : dict of Score
        By ``METRICS``.
    spread : Values
        Mean relative distance of a repeat from all, for each of ``OVERALL``.
    band : Ends or None
        Gives level and basis of the bands.
    """

    point: dict[str, Any]
    requests: dict[str, int]
    repeats: int
    late: int
    tau_from: str | None
    saturated: bool
    scores: dict[str, Score]
    spread: Values
    band: Ends | None

    def document(self) -> dict[str, Any]:
        """The same as plain data."""
        band = self.band
        return {
            "point": self.point,
            "repeats": self.repeats,
            "requests": self.requests,
            "late": self.late,
            "saturated": self.saturated,
            "tau_from": self.tau_from,
            "band": band and {"level": band.level, "basis": band.basis},
            "metrics": {
                name: {**score._asdict(), "relative": score.relative}
                for name, score in self.scores.items()
            },
        }


class Comparison(NamedTuple):
    """What ``compare`` found; ``strategy`` is the name of the one simulated."""

    observation: Observation
    file: ScenarioFile
    strategy: str
    rows: tuple[Compared, ...]

    def mape(self, metric: str) -> float | None:
        """Mean absolute relative error of a metric over the points; None where none has both."""
        return mean_size(row.scores[metric].relative for row in self.rows)

    @property
    def overall(self) -> float | None:
        """Mean absolute relative error over the points and the metrics of ``OVERALL``."""
        return mean_size(row.scores[name].relative for row in self.rows for name in OVERALL)

    @property
    def spread(self) -> float | None:
        """Mean relative distance of a repeat from all repeats of its point, likewise."""
        return mean_size(row.spread[name] for row in self.rows for name in OVERALL)

    @property
    def unanswered(self) -> list[str]:
        """Loads at which no request was answered at all, by name; they are not compared."""
        runs = list(zip(self.observation.stages, self.observation.runs, strict=True))
        named = dict.fromkeys(stage.name for stage, _ in runs)
        answered = {stage.name for stage, run in runs if finished(run.columns).any()}
        return [name for name in named if name not in answered]

    @property
    def left_out(self) -> list[str]:
        """Stages that are not compared for requests without an answer, with how many have one."""
        return remarks.left_out(self.observation.stages, self.observation.runs)

    @property
    def missing(self) -> list[tuple[dict[str, Any], str]]:
        """Points and metrics of ``OVERALL`` that were measured and are not predicted."""
        return [
            (row.point, name)
            for row in self.rows
            for name in OVERALL
            if row.scores[name].measured and row.scores[name].predicted is None
        ]

    def _predicted_on(self) -> dict[str, Any]:
        """Hardware, model and engine of the scenario, by name."""
        scenario = self.file.points[0].scenario
        hardware, model = scenario.hardware, scenario.model
        return {
            "hardware": Path(hardware.profile).stem if hardware.profile else hardware.gpu,
            "transformer": Path(model.transformer).name,
            "tp": model.tp,
            "engine": Path(scenario.engine.name).stem
            if scenario.engine.name.endswith((".yaml", ".yml"))
            else scenario.engine.name,
        }

    def document(self) -> dict[str, Any]:
        """What ``speccast compare --json`` prints; also what the figure is drawn from."""
        about = self.observation.about
        inside = [score.inside for row in self.rows for score in row.scores.values()]
        return {
            "runs": str(self.observation.folder),
            "scenario": self.file.document.path,
            **{key: about.get(key) for key in ("target", "machine", "date", "mode", "server")},
            "predicted_on": self._predicted_on(),
            "strategy": {"measured": self.observation.label, "predicted": self.strategy},
            "rows": [row.document() for row in self.rows],
            "unanswered": self.unanswered,
            "left_out": self.left_out,
            "cached": remarks.cached(self.observation.stages, self.observation.runs),
            "mape": {
                "overall": self.overall,
                "over": list(OVERALL),
                "metrics": {name: self.mape(name) for name in METRICS},
            },
            "repeats_differ": self.spread,
            "within_band": {"inside": inside.count(True), "of": len(inside) - inside.count(None)},
        }


def mean_size(errors: Iterable[float | None]) -> float | None:
    """Mean absolute value of the errors that are known; None where none is."""
    known = [abs(error) for error in errors if error is not None]
    return fmean(known) if known else None
