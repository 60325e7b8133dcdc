"""The largest load a strategy holds its SLO at, with what chance leaves open."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from models.residuals import LEVEL
from models.strategies import Strategy
from sim.planning.busy_hour import HOUR, Stretch, load_of, range_of
from sim.planning.guess import expected_load
from sim.planning.hour import Judge, Judged
from sim.planning.search import Root, largest
from sim.progress import OnProgress
from sim.scenario.arrivals import ClosedLoop
from sim.scenario.schema import Scenario

NEAR = 1.15
"""First step of the bracket around a guess or an estimate."""
NARROW = 1.05
"""First step of the bracket around a root already found."""
FIRST, LATER = 9, 6
"""Loads the first replication tries, and each later one, about."""
PARTS = 1000
"""What one load counts in the progress reported."""


class Capacity(NamedTuple):
    """Largest load at which every window holds the SLO.

    Attributes
    ----------
    value : float or None
        Mean over replications of the largest load of each; None where one holds not even the
        least load.
    lo, hi : float or None
        t-interval of that mean, from that of the largest loads that passed to that of the least
        ones that failed: what chance leaves open and what the search does. None with a single
        replication.
    level : float
        Of the interval.
    per_replication : tuple of float
        The largest load of each.
    limited_by : str or None
        What is nearest to its bound there, in most replications.
    simulations : int
        Runs it took.
    simulated : int
        Requests simulated in all of them.
    worst : dict or None
        As ``Judged.worst``, of the first replication at its largest load.
    query_tokens : float or None
        Of a decode step there.
    """

    value: float | None
    lo: float | None
    hi: float | None
    level: float
    per_replication: tuple[float, ...]
    limited_by: str | None
    simulations: int
    simulated: int = 0
    worst: dict[str, Any] | None = None
    query_tokens: float | None = None


def capacity(
    scenario: Scenario,
    strategy: Strategy,
    *,
    guess: float | None = None,
    replications: int = 3,
    tolerance: float = 0.02,
    scale: float = 1.0,
    stretch: Stretch = HOUR,
    enough: float | None = None,
    on_progress: OnProgress | None = None,
    judge: Judge | None = None,
) -> Capacity:
    """Search for the largest load, once a replication, on common random numbers.

    Parameters
    ----------
    scenario : Scenario
    strategy : Strategy
    guess : float, optional
        Where to begin; default what a closed form expects, or else the load the scenario states.
    replications : int
        Workloads, each with a root of its own; a later one starts from the roots before.
    tolerance : float
        Relative width of the last bracket: a load above the root by so much failed.
    scale : float
        Factor on every step time.
    stretch : Stretch
    enough : float, optional
        Do not look beyond this load: where it holds in a replication, that is its root.
    on_progress : callable, optional
        Called with (strategy, done, in all), both about.
    judge : Judge, optional
        Of this scenario, strategy and stretch, where one is at hand.

    Returns
    -------
    Capacity
        In requests or sessions a second (the mean of a day), users of a closed loop, or requests
        for each one of a trace.

    Raises
    ------
    ModelError
        If the model does not fit, or arrivals have no single load.
    """
    judge = judge or Judge(scenario, strategy, stretch)
    guess = guess or expected_load(scenario, judge.setup, stretch.window_s)
    start, step = (guess, NEAR) if guess else (load_of(scenario.workload.arrivals), 2.0)
    search = _Search(judge, scale, tolerance, enough, _Steps(strategy.name, replications))
    search.steps.report = on_progress
    found: list[float] = []
    for replication in range(replications):
        root = search.root(replication, start, NARROW if found else step)
        if root.value is None:
            return search.told(None, found)
        found.append(root.value)
        search.failed.append(root.failed or root.value)
        start = sum(found) / len(found)
    return search.told(sum(found) / len(found), found)


class _Steps:
    """Progress of a search whose length nobody knows: about so many loads."""

    def __init__(self, label: str, replications: int) -> None:
        self._label, self._total = label, FIRST + LATER * (replications - 1)
        self.report: OnProgress | None = None
        self.done = 0.0

    def tell(self, answered: int, of: int) -> None:
        if self.report is not None:
            at = min(self.done + answered / max(of, 1), self._total - 0.001)
            self.report(self._label, int(PARTS * at), PARTS * self._total)

    def replication(self, number: int) -> None:
        self.done = FIRST + LATER * (number - 1) if number else 0.0


class _Search:
    """Judges loads, and remembers what it saw."""

    def __init__(
        self, judge: Judge, scale: float, tolerance: float, enough: float | None, steps: _Steps
    ) -> None:
        self._judge, self._scale, self._tolerance = judge, scale, tolerance
        arrivals = judge.scenario.workload.arrivals
        self._whole = isinstance(arrivals, ClosedLoop)
        self._enough = math.floor(enough) if enough and self._whole else enough
        self._least, self._most = range_of(arrivals, judge.stretch)
        self.steps = steps
        self.runs = self.simulated = 0
        self.failed: list[float] = []
        self._at: list[Judged] = []

    def root(self, replication: int, start: float, step: float) -> Root:
        seen: dict[float, Judged] = {}

        def passes(load: float) -> bool:
            if load not in seen:
                seen[load] = self._run(load, replication)
            return seen[load].met

        self.steps.replication(replication)
        most = self._most
        if self._enough is not None:
            most = max(self._enough, self._least)
        if self._enough is not None and passes(most):
            root = Root(most, 1)
        else:
            root = largest(
                passes,
                start,
                tolerance=self._tolerance,
                least=self._least,
                most=most,
                whole=self._whole,
                step=step,
            )
        if root.value is not None:
            self._at.append(seen[root.value])
        return root

    def _run(self, load: float, replication: int) -> Judged:
        judged = self._judge(
            load, replication=replication, scale=self._scale, on_answers=self.steps.tell
        )
        self.runs += 1
        self.simulated += judged.simulated
        self.steps.done += 1
        return judged

    def told(self, value: float | None, found: Sequence[float]) -> Capacity:
        lo, hi = interval(found)[0], interval(self.failed)[1]
        if value is None:
            lo = hi = None
        named = Counter(at.limited_by for at in self._at)
        first = self._at[0] if self._at else None
        return Capacity(
            value,
            lo,
            hi,
            LEVEL,
            tuple(found),
            named.most_common(1)[0][0] if named else None,
            self.runs,
            self.simulated,
            first.worst if first else None,
            first.query_tokens if first else None,
        )


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float | None, float | None]:
    """Student's t-interval of a mean; None for a single value."""
    from scipy import stats

    n = len(values)
    if n < 2:
        return None, None
    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * math.sqrt(variance / n)
    return mean - half, mean + half


__all__ = ["Capacity", "capacity", "interval"]
