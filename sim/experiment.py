"""Run a scenario: every point, strategy and replication, and the rows that compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sim.analysis.summary import measure
from sim.analysis.verdict import verdict
from sim.band import Scale, gain_band, latency_band, step_scale
from sim.engine.recorder import Recorder
from sim.engine.simulate import simulate
from sim.histogram import LogHistogram
from sim.scenario import dump
from sim.scenario.build import Deployment, build
from sim.scenario.load import Point, ScenarioFile
from sim.scenario.schema import Scenario
from sim.scenario.workload import Requests, generate
from sim.setup import Setup, prepare
from sim.tables import Columns, RunTable, Status

OnProgress = Callable[[str, int, int], None]

STATUS = {status.name.lower(): int(status) for status in Status}
BANDED = ("ttft_s", "tpot_s", "e2e_s")


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


class Operating(NamedTuple):
    """Where a strategy ran on average: sequences decoding, context each, query tokens each."""

    n: float
    context: float
    width: float


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
    runs = sum(_runs(point.scenario) * point.scenario.workload.requests for point in scenario_file.points)
    progress = _Progress(on_progress, runs)
    result = Result({})
    rows: list[dict[str, Any]] = []
    for point in scenario_file.points:
        rows += _run_point(point, progress, keep_steps, result)
    first = build(scenario_file.points[0].scenario)
    scenario = dump.plain(scenario_file.resolved)
    scenario["hardware"]["gpus"] = first.gpus
    scenario["model"]["replicas"] = first.replicas
    result.document.update(
        scenario=scenario,
        seed=scenario_file.resolved.run.seed,
        profile=first.profile.name,
        rows=rows,
    )
    return result


def _runs(scenario: Scenario) -> int:
    passes = scenario.run.replications + (2 if scenario.run.band else 0)
    return len(scenario.strategies) * passes


def _run_point(
    point: Point, progress: _Progress, keep_steps: bool, result: Result
) -> list[dict[str, Any]]:
    scenario = point.scenario
    deployment = build(scenario)
    replications = range(scenario.run.replications)
    workloads = [generate(scenario.workload, scenario.run.seed, r) for r in replications]
    rows: list[dict[str, Any]] = []
    baseline: dict[str, Any] = {}
    order = sorted(range(len(scenario.strategies)), key=lambda i: i != scenario.baseline)
    for index in order:
        strategy = scenario.strategies[index]
        setup = prepare(deployment, strategy, workloads[0].domain_names)
        served = _serve(setup, scenario, workloads, progress, keep_steps)
        row = served.row
        row |= {
            "strategy": strategy.name,
            "point": dict(point.values),
            "baseline": index == scenario.baseline,
            "hypothetical": setup.hypothetical,
            **_memory(setup, served.recorders),
        }
        operating = _operating(served.recorders)
        if index == scenario.baseline:
            baseline = {"row": row, "setup": setup, "operating": operating}
        row["speedup"] = speedup(row, baseline["row"], workloads[0])
        row["break_even_tau"] = _break_even_tau(setup, operating, baseline)
        row["band"] = _bands(setup, scenario, workloads, row, operating, baseline, progress)
        row["verdict"] = verdict(row)
        rows.append(row)
        _keep(result, point, strategy.name, workloads[0], served, keep_steps)
    in_order = sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])
    return [_ordered(row) for _, row in in_order]


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


def request_columns(recorder: Recorder, requests: Requests) -> Columns:
    """The request table of one run, of shape (requests,) a column."""
    log = recorder.log
    times = ("arrival_s", "schedule_s", "first_token_s", "finish_s")
    counts = ("replica", "cached_tokens", "n_steps", "drafted", "accepted", "preemptions")
    columns: Columns = {
        "id": np.arange(log.total),
        "stream": requests.stream,
        "status": np.array([STATUS[status] for status in log.status], dtype=np.int8),
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
    }
    columns |= {name: np.array(getattr(log, name), dtype=np.float64) for name in times}
    return columns | {name: np.array(getattr(log, name), dtype=np.int64) for name in counts}


def _step_columns(recorder: Recorder) -> Columns:
    assert recorder.rows is not None
    names = ("replica", "start_s", "duration_s", "draft_s", "verify_s", "host_s", "n_decode")
    names += ("prefill_tokens", "verify_tokens", "emitted", "blocks_used", "waiting")
    values = list(zip(*recorder.rows, strict=True)) or [()] * len(names)
    return {name: np.array(column) for name, column in zip(names, values, strict=True)}


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
            steps = _step_columns(served.recorders[replication])
            result.steps.append(RunTable(point.values, strategy, replication, steps))


def _memory(setup: Setup, recorders: list[Recorder]) -> dict[str, Any]:
    """KV use at its peak, of the fullest replica; free bytes on each of its GPUs then."""
    peak = max(totals.blocks_peak for recorder in recorders for totals in recorder.totals)
    budget = setup.budget
    return {
        "kv_use_peak": peak / budget.n_blocks,
        "kv_free_bytes": (budget.n_blocks - peak) * budget.block_bytes,
    }


def _operating(recorders: list[Recorder]) -> Operating | None:
    """Time-weighted means over decode steps; None if nothing was decoded."""
    totals = [totals for recorder in recorders for totals in recorder.totals]
    decode_s = sum(t.decode_s for t in totals)
    n_s = sum(t.n_s for t in totals)
    if not decode_s:
        return None
    ctx_s, width_s = sum(t.ctx_s for t in totals), sum(t.width_s for t in totals)
    return Operating(n_s / decode_s, ctx_s / n_s, width_s / n_s)


def speedup(row: Mapping[str, Any], baseline: Mapping[str, Any], requests: Requests) -> float | None:
    """Time per token of plain decoding over the strategy's, at the same load.

    Open loop: ratio of mean TPOT at equal rate. Closed loop: ratio of tokens a second at equal
    users. None for the baseline itself, and where either saturates.
    """
    if row is baseline or row["saturated"] or baseline["saturated"]:
        return None
    if requests.users is None:
        mine, plain = row["tpot_s"]["mean"], baseline["tpot_s"]["mean"]
        return plain / mine if mine and plain else None
    mine, plain = row["tok_per_s_per_gpu"], baseline["tok_per_s_per_gpu"]
    return mine / plain if mine and plain else None


def _break_even_tau(
    setup: Setup, operating: Operating | None, baseline: Mapping[str, Any]
) -> float | None:
    """tau at which the strategy only equals plain decoding.

    At that tau both run the same batch, and prefill costs both the same time a token, so it is
    the ratio of their decode steps at the baseline's mean batch and context.
    """
    at: Operating | None = baseline["operating"]
    if setup is baseline["setup"] or operating is None or at is None:
        return None
    n = max(1, min(round(at.n), setup.rules.max_num_seqs))
    ctx = n * at.context
    mine = setup.step_time.mixed(n, ctx, round(n * operating.width), ctx * operating.width)
    plain: float = baseline["setup"].step_time.mixed(n, ctx, n, ctx)
    return mine / plain


def _bands(
    setup: Setup,
    scenario: Scenario,
    workloads: list[Requests],
    row: Mapping[str, Any],
    operating: Operating | None,
    baseline: Mapping[str, Any],
    progress: _Progress,
) -> dict[str, Any]:
    """Re-run the first replication at both ends of the step time."""
    if not scenario.run.band:
        return {}
    ends: list[dict[str, Any]] = []
    scale = step_scale(setup, operating.n * operating.width if operating else 1.0)
    for factor in (1.0, scale.lo, scale.hi) if len(workloads) > 1 else (scale.lo, scale.hi):
        ends.append(_serve(setup, scenario, workloads[:1], progress, False, factor).row)
    middle, fast, slow = ends if len(ends) == 3 else (row, *ends)
    if row["saturated"]:
        return {}
    bands: dict[str, Any] = {}
    for name in BANDED:
        values = [end[name]["mean"] for end in (row, middle, fast, slow)]
        bands[name] = latency_band(*_shifted(values), scale)
    gains = [end["tok_per_s_per_gpu"] for end in (row, middle, fast, slow)]
    bands["tok_per_s_per_gpu"] = gain_band(*_shifted(gains), scale)
    if row["speedup"] is not None:
        others = [speedup(end, baseline["row"], workloads[0]) for end in (middle, fast, slow)]
        bands["speedup"] = gain_band(*_shifted([row["speedup"], *others]), scale)
    return {name: value for name, value in bands.items() if value is not None}


def _shifted(values: list[float | None]) -> tuple[float | None, float | None, float | None]:
    """Value, fast and slow end, the ends moved from the first replication to all of them."""
    value, middle, fast, slow = values
    if value is None or not middle:
        return value, fast, slow
    shift = value / middle
    return value, fast and fast * shift, slow and slow * shift


_FIRST = ("strategy", "point", "baseline", "hypothetical")


def _ordered(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _FIRST} | row


def deployment_of(scenario_file: ScenarioFile) -> Deployment:
    """Deployment of the first point."""
    return build(scenario_file.points[0].scenario)
