"""The load a closed form expects a scenario to hold: where a search by simulation begins."""

from __future__ import annotations

from sim.planning.estimate import Estimate, estimate
from sim.planning.traffic import Traffic
from sim.scenario.arrivals import ClosedLoop
from sim.scenario.schema import Scenario
from sim.scenario.shapes import Diurnal
from sim.scenario.trace.schema import Trace
from sim.setup import Setup


def expected_load(scenario: Scenario, setup: Setup, window_s: float) -> float | None:
    """Estimate the largest load of all replicas, in the unit its arrivals are stated in.

    Parameters
    ----------
    scenario : Scenario
    setup : Setup
        Of the strategy in question.
    window_s : float
        Length of the windows that must hold the service levels [s].

    Returns
    -------
    float or None
        Requests or sessions a second (of a day the mean), or users. None where not even an idle
        replica holds the SLO, and of a trace, whose own rate is not known before it is read.
    """
    arrivals = scenario.workload.arrivals
    if isinstance(arrivals, Trace):
        return None
    traffic = Traffic.of(scenario.workload, scenario.run.seed)
    replicas = setup.deployment.replicas
    found = estimate(setup, traffic, scenario.slo, window_s=window_s, replicas=replicas)
    if found is None:
        return None
    rate = replicas * found.rate_req_s
    if isinstance(arrivals, ClosedLoop):
        return max(rate * (arrivals.think_s + _stay_s(found, traffic)), 1.0)
    if isinstance(arrivals, Diurnal):
        rate *= arrivals.mean_rate_per_s / arrivals.busy_rate_per_s
    return rate / traffic.per_arrival


def _stay_s(found: Estimate, traffic: Traffic) -> float:
    """Mean time from a request to the end of its answer [s]."""
    return found.ttft_s + found.batch / found.rate_req_s
