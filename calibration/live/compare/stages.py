"""A recorded run against what a scenario predicts of it, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from calibration.live.compare.comparison import (
    LATENCIES,
    METRICS,
    OVERALL,
    STATISTICS,
    Compared,
    Comparison,
    Score,
    Values,
)
from calibration.live.compare.predict import Ends, Prediction, predict
from calibration.live.compare.served import as_recorded, served
from calibration.live.recording import Observation, Stage
from calibration.live.replay import usable
from calibration.live.server.emitted import tau_of_stages
from models.strict_yaml import InputError
from sim.analysis import metrics
from sim.analysis.metrics import finished
from sim.analysis.summary import measure
from sim.histogram import LogHistogram
from sim.progress import OnProgress
from sim.scenario.load import ScenarioFile
from sim.tables import Columns, RunTable


class Interrupted(KeyboardInterrupt):
    """Stopped on the way; ``comparison`` has the points complete by then."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison


def compare(
    observation: Observation,
    file: ScenarioFile,
    strategy: str | None = None,
    on_progress: OnProgress | None = None,
    repeat: bool = False,
) -> Comparison:
    """Predict every stage of an observation, and measure both by the same code.

    Each stage is simulated with its own requests. Repeats of a point are pooled: latencies over
    all their requests, rates as means.

    Parameters
    ----------
    observation : Observation
    file : ScenarioFile
        Of one deployment: its points may differ in workload alone, which is not used.
    strategy : str, optional
        Name of the strategy to simulate; default the one the server ran.
    on_progress : callable, optional
        As for ``sim.experiment.run``.
    repeat : bool
        Take the strategy from the observation instead, and repeat what was accepted of each
        request.

    Raises
    ------
    InputError
        If the file varies more than its workload, it is unclear which strategy to simulate, or no
        stage was answered well enough to be replayed.
    Interrupted
        On KeyboardInterrupt, if a point was complete before it.
    """
    _check_one_deployment(file)
    chosen = as_recorded(observation) if repeat else served(observation, file, strategy)
    band = file.points[0].scenario.run.band
    answered = _answered(observation)
    counted = _Counted(on_progress, sum(answered), band)
    rows: list[Compared] = []
    try:
        for stages, runs in _points(observation, answered):
            predicted = []
            for number, (stage, run) in enumerate(zip(stages, runs, strict=True)):
                # Bands of repeats hardly differ: that of the first stands for all.
                ends, report = band and number == 0, counted.of(stage.name)
                predicted.append(predict(file, chosen, stage, run, ends, report, repeat))
                counted.advance(int(finished(run.columns).sum()), ends)
            rows.append(_compared(stages, runs, predicted, chosen.kind))
    except KeyboardInterrupt:
        if not rows:
            raise
        raise Interrupted(Comparison(observation, file, chosen.name, tuple(rows))) from None
    return Comparison(observation, file, chosen.name, tuple(rows))


def _answered(observation: Observation) -> list[int]:
    """Answered requests of each stage; none of one that cannot be replayed as its load."""
    pairs = zip(observation.stages, observation.runs, strict=True)
    answered = [int(finished(run.columns).sum()) * usable(stage, run) for stage, run in pairs]
    if not any(answered):
        lost = [finished(run.columns) for run in observation.runs]
        what = "too few requests were" if any(one.any() for one in lost) else "no request was"
        raise InputError(str(observation.folder), None, "", f"{what} answered: nothing to compare")
    return answered


def _check_one_deployment(file: ScenarioFile) -> None:
    """Points may differ in workload alone, which gives way to the recorded one."""
    first = file.points[0].scenario
    for _, scenario in file.points[1:]:
        if scenario.model_copy(update={"workload": first.workload}) != first:
            what = "must vary the workload only, which is that of the recording: --set what else is"
            raise file.document.error("vary", what)


class _Counted:
    """Progress over all stages; a band is two runs more."""

    def __init__(self, report: OnProgress | None, requests: int, band: bool) -> None:
        self._report, self._total, self._done = report, requests * (3 if band else 1), 0

    def of(self, stage: str) -> OnProgress | None:
        report, before = self._report, self._done
        if report is None:
            return None

        def update(label: str, done: int, total: int) -> None:
            report(stage, before + done, self._total)

        return update

    def advance(self, requests: int, band: bool) -> None:
        self._done += requests * (3 if band else 1)


def _points(
    observation: Observation, answered: Sequence[int]
) -> Iterator[tuple[list[Stage], list[RunTable]]]:
    """Stages of one point and their tables, in the order points first occur.

    Stages of which too few requests were answered are left out.
    """
    stages, runs = observation.stages, observation.runs
    for name in dict.fromkeys(stage.name for stage in stages):
        places = [i for i, stage in enumerate(stages) if stage.name == name and answered[i]]
        if places:
            yield [stages[i] for i in places], [runs[i] for i in places]


def _compared(
    stages: Sequence[Stage], runs: Sequence[RunTable], predicted: Sequence[Prediction], kind: str
) -> Compared:
    tables = [run.columns for run in runs]
    measured, tau_from = _measured(tables, stages, kind)
    repeats = [_measured([t], [s], kind)[0] for t, s in zip(tables, stages, strict=True)]
    expected = _values([one.columns for one in predicted], [one.kv_use for one in predicted])
    bands = predicted[0].bands
    scores = {}
    for name in METRICS:
        known = [value for one in repeats if (value := one[name]) is not None]
        least, most = (min(known), max(known)) if len(known) > 1 else (None, None)
        lo, hi = _band(name, expected[name], bands)
        scores[name] = Score(measured[name], expected[name], least, most, lo, hi)
    return Compared(
        point=dict(stages[0].point),
        requests=metrics.counts(metrics.joined(tables)),
        repeats=len(stages),
        late=sum(stage.late for stage in stages),
        tau_from=tau_from,
        saturated=2 * sum(one.saturated for one in predicted) >= len(predicted),
        scores=scores,
        spread={name: _spread(measured[name], [one[name] for one in repeats]) for name in OVERALL},
        band=next(iter(bands.values()), None),
    )


def _measured(
    tables: Sequence[Columns], stages: Sequence[Stage], kind: str
) -> tuple[Values, str | None]:
    """Metrics of recorded stages of a kind of strategy, and where their tau is from."""
    use = [stage.gauges.get("kv_use", {}).get("mean") for stage in stages]
    values = _values(tables, use)
    if any(table["n_steps"].any() for table in tables):
        return values, "requests"
    counters, gauges = ([getattr(one, name) for one in stages] for name in ("counters", "gauges"))
    tau, source = tau_of_stages(counters, gauges, kind)
    return values | {"tau": tau}, source


def _values(tables: Sequence[Columns], kv_use: Sequence[float | None]) -> Values:
    """Every metric of one side; a stage has an end, so that its whole length counts."""
    row = measure(tables, LogHistogram(), gpus=1, open_loop=False, warmup=0.0)
    known = [value for value in kv_use if value is not None]
    return {
        **{f"{name}_{key}": row[name][key] for name in LATENCIES for key in STATISTICS},
        "tok_per_s": row["tok_per_s_per_gpu"],
        "tau": row["tau"],
        "kv_use": fmean(known) if known else None,
    }


def _band(
    name: str, value: float | None, bands: dict[str, Ends]
) -> tuple[float | None, float | None]:
    """Ends of the band of a metric; only means and rates have one."""
    ends = bands.get(name.removesuffix("_mean"))
    if ends is None or value is None:
        return None, None
    lo, hi = (None if end is None else end * value for end in ends[:2])
    return lo, hi


def _spread(pooled: float | None, repeats: Sequence[float | None]) -> float | None:
    known = [value for value in repeats if value is not None]
    if not pooled or len(known) < 2:
        return None
    return fmean(abs(value / pooled - 1) for value in known)
