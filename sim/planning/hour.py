"""Whether a deployment holds its SLO at a load, over the worst five minutes of its busiest hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from models.schema import ModelError
from models.strategies import Strategy
from sim.analysis import metrics, steady
from sim.analysis.metrics import QUANTILES, Floats, select
from sim.analysis.slo import Objective, objectives
from sim.analysis.windows import Timeline
from sim.break_even import operating_point
from sim.engine.recorder import Recorder
from sim.engine.simulate import Plan, simulate
from sim.experiment import acceptance_seed
from sim.planning.busy_hour import HOUR, Stretch, load_of, placed, requests_of
from sim.planning.certain import Watch, judged_line, judged_windows
from sim.run_tables import request_columns
from sim.scenario import dump
from sim.scenario.build import build
from sim.scenario.requests import Requests
from sim.scenario.schema import Scenario
from sim.setup import prepare
from sim.tables import Columns

TRIES = 4
"""Times the requests of a closed loop are drawn, each time twice as many, until they suffice."""
NEVER_S, SURELY_S = 1e30, 1e9
"""A latency that stands for never where quantiles are interpolated, and what shows it."""

OnAnswers = Callable[[int, int], None]


class Judged(NamedTuple):
    """How a deployment fared at one load.

    Attributes
    ----------
    met : bool
        Whether every window of the stretch held every bound.
    margin : float
        Largest of a quantile over its bound, and of misses over those the attainment allows, over
        all windows; infinite where it saturates or a window was lost before the end.
    limited_by : str or None
        What is nearest to its bound, or over it most.
    worst : dict or None
        The window in which that was: ``start_s`` (since the run's start), ``ttft_s_p95``,
        ``tpot_s_p95``, ``e2e_s_p95``, ``attainment``, ``requests``. None where the run ended early.
    simulated : int
        Requests simulated.
    stopped : bool
        Whether it ended early because a window was lost for certain.
    query_tokens : float or None
        Query tokens of a decode step in the mean; None where the run ended early.
    """

    met: bool
    margin: float
    limited_by: str | None
    worst: dict[str, Any] | None
    simulated: int
    stopped: bool
    query_tokens: float | None = None


def _as_it_is(plan: Plan) -> Plan:
    return plan


class Judge:
    """One strategy of a scenario, ready to be judged at any load.

    Parameters
    ----------
    scenario : Scenario
    strategy : Strategy
    stretch : Stretch
    early : bool
        End a run as soon as a window is lost for certain.
    changed : callable
        What is simulated in place of the strategy's own plan.

    Raises
    ------
    ModelError
        If the model does not fit, or the scenario is wrong.
    """

    def __init__(
        self,
        scenario: Scenario,
        strategy: Strategy,
        stretch: Stretch = HOUR,
        *,
        early: bool = True,
        changed: Callable[[Plan], Plan] = _as_it_is,
    ) -> None:
        self._asked = bounds_of(scenario)
        self.scenario, self.stretch, self._early = scenario, stretch, early
        self._changed = changed
        self.setup = prepare(build(scenario), strategy, scenario.workload.domain_names)
        fleet = self.setup.fleet()
        self._steady = not fleet.outages and not fleet.client.deadlines

    def __call__(
        self,
        load: float,
        *,
        replication: int = 0,
        scale: float = 1.0,
        on_answers: OnAnswers | None = None,
    ) -> Judged:
        """Simulate the stretch at a load; see ``judge``."""
        for attempt in range(TRIES):
            at = placed(self.scenario.workload, load, self.stretch)
            seed = self.scenario.run.seed
            requests, span = requests_of(
                at, self.setup, seed, replication, self.stretch, 2.0**attempt
            )
            watch = Watch(
                requests, self._asked, self.stretch.window_s, span, self._steady, self._early
            )
            recorder = simulate(
                self._changed(self.setup.plan(scale)),
                requests,
                acceptance_seed(seed, replication),
                on_progress=on_answers,
                on_look=watch.look,
            )
            if recorder.interrupted and not watch.over:
                raise KeyboardInterrupt
            if requests.users is None or watch.over or attempt == TRIES - 1:
                break
        return self._judged(recorder, requests, span, watch)

    def _judged(
        self, recorder: Recorder, requests: Requests, span: tuple[float, float], watch: Watch
    ) -> Judged:
        simulated = int(np.isfinite(recorder.log.arrival_s).sum())
        if watch.lost:
            return Judged(False, np.inf, watch.lost, None, simulated, True)
        table = request_columns(recorder, requests)
        arrived = table["arrival_s"]
        inside = select(table, (arrived >= span[0]) & (arrived < span[1]))
        margin, limited_by, worst = nearest_window(inside, self._asked, self.stretch.window_s, span)
        if requests.users is None and self.scenario.stationary and steady.saturated(inside):
            margin, limited_by = np.inf, "saturated"
        at = operating_point([recorder], [table], self.setup)
        tokens = at.query_tokens if at else None
        return Judged(margin <= 1, margin, limited_by, worst, simulated, False, tokens)


def judge(
    scenario: Scenario,
    strategy: Strategy,
    load: float,
    *,
    replication: int = 0,
    scale: float = 1.0,
    stretch: Stretch = HOUR,
) -> Judged:
    """Whether a strategy holds the SLO of a scenario at a load, in every window of a stretch.

    Lead and stretch are simulated, and nothing that arrives later. Every window of ``window_s``, a
    fifth of it apart, must hold every stated quantile and the attainment, for each SLO class by
    itself. A class is judged in the windows that hold 20 of its requests, and over the whole
    stretch where none does. A request that never comes back, rejected or given up, is later than
    any bound. Traffic that does not change must not saturate either.

    Parameters
    ----------
    scenario : Scenario
        Its own arrival rate and number of requests are not used; its failures happen when stated,
        from the start of the run.
    strategy : Strategy
    load : float
        Requests or sessions a second (of a day the mean), users of a closed loop, or requests for
        each one of a trace.
    replication : int
        Which workload. Arrivals, lengths and acceptance come from the same draws at every load.
    scale : float
        Factor on every step time.
    stretch : Stretch

    Raises
    ------
    ModelError
        If the model does not fit, arrivals have no single load, or no bound is stated.
    """
    return Judge(scenario, strategy, stretch)(load, replication=replication, scale=scale)


def bounds_of(scenario: Scenario) -> list[Objective]:
    """What limits the load of a scenario.

    Raises
    ------
    ModelError
        If its arrivals have no single load, or no bound is stated for any of its streams.
    """
    load_of(scenario.workload.arrivals)
    classes = [stream.slo_class for stream in scenario.workload.streams]
    found = objectives(dump.plain(scenario.slo), classes)
    if not found:
        raise ModelError("needs at least one bound: ttft_s, tpot_s, e2e_s", "slo")
    return found


def nearest_window(
    table: Columns, asked: list[Objective], window_s: float, span: tuple[float, float]
) -> tuple[float, str | None, dict[str, Any] | None]:
    """Margin, what it is of, and the window it is in."""
    if not len(table["id"]):
        raise ModelError("no request arrives in the stretch that is judged", "workload.arrivals")
    nearest: tuple[float, str, Timeline, int] | None = None
    for objective in asked:
        mine = select(table, objective.rows(table))
        if not len(mine["id"]):
            continue
        line = judged_line(mine, [objective], window_s, span)
        for near in _margins(line, objective):
            if nearest is None or near[0] > nearest[0]:
                nearest = near[0], near[1], line, near[2]
    if nearest is None:
        line = judged_line(table, [], window_s, span)
        waits = [line.p95("ttft_s", int(window)) or 0.0 for window in judged_windows(line)]
        nearest = 0.0, "saturated", line, int(judged_windows(line)[int(np.argmax(waits))])
    margin, what, line, window = nearest
    # Of all requests, not only of the class that is nearest to its bound.
    told = Timeline(table, asked, line.window_s, span).entry(window)
    kept = ("start_s", "requests", "ttft_s_p95", "tpot_s_p95", "e2e_s_p95", "attainment")
    return margin, what, {name: told[name] for name in kept}


def _margins(line: Timeline, objective: Objective) -> list[tuple[float, str, int]]:
    """How near every window comes to each bound: 1 is at it."""
    windows, found = judged_windows(line), []
    for metric, quantiles in objective.bounds.items():
        for window in windows.tolist():
            values = line.latency(metric, window)
            for statistic, bound in quantiles.items():
                ratio = quantile(values, QUANTILES[statistic]) / bound
                found.append((ratio, f"{metric} {statistic}", window))
    for window, share in zip(windows.tolist(), line.attainment(windows).tolist(), strict=True):
        missed = _missed(share, objective.target)
        found.append((missed, f"attainment: {_mostly(line, objective, window)}", window))
    named = f"class {objective.name}: " if objective.name else ""
    return [(margin, named + what, window) for margin, what, window in found]


def _missed(share: float, target: float) -> float:
    """Misses over those allowed; above 1 just where the share is below its target."""
    if not share < target:
        allowed = 1 - target
        return min((1 - share) / allowed, 1.0) if allowed else 0.0
    return max((1 - share) / (1 - target), np.nextafter(1, 2)) if target < 1 else np.inf


def _mostly(line: Timeline, objective: Objective, window: int) -> str:
    """The latency that most of the misses of a window are of."""
    first, last = line.edges(np.array([window]))[:, 0]
    part = {name: column[first:last] for name, column in line.table.items()}
    late = {
        metric: int((~metrics.meets(part, {metric: limit})).sum())
        for metric, limit in objective.limits.items()
    }
    return max(late, key=lambda metric: late[metric])


def quantile(values: Floats, q: float) -> float:
    """Quantile of latencies, some of which may be infinite [s]; 0 where there are none."""
    if not values.size:
        return 0.0
    found = float(np.quantile(np.minimum(values, NEVER_S), q))
    return found if found < SURELY_S else np.inf


__all__ = ["Judge", "Judged", "Stretch", "bounds_of", "judge", "quantile"]
