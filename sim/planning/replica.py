"""What one replica holds at its busiest, and how that changes where its steps take longer."""

from __future__ import annotations

from typing import NamedTuple

from sim.band import Z, Scale, step_scale
from sim.planning.busy_hour import Stretch
from sim.planning.candidates import Candidate
from sim.planning.capacity import Capacity, capacity
from sim.planning.errors import Error
from sim.planning.fleets import stretch_of
from sim.planning.hour import Judge
from sim.planning.schema import Plan
from sim.planning.uncertainty import Curve
from sim.scenario.schema import Bounds, Scenario, Slo
from sim.setup import Setup

WINDOWS = 3
"""Windows a replica is judged over: its capacity only tells how that of the fleet changes."""

US = 1e-6


class Replica(NamedTuple):
    """One replica at the largest load it holds; rates are means over the day [1/s].

    Attributes
    ----------
    found : Capacity
    slow, fast : float or None
        What it holds at both ends of the band of its step time.
    scale : Scale
    query_tokens : float
        Of a decode step there.
    curve : Curve
        What it holds by the factor on its step times.
    noise : Error or None
    request : Error or None
        That of the time a request spends outside the engine, where the first token is what is
        late.
    simulations, requests : int
    """

    found: Capacity
    slow: float | None
    fast: float | None
    scale: Scale
    query_tokens: float
    curve: Curve
    noise: Error | None
    request: Error | None
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
    scale = step_scale(setup, tokens)
    own = found.per_replication[0]
    slow, fast = (
        search.at(factor, guess=own / factor).value for factor in (scale.hi, scale.lo)
    )
    curve = Curve([(1.0, own), (scale.hi, slow), (scale.lo, fast)])
    ends = [None if end is None else found.value * end / own for end in (slow, fast)]
    return Replica(
        found,
        ends[0],
        ends[1],
        scale,
        tokens,
        curve,
        _noise(found),
        search.request_error(setup, own) if "ttft_s" in (found.limited_by or "") else None,
        search.simulations,
        search.requests,
    )


class _Search:
    """Searches of one replica on common random numbers."""

    def __init__(self, plan: Plan, candidate: Candidate, guess: float) -> None:
        strategy = candidate.strategy
        if strategy.switches:
            strategy = strategy.modes[getattr(strategy, "start", 0)]
        whole = stretch_of(plan, candidate)
        length_s = min(whole.length_s, WINDOWS * whole.window_s)
        self._stretch = Stretch(min(whole.lead_s, whole.window_s), length_s, whole.window_s)
        changed = {"strategies": (strategy,)}
        self._scenario: Scenario = candidate.scenario.model_copy(update=changed)
        self._strategy, self._guess = strategy, guess
        self._judge = Judge(self._scenario, strategy, self._stretch)
        self.simulations = self.requests = 0

    def at(
        self,
        scale: float = 1.0,
        guess: float | None = None,
        repeats: int = 1,
        judge: Judge | None = None,
    ) -> Capacity:
        judge = judge or self._judge
        found = capacity(
            judge.scenario,
            self._strategy,
            guess=guess or self._guess,
            replications=repeats,
            scale=scale,
            stretch=self._stretch,
            judge=judge,
        )
        self.simulations += found.simulations
        self.requests += found.simulated
        return found

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
            ends.append((found.value or own) / own)
        lo, hi = min(ends[0], 1.0), max(ends[1], 1.0)
        what = f"time of a request outside the engine: {constant.source}"
        return Error("request time", what, "measured", lo, hi, "capacity")


def _moved(slo: Slo, by_s: float) -> Slo:
    """The same bounds, those on TTFT outside the classes moved."""
    if slo.ttft_s is None:
        return slo
    stated = slo.ttft_s.model_dump(exclude_none=True)
    bounds = Bounds(**{name: max(bound + by_s, 1e-3) for name, bound in stated.items()})
    return slo.model_copy(update={"ttft_s": bounds})


def _noise(found: Capacity) -> Error | None:
    """What chance leaves open: the t-interval of the capacity."""
    value, lo, hi = found.value, found.lo, found.hi
    if value is None or lo is None or hi is None or not 0 < lo < value < hi:
        return None
    what = "chance of the runs simulated: more of run.replications narrow it"
    return Error("simulation", what, "measured", lo / value, hi / value, "capacity")
