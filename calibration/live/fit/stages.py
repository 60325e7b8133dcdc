"""Recorded stages beside the simulator: the same figures of both, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from calibration.live.fit.knobs import Factors, Rows, Serving
from calibration.live.recording import Stage
from calibration.live.replay import in_order, replayed
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
from sim.setup import Setup, prepare
from sim.tables import Columns, RunTable, to_columns

Floats = NDArray[np.float64]

PROMPT_GROUPS = 3
"""Requests of a stage are parted by prompt length: what a prompt costs shows between them."""

FLOOR = {"tpot_s": 0.03, "ttft_s": 0.05}
"""Least relative error of a mean: the model's own, assumed as small as it is on published runs."""

ALONE = 0.3
"""Relative error of a single request: assumed."""

ONE_SIGMA = 0.8413447460685429
"""Share of a normal distribution below one standard deviation."""


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
    """

    metric: str
    rows: NDArray[np.intp]
    value_s: float

    def of(self, columns: Columns) -> float:
        """The same mean of another table of these requests [s]."""
        return float(metrics.LATENCIES[self.metric](columns)[self.rows].mean())

    def ratios(self, measured: Columns, simulated: Columns) -> Floats:
        """Logarithms of measured over simulated, a request each."""
        latency = metrics.LATENCIES[self.metric]
        return np.log(latency(measured)[self.rows] / latency(simulated)[self.rows])


@dataclass(frozen=True)
class Case:
    """A recorded stage, and all it takes to simulate it.

    Attributes
    ----------
    stage : Stage
    columns : Columns
        Its answered requests, in the order they were sent.
    figures : tuple of Figure
    deployment : Deployment
    strategy : Strategy
    requests : Requests
    seed : int
    """

    stage: Stage
    columns: Columns
    figures: tuple[Figure, ...]
    deployment: Deployment
    strategy: Strategy
    requests: Requests
    seed: int

    @classmethod
    def of(
        cls, scenario: Scenario, strategy: Strategy, stage: Stage, run: RunTable, folder: Path
    ) -> Case:
        """A stage as it is simulated, its acceptance as recorded; see ``replayed``."""
        replay = replayed(scenario, stage, run, folder, repeat=True)
        sent = in_order(metrics.select(run.columns, metrics.finished(run.columns)))
        requests = generate(replay.workload, replay.run.seed, 0)
        own = replay.strategies[scenario.strategies.index(strategy)]
        return cls(stage, sent, figures_of(sent), build(replay), own, requests, replay.run.seed)

    def setup(self, serving: Serving) -> Setup:
        """Strategy and deployment with these constants, ready to run."""
        table = serving.table if self.deployment.kernel_table is not None else None
        deployment = replace(
            self.deployment, profile=serving.profile, engine=serving.engine, kernel_table=table
        )
        return prepare(deployment, self.strategy, self.requests.domain_names)

    def simulated(self, setup: Setup) -> Columns:
        """The request table of the stage as it is simulated."""
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
    several = np.flatnonzero(tpot > 0)
    by_length = np.argsort(columns["prompt_tokens"], kind="stable")
    groups = [np.sort(part) for part in np.array_split(by_length, PROMPT_GROUPS) if part.size]
    found = [Figure("tpot_s", several, float(tpot[several].mean()))] if several.size else []
    return (*found, *(Figure("ttft_s", rows, float(ttft[rows].mean())) for rows in groups))


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


@dataclass(frozen=True)
class Pool:
    """The repeats of one figure: the same load, the same strategy, the same group of requests.

    Attributes
    ----------
    name : str
        Load and metric, as ``concurrency=4 tpot_s``.
    members : tuple of (int, int)
        Case and figure of each repeat.
    floor : float
        Least relative error, which repeats do not make smaller.
    """

    name: str
    metric: str
    members: tuple[tuple[int, int], ...]
    floor: float


def pools(cases: Sequence[Case]) -> tuple[Pool, ...]:
    """Repeats put together. Groups of prompts of one load share one error of the model."""
    found: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for c, case in enumerate(cases):
        seen = dict.fromkeys(FLOOR, 0)
        for f, figure in enumerate(case.figures):
            key = f"{case.strategy.name} {case.stage.name}", figure.metric, seen[figure.metric]
            seen[figure.metric] += 1
            found.setdefault(key, []).append((c, f))
    groups = {(load, metric): place + 1 for load, metric, place in found}
    return tuple(
        Pool(f"{load} {metric}", metric, tuple(own), FLOOR[metric] * groups[load, metric] ** 0.5)
        for (load, metric, _), own in found.items()
    )


class Seen(NamedTuple):
    """Every pool at some constants.

    Attributes
    ----------
    ratios : ndarray, shape (pools,)
        Mean logarithm of measured over simulated means.
    errors : ndarray, shape (pools,)
        Their standard errors, that of the model included.
    """

    ratios: Floats
    errors: Floats


def seen(cases: Sequence[Case], pooled: Sequence[Pool], serving: Serving, factors: Factors) -> Seen:
    """Simulate all stages with moved constants, and compare request by request.

    What makes one request longer than another, as its prompt, is in the simulation as well: the
    error of a mean comes from the ratios of single requests.
    """
    tables = tables_of(cases, serving.moved(factors))
    ratios, errors = [], []
    for pool in pooled:
        means, single = [], []
        for c, f in pool.members:
            figure, table = cases[c].figures[f], tables[c]
            means.append(np.log(figure.value_s / figure.of(table)))
            single.append(figure.ratios(cases[c].columns, table))
        ratios.append(float(np.mean(means)))
        errors.append(float(np.hypot(_spread(single), pool.floor)))
    return Seen(np.array(ratios), np.array(errors))


def tables_of(cases: Sequence[Case], serving: Serving) -> list[Columns]:
    """Every stage simulated; repeats of a strategy are prepared once."""
    setups: dict[str, Setup] = {}
    tables = []
    for case in cases:
        key = case.strategy.model_dump_json() + str(case.requests.domain_names)
        if key not in setups:
            setups[key] = case.setup(serving)
        tables.append(case.simulated(setups[key]))
    return tables


def _spread(groups: Sequence[Floats]) -> float:
    """Standard error of the mean of single ratios; of few requests it is larger than it looks."""
    ratios = np.concatenate([one - one.mean() for one in groups])
    freedom = ratios.size - len(groups)
    if freedom < 1:
        return ALONE
    spread = float(np.sqrt((ratios**2).sum() / freedom / ratios.size))
    return spread * float(stats.t.ppf(ONE_SIGMA, freedom))
