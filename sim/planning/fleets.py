"""How many replicas hold the demand, and how large a peak a number of them holds."""

from __future__ import annotations

import math
from collections.abc import Callable

from sim.planning.busy_hour import Stretch
from sim.planning.candidates import Candidate
from sim.planning.hour import Judged, judge
from sim.planning.scenario import arrivals_per_s, fleet
from sim.planning.schema import Kill, Plan
from sim.planning.search import largest

MOST_REPLICAS = 10_000
TOLERANCE = 0.03
"""Largest peak of a fleet: a peak above it by this share is lost."""
STEP = 1.06
"""First step from a guess, which is a fleet that just holds the demand."""

SWITCHING_LEAD = 0.2
"""Lead in windows of strategies that switch."""

BARELY_DOWN = 0.2
"""Share of a window from which a replica that is down must be made up for by the others."""


class Fleets:
    """Fleets of one candidate, each judged once.

    Attributes
    ----------
    simulations, requests : int
        Runs so far, and the requests in them.
    """

    def __init__(self, plan: Plan, candidate: Candidate) -> None:
        self.plan, self.candidate = plan, candidate
        self.stretch = stretch_of(plan, candidate)
        self.rate = arrivals_per_s(plan, candidate.scenario.workload)
        self.simulations = self.requests = 0
        self._judged: dict[tuple[int, float], Judged] = {}

    def judged(self, replicas: int, rate: float | None = None) -> Judged:
        """One fleet at the busiest hour, one of its replicas killed half way.

        Parameters
        ----------
        replicas : int
        rate : float or None
            Mean arrivals over the day [1/s]; None: those of the demand.
        """
        asked = (replicas, self.rate if rate is None else rate)
        if asked not in self._judged:
            stretch, plan = self.stretch, self.plan
            killed = plan.failure if isinstance(plan.failure, Kill) else None
            at_s = stretch.lead_s + stretch.length_s / 2
            scenario = fleet(self.candidate.scenario, replicas, killed, at_s)
            found = judge(scenario, self.candidate.strategy, asked[1], stretch=stretch)
            self._judged[asked] = found
            self.simulations += 1
            self.requests += found.simulated
        return self._judged[asked]

    def fewest(self, guess: int, most: int) -> int | None:
        """Fewest replicas that hold the demand; None where not even ``most`` do."""
        least = 2 if isinstance(self.plan.failure, Kill) else 1
        if most < least:
            return None
        return smallest(lambda n: self.judged(n).met, guess, least, most)

    def largest_peak(self, replicas: int) -> float:
        """Largest peak rate [1/s] that a fleet which holds the demand still holds."""
        peak = self.plan.demand.peak_req_s
        root = largest(
            lambda rate: self.judged(replicas, rate).met,
            self.rate * STEP,
            tolerance=TOLERANCE,
            least=self.rate,
            most=self.rate * 100,
            step=STEP,
        )
        return peak * (root.value or self.rate) / self.rate


def stretch_of(plan: Plan, candidate: Candidate) -> Stretch:
    """The busiest hour as the plan file has it; the window around the failure where they switch.

    An engine whose sequences switch is simulated tens of times more slowly than another.
    """
    run = plan.run
    if not candidate.strategy.switches:
        return Stretch(run.lead_s, run.hour_s, run.window_s)
    lead_s = min(run.lead_s, SWITCHING_LEAD * run.window_s)
    return Stretch(lead_s, run.window_s, run.window_s)


def smallest(passes: Callable[[int], bool], guess: int, least: int, most: int) -> int | None:
    """Smallest whole number that passes, in the range, where all above one that passes do.

    Steps double from the guess until one passed and one failed, then their interval is halved; the
    guess is asked first, and no number below the least that passed minus one.
    """
    at = min(max(guess, least), most)
    fails: int | None = None
    holds: int | None = None
    step = 1
    while fails is None or holds is None:
        if passes(at):
            if at == least:
                return at
            holds, at = at, max(at - step, least)
        else:
            if at == most:
                return None
            fails, at = at, min(at + step, most)
        step *= 2
    while holds - fails > 1:
        middle = (holds + fails) // 2
        if passes(middle):
            holds = middle
        else:
            fails = middle
    return holds


def replicas_for(peak_req_s: float, replica_req_s: float, spare: int) -> int:
    """Replicas that share a peak, and those that may be down besides."""
    return math.ceil(round(peak_req_s / replica_req_s, 9)) + spare


def spare_replicas(plan: Plan, down_s: float) -> int:
    """Replicas the fleet must do without for long enough to be noticed: 1 or 0."""
    killed = isinstance(plan.failure, Kill)
    return int(killed and down_s >= BARELY_DOWN * plan.run.window_s)
