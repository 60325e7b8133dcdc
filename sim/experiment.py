"""Run a scenario: every point, strategy and replication, and the rows that compare them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from models.acceptance import Acceptance
from sim.analysis.summary import measure
from sim.analysis.verdict import verdict
from sim.band import step_scale
from sim.break_even import Operating, break_even_tau, operating_point
from sim.compare import Ends, bands, speedup
from sim.engine.recorder import Recorder
from sim.engine.simulate import simulate
from sim.histogram import LogHistogram
from sim.run_tables import request_columns, step_columns
from sim.scenario import dump
from sim.scenario.build import Deployment, build
from sim.scenario.load import Point, ScenarioFile
from sim.scenario.requests import Requests
from sim.scenario.schema import Scenario
from sim.scenario.workload import generate
from sim.setup import Setup, prepare
from sim.tables import Columns, RunTable

OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Result:
    """What ``run`` returns.

    Attributes
    ----------
    document : dict
        The JSON document of ``speccast run --json``.
    requests, steps : list of RunTable
        Tables of every run; steps only where they were asked for.
    """

    document: dict[str, Any]
    requests: list[RunTable] = field(default_factory=list)
    steps: list[RunTable] = field(default_factory=list)


class Served(NamedTuple):
    """All replications of one strategy at one point and one scale."""

    runs: list[Columns]
    recorders: list[Recorder]
    row: dict[str, Any]


class _Progress:
    def __init__(self, report: OnProgress | None, total: int) -> None:
        self._report, self._total, self._before = report, total, 0

    def of(self, label: str) -> Callable[[int, int], None] | None:
        if self._report is None:
            return None
        report, before = self._report, self._before

        def update(done: int, total: int) -> None:
            report(label, before + done, self._total)

        return update

    def advance(self, requests: int) -> None:
        self._before += requests


def run(
    scenario_file: ScenarioFile, on_progress: OnProgress | None = None, keep_steps: bool = False
) -> Result:
    """Simulate every point, strategy and replication of a scenario file.

    Parameters
    ----------
    scenario_file : ScenarioFile
    on_progress : callable, optional
        Called with (strategy, requests done, requests in all).
    keep_steps : bool
        Keep a row a step in ``Result.steps``.
    """
    runs = sum(
        _runs(point.scenario) * point.scenario.workload.expected_requests
        for point in scenario_file.points
    )
    progress = _Progress(on_progress, runs)
    result = Result({})
    rows: list[dict[str, Any]] = []
    for point in scenario_file.points:
        rows += _run_point(point, progress, keep_steps, result)
    first = build(scenario_file.points[0].scenario)
    if scenario_file.document.comment:
        result.document["question"] = scenario_file.document.comment
    result.document.update(
        scenario=first.shown(scenario_file.resolved),
        seed=scenario_file.resolved.run.seed,
        profile=first.profile.name,
        rows=rows,
    )
    return result


def _runs(scenario: Scenario) -> int:
    passes = scenario.run.replications
    if scenario.run.band:
        passes += 2 if passes == 1 else 3
    return len(scenario.strategies) * passes


def _run_point(
    point: Point, progress: _Progress, keep_steps: bool, result: Result
) -> list[dict[str, Any]]:
    scenario = point.scenario
    deployment = build(scenario)
    replications = range(scenario.run.replications)
    workloads = [generate(scenario.workload, scenario.run.seed, r) for r in replications]
    comparison = _Comparison(scenario, workloads, progress)
    rows: dict[int, dict[str, Any]] = {}
    for index in sorted(range(len(scenario.strategies)), key=lambda i: i != scenario.baseline):
        strategy = scenario.strategies[index]
        setup = prepare(deployment, strategy, workloads[0].domain_names)
        served = _serve(setup, scenario, workloads, progress, keep_steps)
        row = {
            "strategy": strategy.name,
            "point": dict(point.values),
            "baseline": index == scenario.baseline,
            "hypothetical": setup.hypothetical,
            **served.row,
            **_memory(setup, served.recorders),
            "rejected_because": _refusals(served.recorders),
            "tau_max": strategy.depth + 1,
            "usd_per_million_tokens": _cost(deployment, served.row["tok_per_s_per_gpu"]),
            "acceptance_entries": entries_of(strategy.resolved_acceptance()),
        }
        comparison.complete(row, setup, operating_point(served.recorders, served.runs, setup))
        row["verdict"] = verdict(row)
        rows[index] = row
        _keep(result, point, strategy.name, workloads[0], served, keep_steps)
    return [rows[index] for index in sorted(rows)]


class _Comparison:
    """Adds to each row what compares it with plain decoding, which comes first."""

    def __init__(self, scenario: Scenario, workloads: list[Requests], progress: _Progress) -> None:
        self._scenario, self._workloads, self._progress = scenario, workloads, progress
        self._open_loop = workloads[0].users is None
        self._baseline: tuple[dict[str, Any], Setup, Operating | None] | None = None

    def complete(self, row: dict[str, Any], setup: Setup, at: Operating | None) -> None:
        if self._baseline is None:
            self._baseline = row, setup, at
        plain_row, plain_setup, plain_at = self._baseline
        row["speedup"] = speedup(row, plain_row, self._open_loop)
        users = self._workloads[0].users
        row["break_even_tau"] = break_even_tau(
            setup,
            row["tau"],
            at,
            plain_setup,
            plain_at,
            users and users / setup.deployment.replicas,
        )
        row["band"] = self._bands(row, setup, at, plain_row) if self._scenario.run.band else {}

    def _bands(
        self, row: dict[str, Any], setup: Setup, at: Operating | None, plain: dict[str, Any]
    ) -> dict[str, Any]:
        scale = step_scale(setup, at.query_tokens if at else setup.rules.width)
        first = self._workloads[:1]

        def again(factor: float) -> dict[str, Any]:
            return _serve(setup, self._scenario, first, self._progress, False, factor).row

        middle = row if len(self._workloads) == 1 else again(1.0)
        ends = Ends(middle, again(scale.lo), again(scale.hi))
        return bands(row, plain, ends, scale, setup, self._open_loop)


def _serve(
    setup: Setup,
    scenario: Scenario,
    workloads: list[Requests],
    progress: _Progress,
    keep_steps: bool,
    scale: float = 1.0,
) -> Served:
    plan, seed = setup.plan(scale), scenario.run.seed
    recorders, runs = [], []
    for replication, requests in enumerate(workloads):
        recorder = simulate(
            plan,
            requests,
            _acceptance_seed(seed, replication),
            keep_steps=keep_steps,
            on_progress=progress.of(setup.strategy.name),
        )
        progress.advance(len(requests))
        recorders.append(recorder)
        runs.append(request_columns(recorder, requests))
    row = measure(
        runs,
        LogHistogram.merged(recorder.itl for recorder in recorders),
        gpus=setup.deployment.gpus,
        open_loop=workloads[0].users is None,
        warmup=scenario.run.warmup,
        slo=dump.plain(scenario.slo),
    )
    return Served(runs, recorders, row)


def _acceptance_seed(seed: int, replication: int) -> int:
    """A stream of its own for every replication, shared by all strategies."""
    return int(np.random.SeedSequence(seed, spawn_key=(replication, 0xACCE)).generate_state(1)[0])


def _keep(
    result: Result,
    point: Point,
    strategy: str,
    requests: Requests,
    served: Served,
    keep_steps: bool,
) -> None:
    for replication, columns in enumerate(served.runs):
        named = RunTable(point.values, strategy, replication, columns, requests.stream_names)
        result.requests.append(named)
        if keep_steps:
            steps = step_columns(served.recorders[replication])
            result.steps.append(RunTable(point.values, strategy, replication, steps))


def _cost(deployment: Deployment, tok_per_s_per_gpu: float | None) -> float | None:
    """Price of a million output tokens at the rate served [USD]."""
    if not tok_per_s_per_gpu:
        return None
    return deployment.price_per_gpu_hour / (3600 * tok_per_s_per_gpu) * 1e6


def entries_of(acceptance: Acceptance | None) -> list[str]:
    """Catalogue entries an acceptance rests on, those of its domains included."""
    if acceptance is None:
        return []
    inner = (entries_of(part) for part in (acceptance.by_domain or {}).values())
    own = [acceptance.catalog] if acceptance.catalog else []
    return sorted({*own, *(name for names in inner for name in names)})


def _refusals(recorders: list[Recorder]) -> dict[str, int]:
    """Rejected requests by reason, over all replications."""
    counts: Counter[str] = Counter()
    for recorder in recorders:
        counts.update(recorder.log.refusals)
    return dict(sorted(counts.items()))


def _memory(setup: Setup, recorders: list[Recorder]) -> dict[str, Any]:
    """KV use at its peak, of the fullest replica; free bytes on each of its GPUs then."""
    peak = max(totals.blocks_peak for recorder in recorders for totals in recorder.totals)
    budget = setup.budget
    return {
        "kv_use_peak": peak / budget.n_blocks,
        "kv_free_bytes": (budget.n_blocks - peak) * budget.block_bytes,
        "kv_tokens": budget.n_blocks * setup.rules.block_tokens,
        "max_model_len": setup.rules.max_model_len,
    }
