"""A candidate as a scenario: one replica, a fleet with a replica killed, a whole day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.planning.schema import Kill, Plan
from sim.scenario.fleet import Failure
from sim.scenario.schema import Scenario
from sim.scenario.shapes import DAY_S
from sim.scenario.workload import Workload

OF_PLAN = ("demand", "search", "failure", "prices", "power", "confidence", "run", "workload")
"""Blocks of a plan file that a scenario does not have, or has in another form."""

HALF_HOUR_S = 1800.0


def scenario_data(plan: Plan, data: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Plain data of a scenario that serves the demand with one replica.

    Parameters
    ----------
    plan : Plan
    data : mapping
        The plan file's data with the candidate's settings.
    index : int
        Which strategy.
    """
    blocks = {key: value for key, value in data.items() if key not in OF_PLAN}
    demand = plan.demand
    arrivals = {
        "kind": "diurnal",
        "mean_rate_per_s": demand.mean_req_s,
        "peak_factor": demand.peak_factor,
        "peak_hour": demand.peak_hour,
    }
    run = plan.run
    return {
        **blocks,
        "workload": {**data["workload"], "arrivals": arrivals, "duration_s": DAY_S},
        "strategies": [data["strategies"][index]],
        "run": {"seed": run.seed, "window_s": run.window_s, "band": False, "baseline": False},
    }


def arrivals_per_s(plan: Plan, workload: Workload) -> float:
    """Mean rate of what arrives over the day [1/s]: of sessions where there are any."""
    return plan.demand.mean_req_s / workload.mean_turns


def fleet(scenario: Scenario, replicas: int, killed: Kill | None, at_s: float) -> Scenario:
    """So many replicas, the first of which is killed at a time.

    Parameters
    ----------
    scenario : Scenario
        Of one replica.
    replicas : int
    killed : Kill or None
        None: none is.
    at_s : float
        When, from the start of the run [s].
    """
    failures: tuple[Failure, ...] = ()
    if killed is not None:
        failure = Failure(replica=0, at_s=at_s, restart=killed.restart, in_flight=killed.in_flight)
        failures = (failure,)
    gpus = replicas * scenario.model.tp
    return scenario.model_copy(
        update={
            "model": scenario.model.model_copy(update={"replicas": replicas}),
            "hardware": scenario.hardware.model_copy(update={"gpus": gpus}),
            "failures": failures,
        }
    )


def day(plan: Plan, scenario: Scenario, replicas: int) -> Scenario:
    """The whole day from midnight, one replica killed at its peak.

    Where midnight is less than half an hour from the peak, it is killed half an hour from midnight:
    the fleet is then neither empty nor about to stop.
    """
    killed = plan.failure if isinstance(plan.failure, Kill) else None
    at_s = min(max(plan.demand.peak_hour * 3600, HALF_HOUR_S), DAY_S - HALF_HOUR_S)
    made = fleet(scenario, replicas, killed, at_s)
    rate = arrivals_per_s(plan, scenario.workload)
    arrivals = scenario.workload.arrivals.model_copy(
        update={"mean_rate_per_s": rate, "start_hour": 0.0}
    )
    workload = scenario.workload.model_copy(update={"arrivals": arrivals, "duration_s": DAY_S})
    return made.model_copy(update={"workload": workload})
