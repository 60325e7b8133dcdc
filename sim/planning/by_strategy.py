"""The capacity of every strategy of a scenario file, with the ends of its step-time band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from models.schema import ModelError
from models.strategies import Strategy
from models.strict_yaml import InputError
from sim.analysis import describe
from sim.band import Scale, step_scale
from sim.document import document_of
from sim.planning.busy_hour import HOUR, Stretch, unit_of
from sim.planning.capacity import Capacity, capacity
from sim.planning.hour import Judge, bounds_of
from sim.progress import OnProgress
from sim.scenario.load import Point, ScenarioFile, explained
from sim.scenario.schema import Scenario

Json = dict[str, Any]


class Interrupted(KeyboardInterrupt):
    """The search was stopped; ``document`` holds the strategies that are complete."""

    def __init__(self, document: Json) -> None:
        super().__init__()
        self.document = document


@dataclass(frozen=True)
class Asked:
    """What is searched for.

    Attributes
    ----------
    only : sequence of str
        Names of strategies; empty for all.
    replications : int
    stretch : Stretch
    """

    only: Sequence[str] = ()
    replications: int = 3
    stretch: Stretch = HOUR


def check(file: ScenarioFile, asked: Asked, overrides: Sequence[str] = ()) -> None:
    """Refuse what cannot be searched, before anything is simulated.

    Parameters
    ----------
    file : ScenarioFile
    asked : Asked
    overrides : sequence of str
        Those the file was loaded with.

    Raises
    ------
    InputError
        If no strategy has a name asked for, the arrivals of a point have no single load, or no
        bound limits it.
    """
    names = [strategy.name for strategy in file.resolved.strategies]
    for name in asked.only:
        if name not in names:
            known = ", ".join(f"'{one}'" for one in names)
            message = f"no strategy '{name}'; there are {known}"
            raise InputError(file.document.path, None, "--only", message)
    for point in file.points:
        try:
            bounds_of(point.scenario)
        except ModelError as error:
            raise explained(file, overrides, error) from None


def capacities(file: ScenarioFile, asked: Asked, on_progress: OnProgress | None = None) -> Json:
    """Search the capacity of every strategy at every point.

    Parameters
    ----------
    file : ScenarioFile
    asked : Asked
    on_progress : callable, optional
        Called with (what runs, done, in all); it may raise KeyboardInterrupt.

    Returns
    -------
    dict
        JSON-ready: what ``sim.document.document_of`` states, ``unit``, ``stretch``,
        ``replications``, and ``rows``, one a strategy and point, plain decoding first.

    Raises
    ------
    Interrupted
        On KeyboardInterrupt, if a strategy is complete.
    """
    rows: list[Json] = []
    todo = list(_todo(file, asked.only))
    interrupted = False
    try:
        for number, (point, strategy) in enumerate(todo):
            part = _Part(on_progress, number, len(todo), point)
            row = _row(point, strategy, asked, part)
            rows.append(row | {"ratio": _ratio(row, rows)})
    except KeyboardInterrupt:
        if not rows:
            raise
        interrupted = True
    document = _document(file, asked, rows, interrupted)
    if interrupted:
        raise Interrupted(document | {"asked": len(todo)})
    return document


def _todo(file: ScenarioFile, only: Sequence[str]) -> Iterator[tuple[Point, Strategy]]:
    for point in file.points:
        scenario = point.scenario
        for index in sorted(range(len(scenario.strategies)), key=lambda i: i != scenario.baseline):
            strategy = scenario.strategies[index]
            if not only or strategy.name in only:
                yield point, strategy


def _document(file: ScenarioFile, asked: Asked, rows: list[Json], interrupted: bool) -> Json:
    return document_of(file, rows, interrupted) | {
        "unit": unit_of(file.resolved.workload.arrivals),
        "stretch": asked.stretch._asdict(),
        "replications": asked.replications,
    }


class _Part:
    """Share of the whole progress that one strategy at one point is: three searches."""

    SEARCHES = 3

    def __init__(self, report: OnProgress | None, number: int, of: int, point: Point) -> None:
        self._report, self._at, self._of = report, number * self.SEARCHES, of * self.SEARCHES
        self._where = point.values

    def next(self) -> OnProgress | None:
        at, report = self._at, self._report
        self._at += 1
        if report is None:
            return None

        def tell(label: str, done: int, total: int) -> None:
            report(describe.run(label, self._where), at * total + done, self._of * total)

        return tell


def _row(point: Point, strategy: Strategy, asked: Asked, part: _Part) -> Json:
    scenario = point.scenario
    judge = Judge(scenario, strategy, asked.stretch)
    found = capacity(
        scenario,
        strategy,
        replications=asked.replications,
        on_progress=part.next(),
        judge=judge,
    )
    setup = judge.setup
    scale = step_scale(setup, found.query_tokens or setup.rules.width)
    gpus = setup.deployment.gpus
    return {
        "strategy": strategy.name,
        "point": dict(point.values),
        "baseline": scenario.baseline is not None
        and strategy is scenario.strategies[scenario.baseline],
        "hypothetical": setup.hypothetical,
        "gpus": gpus,
        "capacity": found.value,
        "interval": {"lo": found.lo, "hi": found.hi, "level": found.level},
        "per_replication": list(found.per_replication),
        "per_gpu": found.value and found.value / gpus,
        "limited_by": found.limited_by,
        "worst": found.worst,
        "band": _band(scenario, judge, found, scale, part),
        "simulations": found.simulations,
        "simulated": found.simulated,
    }


def _band(
    scenario: Scenario, judge: Judge, found: Capacity, scale: Scale, part: _Part
) -> Json | None:
    """Capacity where every step takes as long as the ends of the band say.

    Searched on the first workload: what it gains there over its own root, the mean gains.
    """
    if found.value is None:
        return None
    strategy, own = judge.setup.strategy, found.per_replication[0]

    def at(factor: float) -> float | None:
        end = capacity(
            scenario,
            strategy,
            guess=own / factor,
            replications=1,
            scale=factor,
            stretch=judge.stretch,
            on_progress=part.next(),
            judge=judge,
        )
        return None if end.value is None else found.value * end.value / own  # type: ignore[operator]

    slow, fast = at(scale.hi), at(scale.lo)
    return {"lo": slow, "hi": fast, "level": scale.level, "basis": scale.basis}


def _ratio(row: Json, before: Sequence[Json]) -> float | None:
    """Capacity over that of plain decoding at the same point."""
    plain = row
    if not row["baseline"]:
        same = [one for one in before if one["baseline"] and one["point"] == row["point"]]
        if not same:
            return None
        plain = same[0]
    return row["capacity"] / plain["capacity"] if row["capacity"] and plain["capacity"] else None


__all__ = ["Asked", "Interrupted", "capacities", "check"]
