"""What a scenario predicts of one recorded stage: the same requests, simulated."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from calibration.live.recording import Stage
from calibration.live.replay import replayed
from models.strategies import Strategy
from sim import experiment
from sim.analysis.timeline import course
from sim.progress import OnProgress
from sim.scenario.load import Point, ScenarioFile
from sim.tables import Columns, RunTable

RATES = {"tok_per_s_per_gpu": "tok_per_s"}
"""Bands of rates, and the name of what they are relative to here."""


class Ends(NamedTuple):
    """A band, relative to the prediction; an end may be open."""

    lo: float | None
    hi: float | None
    level: float
    basis: str


class Prediction(NamedTuple):
    """One stage, simulated.

    Attributes
    ----------
    columns : Columns
        Its request table.
    kv_use : float or None
        Mean share of the KV blocks in use, over time and replicas.
    bands : dict of Ends
        By metric: ``ttft_s``, ``tpot_s``, ``e2e_s`` (of the mean) and ``tok_per_s``.
    saturated : bool
        It cannot keep up with the arrivals.
    """

    columns: Columns
    kv_use: float | None
    bands: dict[str, Ends]
    saturated: bool


def predict(
    file: ScenarioFile,
    strategy: Strategy,
    stage: Stage,
    run: RunTable,
    band: bool,
    on_progress: OnProgress | None = None,
) -> Prediction:
    """Simulate the requests of a stage, sent as they were.

    Parameters
    ----------
    file : ScenarioFile
        Of one deployment; its workload gives way to the stage's.
    strategy : Strategy
        The one of its strategies to simulate.
    stage, run
        What was recorded.
    band : bool
        Also simulate both ends of the band.
    on_progress : callable, optional
        As for ``sim.experiment.run``.
    """
    scenario = file.points[0].scenario
    # Repeats differ in what is accepted, as they did when they were measured.
    seed = scenario.run.seed + stage.replication
    settings = {"seed": seed, "replications": 1, "band": band, "baseline": False}
    alone = scenario.model_copy(
        update={
            "strategies": (strategy,),
            "run": scenario.run.model_copy(update=settings),
        }
    )
    with tempfile.TemporaryDirectory(prefix="speccast.") as folder:
        made = replayed(alone, stage, run, Path(folder))
        point = Point(dict(stage.point), made)
        result = experiment.run(replace(file, points=(point,), resolved=made), on_progress)
    (row,), (requests,) = result.document["rows"], result.requests
    in_use = [course(table.columns, "kv_use", 1).values for table in result.timelines]
    known = [float(values[0]) for values in in_use if values.size]
    return Prediction(requests.columns, known[0] if known else None, _bands(row), row["saturated"])


def _bands(row: Mapping[str, Any]) -> dict[str, Ends]:
    found = {}
    for name, band in row["band"].items():
        value = row[name] if name in RATES else (row.get(name) or {}).get("mean")
        if name == "speedup" or not value:
            continue
        lo, hi = (None if band[end] is None else band[end] / value for end in ("lo", "hi"))
        found[RATES.get(name, name)] = Ends(lo, hi, band["level"], band["basis"])
    return found
