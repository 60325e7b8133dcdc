"""What one replica holds at its busiest, and how that changes where its steps take longer."""

from __future__ import annotations

from typing import NamedTuple

from sim.band import Scale, Z, step_scale
from sim.engine.simulate import Plan as Simulated
from sim.planning.bounds import changed
from sim.planning.busy_hour import Stretch, range_of
from sim.planning.candidates import Candidate
from sim.planning.capacity import Capacity, capacity
from sim.planning.errors import Error, step_errors, together
from sim.planning.fleets import stretch_of
from sim.planning.hour import Judge
from sim.planning.scaled import scaled
from sim.planning.schema import Plan
from sim.planning.search import largest
from sim.planning.uncertainty import LEAST_SHARE, Curve, Curves
from sim.scenario.schema import Scenario
from sim.scenario.service_level import Slo
from sim.setup import Setup

COARSE, END_STEP = 0.04, 1.2
"""Tolerance and first step of the search at an end of a curve."""

WINDOWS = 3
"""Windows a replica is judged over: its capacity only tells how that of the fleet changes."""

US = 1e-6
LEAST_BOUND_S = 1e-3


class Replica(NamedTuple):
    """One replica at the largest load it holds; rates are means over the day [1/s].

    Attributes
    ----------
    found : Capacity
    scale : Scale
        Of its step time, for its level and basis.
    errors : tuple of Error
        Of its step times, of the time a request spends outside the engine where the first token is
        what is late, and of simulating.
    curves : Curves
    simulations, requests : int
    """

    found: Capacity
    scale: Scale
    errors: tuple[Error, ...]
    curves: Curves
    simulations: int
    requests: int


def measured(plan: Plan, candidate: Candidate, setup: Setup, guess: float) -> Replica | None:
    """Simulate one replica of a candidate; None where it holds nothing in one of its repeats.

    Of a strategy whose sequences switch, the one they start in is simulated in its place: it also
    speaks for the errors of the whole.

    Parameters
    ----------
    plan : Plan
    candidate : Candidate
    setup : Setup
        Its replica.
    guess : float
        Rate to begin with, a mean over the day [1/s].
    """
    search = _Search(plan, candidate, guess)
    found = search.at(repeats=plan.run.replications)
    if found.value is None:
        return None
    tokens = found.query_tokens or float(setup.rules.width)
    own = found.per_replication[0]
    errors = step_errors(setup, tokens)
    curves = Curves(
        search.curve(own, *together(errors, "step_s", "decode_s")),
        search.curve(own, *together(errors, "step_s", "prefill_s"), prefill=True),
    )
    late = "ttft_s" in (found.limited_by or "")
    others = (search.request_error(setup, own) if late else None, _noise(found))
    return Replica(
        found,
        step_scale(setup, tokens),
        (*errors, *(error for error in others if error is not None)),
        curves,
        search.simulations,
        search.requests,
    )


class _Search:
    """Searches of one replica on common random numbers."""

    def __init__(self, plan: Plan, candidate: Candidate, guess: float) -> None:
        stand_in = candidate.stand_in
        whole = stretch_of(plan, stand_in)
        length_s = min(whole.length_s, WINDOWS * whole.window_s)
        self._stretch = Stretch(min(whole.lead_s, whole.window_s), length_s, whole.window_s)
        self._scenario: Scenario = stand_in.scenario
        strategy = stand_in.strategy
        self._strategy, self._guess = strategy, guess
        self._judge = Judge(self._scenario, strategy, self._stretch)
        self.simulations = self.requests = 0

    def at(
        self, guess: float | None = None, repeats: int = 1, judge: Judge | None = None
    ) -> Capacity:
        judge = judge or self._judge
        found = capacity(
            judge.scenario,
            self._strategy,
            guess=guess or self._guess,
            replications=repeats,
            stretch=self._stretch,
            judge=judge,
        )
        self.simulations += found.simulations
        self.requests += found.simulated
        return found

    def curve(self, own: float, lo: float, hi: float, prefill: bool = False) -> Curve:
        """Capacity with a part of the step time at either end, and as it is."""
        points: list[tuple[float, float | None]] = [(1.0, own)]
        for factor in (lo, hi):
            both = (1.0, factor) if prefill else (factor, 1.0)

            def changed(plan: Simulated, both: tuple[float, float] = both) -> Simulated:
                return scaled(plan, *both)

            judge = Judge(self._scenario, self._strategy, self._stretch, changed=changed)
            points.append((factor, self._end(judge, own / factor)))
        return Curve(points)

    def _end(self, judge: Judge, guess: float) -> float | None:
        """Capacity at one end: coarser, as only its ratio to the prediction counts."""

        def passes(load: float) -> bool:
            found = judge(load)
            self.simulations += 1
            self.requests += found.simulated
            return found.met

        least, most = range_of(self._scenario.workload.arrivals, self._stretch)
        least = max(least, LEAST_SHARE * self._guess)
        return largest(passes, guess, tolerance=COARSE, least=least, most=most, step=END_STEP).value

    def request_error(self, setup: Setup, own: float) -> Error | None:
        """Error of what a request spends outside the engine: bounds on TTFT, moved by it."""
        constant = setup.deployment.engine.request_us
        if constant.se is None:
            return None
        half_s = Z * constant.se * US
        ends = []
        for sign in (-1, 1):
            slo = _moved(self._scenario.slo, sign * half_s)
            scenario = self._scenario.model_copy(update={"slo": slo})
            found = self.at(guess=own, judge=Judge(scenario, self._strategy, self._stretch))
            ends.append(max((found.value or 0.0) / own, LEAST_SHARE))
        lo, hi = min(ends[0], 1.0), max(ends[1], 1.0)
        what = f"time of a request outside the engine: {constant.source}"
        return Error("request time", what, "measured", lo, hi, "capacity")


def _moved(slo: Slo, by_s: float) -> Slo:
    """The same bounds, those on TTFT moved."""
    return changed(slo, lambda metric, s: max(s + by_s, LEAST_BOUND_S) if metric == "ttft_s" else s)


def _noise(found: Capacity) -> Error | None:
    """What chance leaves open: the t-interval of the capacity."""
    value, lo, hi = found.value, found.lo, found.hi
    if value is None or lo is None or hi is None or not 0 < lo < value < hi:
        return None
    what = "chance of the runs simulated: more of run.replications narrow it"
    return Error("simulation", what, "measured", lo / value, hi / value, "capacity")
