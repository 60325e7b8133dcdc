"""A load put into the arrivals of a workload, and the stretch of the run it is judged by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.schema import ModelError
from sim.analysis.windows import FEW
from sim.scenario.arrival_process import ArrivalProcess, AtRate
from sim.scenario.arrivals import ClosedLoop
from sim.scenario.requests import Requests
from sim.scenario.shapes import DAY_S, Diurnal
from sim.scenario.trace.schema import Trace
from sim.scenario.workload import Workload, generate
from sim.setup import Setup

SPARE = 1.2
"""Requests drawn for a closed loop, over those a first estimate says last the stretch."""
SAMPLE = 1000
MOST = 1e6
LEAST_SCALE, MOST_SCALE = 0.01, 1000.0


class Stretch(NamedTuple):
    """What of a run counts.

    Attributes
    ----------
    lead_s : float
        Load before it, so that it does not begin with an empty engine [s].
    length_s : float
        The busiest hour [s]; of a day of another length, a 24th of that for each 3600 s.
    window_s : float
        Length of the windows every one of which must hold [s].

    Notes
    -----
    Measured with Llama-3.1-70B on four H100 and lengths as of a conversation. The lead: plain
    decoding over 900 s holds 6.25, 6.23, 6.25, 6.27, 6.25 and 6.14 req/s after 0, 30, 60, 120, 300
    and 600 s, each within 0.25 (90 %, five workloads); without one MSER-5 drops nothing of four
    workloads and 13 s of the fifth. Sessions need one as long as they last. The length is part of
    the question rather than a matter of precision, for the worst of more windows is worse: over
    300, 900, 1800 and 3600 s plain decoding holds 6.67, 6.28, 6.14 and 5.96 req/s, eagle3 9.08,
    8.57, 8.43 and 8.27. From one workload to the next that varies by 5 % over 900 s and by 3 to 5 %
    over an hour, so that three of them leave some 5 % open either way, and five 3 %.
    """

    lead_s: float = 300.0
    length_s: float = 3600.0
    window_s: float = 300.0


HOUR = Stretch()


class Placed(NamedTuple):
    """A workload at a load, and which of its requests are judged.

    Attributes
    ----------
    workload : Workload
    span : (float, float)
        Those that arrive from the one time and before the other [s].
    """

    workload: Workload
    span: tuple[float, float]


def load_of(arrivals: ArrivalProcess) -> float:
    """The load a workload states: requests (or sessions) a second, users, or a trace's scale.

    Raises
    ------
    ModelError
        For arrivals that have no single load.
    """
    if isinstance(arrivals, AtRate):
        return arrivals.rate_per_s
    if isinstance(arrivals, Diurnal):
        return arrivals.mean_rate_per_s
    if isinstance(arrivals, ClosedLoop):
        return float(arrivals.users)
    if isinstance(arrivals, Trace):
        return arrivals.rate_scale
    raise ModelError(
        f"no single load to search for: must be a rate, a day, users or a trace, "
        f"got {arrivals.kind}",
        "workload.arrivals.kind",
    )


def range_of(arrivals: ArrivalProcess, stretch: Stretch) -> tuple[float, float]:
    """Loads a search may try: those the schema allows that send enough requests to judge by."""
    if isinstance(arrivals, ClosedLoop):
        return 1.0, MOST
    if isinstance(arrivals, Trace):
        return LEAST_SCALE, MOST_SCALE
    share = arrivals.period_s / DAY_S if isinstance(arrivals, Diurnal) else 1.0
    return FEW / (share * stretch.length_s), MOST


def unit_of(arrivals: ArrivalProcess) -> str:
    """What the load counts."""
    if isinstance(arrivals, ClosedLoop):
        return "users"
    return "x trace" if isinstance(arrivals, Trace) else "req/s"


def placed(workload: Workload, load: float, stretch: Stretch) -> Placed:
    """Put a load into the arrivals of a workload.

    A rate stays for lead and stretch. Of a day the stretch is that around its peak. A closed loop
    has as many users, and ``requests_of`` says how many requests that takes. A trace is replayed
    whole, ``load`` requests for each of its own; what arrives in the lead does not count where it
    goes on for a window after it.
    """
    arrivals, end_s = workload.arrivals, stretch.lead_s + stretch.length_s
    if isinstance(arrivals, Trace):
        replay = _with(workload, rate_scale=load)
        return Placed(replay, (stretch.lead_s, np.inf))
    if isinstance(arrivals, Diurnal):
        length_s = stretch.length_s * arrivals.period_s / DAY_S
        end_s, hour_s = stretch.lead_s + length_s, arrivals.period_s / 24
        start = arrivals.peak_hour - (stretch.lead_s + length_s / 2) / hour_s
        timed = _with(workload, mean_rate_per_s=load, start_hour=start % 24.0 % 24.0)
    elif isinstance(arrivals, ClosedLoop):
        return Placed(_with(workload, users=round(load)), (stretch.lead_s, end_s))
    else:
        timed = _with(workload, rate_per_s=load)
    timed = timed.model_copy(update={"duration_s": end_s, "requests": None})
    return Placed(timed, (stretch.lead_s, end_s))


def _with(workload: Workload, **changes: float) -> Workload:
    arrivals = workload.arrivals.model_copy(update=changes)
    return workload.model_copy(update={"arrivals": arrivals})


def requests_of(
    at: Placed, setup: Setup, seed: int, replication: int, stretch: Stretch, times: float = 1.0
) -> tuple[Requests, tuple[float, float]]:
    """Draw the requests of a run, and say which of them count.

    Parameters
    ----------
    at : Placed
    setup : Setup
        Its step times say about how many requests the users of a closed loop send.
    seed, replication : int
    stretch : Stretch
    times : float
        Draw this many times the requests, where a first try of a closed loop ended too soon.
    """
    workload, (start_s, end_s) = at.workload, at.span
    if isinstance(workload.arrivals, ClosedLoop):
        n = _sent(workload, workload.arrivals, setup, end_s, seed)
        workload = workload.model_copy(update={"requests": int(times * n), "duration_s": None})
    requests = generate(workload, seed, replication)
    if isinstance(workload.arrivals, Trace):
        end_s = float(np.nextafter(np.nanmax(requests.arrival_s), np.inf))
        start_s = start_s if end_s > start_s + stretch.window_s else 0.0
    return requests, (start_s, end_s)


def _sent(workload: Workload, loop: ClosedLoop, setup: Setup, until_s: float, seed: int) -> int:
    """Requests that users send until a time if none waits for more than the batch it runs in."""
    sample = generate(workload.model_copy(update={"requests": SAMPLE, "duration_s": None}), seed)
    output, prompt = sample.output_tokens.mean(), sample.prompt_tokens.mean()
    rules = setup.rules
    n = min(max(round(loop.users / setup.deployment.replicas), 1), rules.max_num_seqs)
    step_s = setup.step_time.decode(n, round(n * (prompt + output / 2)))
    own_s = max(output * step_s / setup.law.tau, 1e-6)
    served = n * setup.deployment.replicas / own_s
    return int(SPARE * until_s * min(loop.users / (loop.think_s + own_s), served)) + 2 * loop.users


__all__ = ["HOUR", "Placed", "Stretch", "load_of", "placed", "range_of", "requests_of", "unit_of"]
