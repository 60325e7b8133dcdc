"""Run a scenario: every point, strategy and replication, and the rows that compare them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from models.residuals import Residuals
from models.strategies import Strategy
from sim import resources
from sim.analysis import describe
from sim.analysis.streams import Kind
from sim.analysis.summary import measure
from sim.analysis.verdict import verdict
from sim.band import step_scale
from sim.break_even import Operating, break_even_tau, operating_point
from sim.collect import Collector, KeptTables, Tables
from sim.compare import Ends, add_regret, bands, speedup
from sim.document import Row, document_of
from sim.engine.recorder import Recorder
from sim.engine.simulate import simulate
from sim.histogram import LogHistogram
from sim.progress import OnProgress, Progress
from sim.refusals import counted
from sim.run_tables import request_columns, timeline_columns
from sim.scenario import dump
from sim.scenario.build import build
from sim.scenario.load import Point, ScenarioFile, covered
from sim.scenario.requests import Requests
from sim.scenario.schema import Scenario
from sim.scenario.workload import generate, request_count
from sim.setup import Setup, prepare
from sim.switching import Modes, mode_row, mode_tables
from sim.tables import Columns, RunTable


@dataclass(frozen=True)
class Result:
    """What ``run`` returns.

    Attributes
    ----------
    document : dict
        The JSON document of ``speccast run --json``.
    requests, steps, timelines, modes, switches : list of RunTable
        Tables of every run; steps only where they were asked for, modes and switches of
        strategies that switch.
    """

    document: dict[str, Any]
    requests: list[RunTable] = field(default_factory=list)
    steps: list[RunTable] = field(default_factory=list)
    timelines: list[RunTable] = field(default_factory=list)
    modes: list[RunTable] = field(default_factory=list)
    switches: list[RunTable] = field(default_factory=list)


class Interrupted(KeyboardInterrupt):
    """The run was stopped on the way.

    Attributes
    ----------
    result : Result
        What was simulated until then: a row for each strategy that is complete, its bands
        included; the tables of all runs, the last of which may hold unfinished requests.
    """

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


class Served(NamedTuple):
    """All replications of one strategy at one point and one scale."""

    runs: list[Columns]
    recorders: list[Recorder]
    row: Row


def run(
    scenario_file: ScenarioFile,
    on_progress: OnProgress | None = None,
    keep_steps: bool = False,
    tables: Sequence[Tables] | None = None,
    rows: Sequence[Row] = (),
    residuals: Residuals | None = None,
) -> Result:
    """Simulate every point, strategy and replication of a scenario file.

    Parameters
    ----------
    scenario_file : ScenarioFile
    on_progress : callable, optional
        Called with (what runs, requests done, requests in all), first before anything is done. It
        may raise KeyboardInterrupt to end the run: nothing is torn there.
    keep_steps : bool
        Keep a row a step in ``Result.steps``.
    tables : sequence of Tables, optional
        Who takes the tables of each run as it ends; ``Result`` then holds none.
    rows : sequence of dict
        Rows of the first points, all strategies of each, that need not be simulated again.
    residuals : Residuals, optional
        What the bands carry in place of the catalogue's residuals.

    Raises
    ------
    Interrupted
        On KeyboardInterrupt, if a request was finished before it.
    """
    kept = KeptTables(keep_steps)
    collector = Collector([kept] if tables is None else tables)
    points = scenario_file.points[covered(scenario_file, len(rows)) :]
    progress = Progress(on_progress, sum(_requests(point.scenario) for point in points))
    made: list[dict[int, Row]] = [dict(enumerate(rows))]
    interrupted = False
    try:
        for point in points:
            made.append({})
            for index, row in _rows(point, progress, collector, residuals):
                made[-1][index] = row
    except KeyboardInterrupt:
        if not collector.finished:
            raise
        interrupted = True
    for point, at_point in zip(points, made[1:], strict=False):
        add_regret(at_point, point.scenario.strategies)
    complete = [at_point[index] for at_point in made for index in sorted(at_point)]
    document = document_of(scenario_file, complete, interrupted)
    tables_kept = kept.requests, kept.steps, kept.timelines, kept.modes, kept.switches
    result = Result(document, *tables_kept)
    if interrupted:
        raise Interrupted(result)
    return result


def _requests(scenario: Scenario) -> int:
    """Requests to simulate at one point: every strategy, replication and end of the band."""
    run = scenario.run
    counts = [request_count(scenario.workload, run.seed, r) for r in range(run.replications)]
    if run.band:
        counts += counts[:1] * (2 if run.replications == 1 else 3)
    return len(scenario.strategies) * sum(counts)


def _rows(
    point: Point, progress: Progress, collector: Collector, residuals: Residuals | None
) -> Iterator[tuple[int, Row]]:
    """Index and row of each strategy as it is complete, plain decoding first."""
    scenario = point.scenario
    deployment = build(scenario)
    if residuals is not None:
        deployment = replace(deployment, residuals=residuals)
    replications = range(scenario.run.replications)
    workloads = [generate(scenario.workload, scenario.run.seed, r) for r in replications]
    comparison = _Comparison(point, workloads, progress)
    baseline = scenario.baseline
    for index in sorted(range(len(scenario.strategies)), key=lambda i: i != baseline):
        strategy = scenario.strategies[index]
        setup = prepare(deployment, strategy, workloads[0].domain_names)
        served = _serve(setup, point, workloads, progress, collector)
        at = operating_point(served.recorders, served.runs, setup)
        row = {
            "strategy": strategy.name,
            "point": dict(point.values),
            "baseline": None if baseline is None else index == baseline,
            "hypothetical": setup.hypothetical,
            **served.row,
            **resources.memory(setup, served.recorders),
            "step_s": resources.decode_step(setup, at),
            "outside": resources.beyond(setup, served.recorders, served.runs, at),
            "rejected_because": counted(recorder.log.refusals for recorder in served.recorders),
            "tau_max": strategy.depth + 1,
            "usd_per_million_tokens": resources.cost(deployment, served.row["tok_per_s_per_gpu"]),
            "acceptance_entries": acceptance_entries(strategy),
        }
        comparison.complete(row, setup, at)
        row["verdict"] = verdict(row)
        yield index, row


class _Comparison:
    """Adds to each row what compares it with plain decoding, which comes first if it runs."""

    def __init__(self, point: Point, workloads: list[Requests], progress: Progress) -> None:
        self._point, self._workloads, self._progress = point, workloads, progress
        self._open_loop = workloads[0].users is None
        self._baseline: tuple[dict[str, Any], Setup, Operating | None] | None = None

    def complete(self, row: dict[str, Any], setup: Setup, at: Operating | None) -> None:
        if self._baseline is None:
            self._baseline = row, setup, at
        compared = self._point.scenario.baseline is not None
        plain_row, plain_setup, plain_at = self._baseline
        plain_row = plain_row if compared else row
        row["speedup"] = speedup(row, plain_row, self._open_loop)
        users = self._workloads[0].users
        each = users and users / setup.deployment.replicas
        row["break_even_tau"] = (
            break_even_tau(setup, row["tau"], at, plain_setup, plain_at, each) if compared else None
        )
        row["band"] = (
            self._bands(row, setup, at, plain_row) if self._point.scenario.run.band else {}
        )

    def _bands(
        self, row: dict[str, Any], setup: Setup, at: Operating | None, plain: dict[str, Any]
    ) -> dict[str, Any]:
        scale = step_scale(setup, at.query_tokens if at else setup.rules.width)
        first = self._workloads[:1]

        def again(factor: float) -> dict[str, Any]:
            return _serve(setup, self._point, first, self._progress, Collector(), factor).row

        middle = row if len(self._workloads) == 1 else again(1.0)
        ends = Ends(middle, again(scale.lo), again(scale.hi))
        return bands(row, plain, ends, scale, setup, self._open_loop)


def _serve(
    setup: Setup,
    point: Point,
    workloads: list[Requests],
    progress: Progress,
    collector: Collector,
    scale: float = 1.0,
) -> Served:
    scenario, name = point.scenario, setup.strategy.name
    plan, seed = setup.plan(scale), scenario.run.seed
    recorders, runs, modes = [], [], list[Modes]()
    for replication, requests in enumerate(workloads):
        names = requests.stream_names, requests.domain_names
        ran = RunTable(point.values, name, replication, {}, *names)
        recorder = simulate(
            plan,
            requests,
            acceptance_seed(seed, replication),
            on_steps=collector.steps_of(ran),
            on_progress=progress.of(
                " at ".join(filter(None, (name, describe.point(point.values))))
            ),
        )
        progress.advance(len(requests))
        recorders.append(recorder)
        runs.append(request_columns(recorder, requests))
        switching = mode_tables(recorder, setup.strategy)
        modes += [switching] if switching else []
        timeline = timeline_columns(recorder, setup.budget.n_blocks)
        collector.end(ran, runs[-1], timeline, switching)
        if recorder.interrupted:
            raise KeyboardInterrupt
    row = _measured(setup, scenario, workloads[0].users is None, recorders, runs)
    row |= mode_row(setup.strategy, recorders, modes, runs, workloads[0].stream_names)
    return Served(runs, recorders, row)


def _measured(
    setup: Setup,
    scenario: Scenario,
    open_loop: bool,
    recorders: list[Recorder],
    runs: list[Columns],
) -> dict[str, Any]:
    return measure(
        runs,
        LogHistogram.merged(recorder.itl for recorder in recorders),
        gpus=setup.deployment.gpus,
        open_loop=open_loop,
        warmup=scenario.run.warmup,
        slo=dump.plain(scenario.slo),
        streams=[Kind(stream.name, stream.slo_class) for stream in scenario.workload.streams],
        domains=scenario.workload.domain_names,
        stationary=scenario.stationary,
        window_s=scenario.run.window_s,
    )


def acceptance_seed(seed: int, replication: int) -> int:
    """A stream of its own for every replication, shared by all strategies."""
    return int(np.random.SeedSequence(seed, spawn_key=(replication, 0xACCE)).generate_state(1)[0])


def acceptance_entries(strategy: Strategy) -> list[str]:
    """Catalogue entries the acceptance of a strategy rests on, of all its modes and domains."""
    stated = (part.resolved_acceptance() for part in strategy.parts.values())
    return sorted({name for acceptance in stated if acceptance for name in acceptance.entries})
