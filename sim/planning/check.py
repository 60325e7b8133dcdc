"""The plan chosen over a whole simulated day, a replica killed at its peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.analysis import metrics
from sim.analysis.slo import objectives, within
from sim.analysis.windows import sliding
from sim.engine.simulate import simulate
from sim.experiment import acceptance_seed
from sim.planning.hour import nearest_window
from sim.planning.schema import Plan
from sim.run_tables import request_columns
from sim.scenario.build import build
from sim.scenario.dump import plain
from sim.scenario.schema import Scenario
from sim.scenario.workload import generate
from sim.setup import prepare

Json = dict[str, Any]

SHOWN = ("mean", "p50", "p95", "p99")
SERIES = ("start_s", "ttft_s_p95", "tpot_s_p95", "offered_req_per_s", "attainment")


def check(plan: Plan, day: Scenario, on_progress: Callable[[int, int], None] | None = None) -> Json:
    """Simulate the day, and judge every window of it as the busiest hour is judged.

    Parameters
    ----------
    plan : Plan
    day : Scenario
        Its fleet, arrivals and failure.
    on_progress : callable, optional
        Called with (requests done, requests in all); it may raise KeyboardInterrupt.

    Returns
    -------
    dict
        JSON-ready; ``met`` is whether every window held every bound.
    """
    seed, strategy = plan.run.seed, day.strategies[-1]
    requests = generate(day.workload, seed)
    setup = prepare(build(day), strategy, requests.domain_names)
    recorder = simulate(setup.plan(), requests, acceptance_seed(seed, 0), on_progress=on_progress)
    if recorder.interrupted:
        raise KeyboardInterrupt
    table = request_columns(recorder, requests)
    streams = [stream.slo_class for stream in day.workload.streams]
    asked = objectives(plain(day.slo), streams)
    span = (0.0, day.workload.duration_s or 0.0)
    margin, limited_by, worst = nearest_window(table, asked, plan.run.window_s, span)
    met, bound = within(table, asked)
    windows = sliding([table], plan.run.window_s, asked, False)
    outage = next(iter(setup.fleet().outages), None)
    return {
        "requests": len(requests),
        "duration_s": span[1],
        "killed_at_s": None if outage is None else outage.at_s,
        "back_at_s": None if outage is None else outage.up_s,
        "worst": worst,
        "limited_by": limited_by,
        "met": margin <= 1,
        "attainment": float(met.sum() / bound.sum()) if bound.any() else None,
        **{name: _summary(table, name) for name in ("ttft_s", "tpot_s")},
        "preemptions": metrics.preemptions(table),
        "series": [
            {key: each[key] for key in SERIES} for each in (windows or {"series": ()})["series"]
        ],
    }


def _summary(table: Any, name: str) -> Json:
    found = metrics.summary(metrics.LATENCIES[name](table))._asdict()
    return {key: found[key] for key in SHOWN}
