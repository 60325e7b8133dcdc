"""Recorded stages beside the simulator: the same figures of both, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.live.knobs import Factors, Rows, Serving
from calibration.live.recording import Stage
from calibration.live.replay import replayed
from models import catalog
from models.strategies import Strategy
from sim.analysis import metrics
from sim.engine.simulate import simulate
from sim.kernel_rows import read_kernels
from sim.run_tables import request_columns
from sim.scenario.build import Deployment, build
from sim.scenario.requests import Requests
from sim.scenario.schema import Scenario
from sim.scenario.workload import generate
from sim.setup import prepare
from sim.tables import Columns, RunTable, to_columns

Floats = NDArray[np.float64]

PROMPT_GROUPS = 3
"""Requests of a stage are parted by prompt length: what a prompt costs shows between them."""

FLOOR = {"tpot_s": 0.03, "ttft_s": 0.05}
"""Least relative error of a mean: the model's own, assumed as small as it is on published runs."""


class Figure(NamedTuple):
    """A mean over some requests of a stage.

    Attributes
    ----------
    metric : str
        ``tpot_s`` or ``ttft_s``.
    rows : ndarray
        Places of the requests among those answered, in the order they were sent.
    value_s : float
        Measured [s].
    error : float
        Its relative standard error, model error included.
    """

    metric: str
    rows: NDArray[np.intp]
    value_s: float
    error: float


@dataclass(frozen=True)
class Case:
    """A recorded stage, and all it takes to simulate it.

    Attributes
    ----------
    stage : Stage
    figures : tuple of Figure
    deployment : Deployment
    strategy : Strategy
    requests : Requests
    seed : int
    """

    stage: Stage
    figures: tuple[Figure, ...]
    deployment: Deployment
    strategy: Strategy
    requests: Requests
    seed: int

    @classmethod
    def of(
        cls, scenario: Scenario, strategy: Strategy, stage: Stage, run: RunTable, folder: Path
    ) -> Case:
        """A stage as it is simulated; see ``replayed``."""
        replay = replayed(scenario, stage, run, folder)
        kept = metrics.select(run.columns, metrics.finished(run.columns))
        order = np.lexsort((kept["id"], kept["arrival_s"]))
        requests = generate(replay.workload, replay.run.seed, 0)
        figures = figures_of(metrics.select(kept, order))
        return cls(stage, figures, build(replay), strategy, requests, replay.run.seed)

    def measured(self) -> Floats:
        """Its figures [s]."""
        return np.array([figure.value_s for figure in self.figures])

    def predicted(self, serving: Serving, factors: Factors) -> Floats:
        """The same figures as the simulator has them with moved constants [s]."""
        columns = self.simulated(serving, factors)
        values = {name: metrics.LATENCIES[name](columns) for name in FLOOR}
        return np.array([np.nanmean(values[one.metric][one.rows]) for one in self.figures])

    def simulated(self, serving: Serving, factors: Factors) -> Columns:
        """The request table of the stage as it is simulated."""
        moved = serving.moved(factors, self.strategy.kind)
        deployment = replace(
            self.deployment,
            profile=moved.profile,
            engine=moved.engine,
            kernel_table=moved.table if self.deployment.kernel_table is not None else None,
        )
        setup = prepare(deployment, self.strategy, self.requests.domain_names)
        recorder = simulate(setup.plan(), self.requests, self.seed)
        return request_columns(recorder, self.requests)


def figures_of(columns: Columns) -> tuple[Figure, ...]:
    """Mean TPOT of a stage, and mean TTFT by prompt length.

    Parameters
    ----------
    columns : Columns
        Requests that were answered, in the order they were sent.
    """
    tpot, ttft = metrics.tpot_s(columns), metrics.ttft_s(columns)
    several = np.flatnonzero(~np.isnan(tpot))
    by_length = np.argsort(columns["prompt_tokens"], kind="stable")
    groups = [np.sort(part) for part in np.array_split(by_length, PROMPT_GROUPS) if part.size]
    found = [_figure("tpot_s", several, tpot)] if several.size else []
    return (*found, *(_figure("ttft_s", rows, ttft) for rows in groups))


def _figure(metric: str, rows: NDArray[np.intp], values: Floats) -> Figure:
    own = values[rows]
    mean = float(own.mean())
    spread = float(own.std(ddof=1)) / (mean * own.size**0.5) if own.size > 1 else 1.0
    return Figure(metric, rows, mean, float(np.hypot(spread, FLOOR[metric])))


def serving_of(scenario: Scenario, deployment: Deployment) -> Serving:
    """Device and engine of a scenario, before anything is fitted."""
    return Serving(
        deployment.accelerator,
        deployment.profile,
        deployment.engine,
        deployment.target,
        deployment.weights,
        deployment.kv,
        deployment.tp,
        _rows(scenario, deployment),
    )


def _rows(scenario: Scenario, deployment: Deployment) -> Rows | None:
    if deployment.kernel_table is None:
        return None
    name = scenario.hardware.profile or deployment.profile.name
    file = catalog.table_file(name, deployment.profile)
    assert file is not None
    table = read_kernels(file)
    columns = to_columns(table)
    used = columns["flag"] == ""
    return {key: values[used] for key, values in columns.items()}


def measured(cases: Sequence[Case]) -> Floats:
    """Figures of all stages, one after another [s]."""
    return np.concatenate([case.measured() for case in cases])


def errors(cases: Sequence[Case]) -> Floats:
    """Their relative standard errors."""
    return np.array([figure.error for case in cases for figure in case.figures])


def predicted(cases: Sequence[Case], serving: Serving, factors: Factors) -> Floats:
    """The same figures from the simulator [s]."""
    return np.concatenate([case.predicted(serving, factors) for case in cases])
