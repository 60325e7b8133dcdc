"""All of one sweep: check the points, simulate those not done, keep each as it ends."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from models.strict_yaml import InputError
from sim.analysis import describe
from sim.document import document_of
from sim.experiment import acceptance_entries
from sim.planning.sweep.columns import schema_of
from sim.planning.sweep.point import Done, Failed, Task, light, versions
from sim.planning.sweep.store import Store
from sim.planning.sweep.workers import Workers
from sim.scenario.load import Expansion, Point, ScenarioFile
from sim.scenario.vary import Variation

TRIES = 3
"""How often a point may lose its worker before the sweep gives up on it."""
LOOK_S = 0.2
"""How long to wait for a point before looking whether the user wants to stop."""

OnPoints = Callable[[str, int, int], None]


class Prepared(NamedTuple):
    """A sweep whose points are known to be good.

    Attributes
    ----------
    expansion : Expansion
    variations : tuple of Variation
        What each point sets, in order.
    file : ScenarioFile
        The scenario with its first point only.
    schema : pyarrow.Schema
        Of the table.
    document : dict
        The result document, without rows but for the catalogue entries they rest on.
    """

    expansion: Expansion
    variations: tuple[Variation, ...]
    file: ScenarioFile
    schema: pa.Schema
    document: dict[str, Any]


class SweepError(RuntimeError):
    """A sweep that cannot go on; what is finished is kept."""


def prepare(expansion: Expansion, on_points: OnPoints = lambda *_: None) -> Prepared:
    """Check every point of a sweep.

    Parameters
    ----------
    expansion : Expansion
    on_points : callable
        Called with (what goes on, points checked, points in all).

    Raises
    ------
    InputError
        At the first point that is no good.
    """
    variations = tuple(expansion.unfolded.points())
    first: list[Point] = []
    entries: set[str] = set()
    checked = 0

    def each(point: Point) -> None:
        nonlocal checked
        if not first:
            first.append(point)
        for strategy in point.scenario.strategies:
            entries.update(acceptance_entries(strategy))
        checked += 1
        on_points("checking", checked, len(variations))

    expansion.check(each)
    file = expansion.file(first)
    document = document_of(file, [{"acceptance_entries": sorted(entries)}], False)
    schema = schema_of(expansion.unfolded)
    return Prepared(expansion, variations, file, schema, document)


def simulate(
    prepared: Prepared, done: Collection[int], workers: Workers, store: Store, on_points: OnPoints
) -> None:
    """Simulate the points that are not done.

    Parameters
    ----------
    prepared : Prepared
    done : collection of int
        Numbers of points already in the store.
    workers : Workers
    store : Store
        Keeps each point as it ends.
    on_points : callable
        Called often with (what goes on, points done now, points to do now); it may raise
        KeyboardInterrupt to stop.

    Raises
    ------
    InputError
        If a worker refuses a point.
    SweepError
        If a point fails, or its worker died ``TRIES`` times.
    """
    _Sweep(prepared, done, workers, store, on_points).run()


class _Sweep:
    """The points that wait, those handed over, and how often each has lost its worker."""

    def __init__(
        self,
        prepared: Prepared,
        done: Collection[int],
        workers: Workers,
        store: Store,
        on_points: OnPoints,
    ) -> None:
        self._prepared, self._workers, self._store = prepared, workers, store
        self._on_points = on_points
        self._count = len(prepared.variations)
        self._waiting = deque(number for number in range(self._count) if number not in done)
        self._todo, self._kept = len(self._waiting), 0
        self._running: dict[Future[Done | Failed], int] = {}
        self._losses: Counter[int] = Counter()
        self._expansion, self._versions = light(prepared.expansion), versions()

    def run(self) -> None:
        while self._waiting or self._running:
            before = self._count - self._todo
            label = f"{before + self._kept} of {self._count} points"
            self._on_points(label, self._kept, self._todo)
            gone = self._workers.lost()
            if gone:
                raise SweepError(gone + self._keeps())
            whole = self._hand_over()
            ended, _ = wait(self._running, LOOK_S, FIRST_COMPLETED)
            in_order = sorted(ended, key=self._running.__getitem__)
            lost = [number for number in map(self._take, in_order) if number is not None]
            if lost or not whole:
                self._recover(lost)
        self._on_points(f"{self._count} of {self._count} points", self._kept, self._todo)

    def _hand_over(self) -> bool:
        """Fill up; a point that has lost a worker runs alone. False where a worker has died."""
        while self._waiting and len(self._running) < self._room():
            number = self._waiting[0]
            try:
                future = self._workers.submit(self._task(number))
            except BrokenExecutor:
                return False
            self._running[future] = self._waiting.popleft()
        return True

    def _room(self) -> int:
        suspects = (self._waiting[0], *self._running.values())
        return 1 if any(self._losses[number] for number in suspects) else self._workers.ahead

    def _task(self, number: int) -> Task:
        prepared = self._prepared
        variation = prepared.variations[number]
        return Task(number, self._expansion, variation, prepared.schema, self._versions)

    def _take(self, future: Future[Done | Failed]) -> int | None:
        """Keep what a point brought; its number where its worker died."""
        number = self._running.pop(future)
        try:
            outcome = future.result()
        except (BrokenExecutor, CancelledError):
            return number
        except Exception as error:
            raise self._lost(number, f"{type(error).__name__}: {error}") from None
        if isinstance(outcome, Failed):
            if outcome.bad_input:
                raise InputError("", None, "", self._told(number, outcome.message))
            raise self._lost(number, outcome.message)
        self._store.keep(outcome.number, outcome.content)
        self._kept += 1
        self._losses.pop(number, None)
        return None

    def _recover(self, lost: list[int]) -> None:
        """Try again, in order, what was handed over when a worker died."""
        if self._workers.retries:
            wait(self._running)
            lost += [
                number for number in map(self._take, list(self._running)) if number is not None
            ]
        self._losses.update(lost)
        for number in lost:
            if self._losses[number] >= TRIES:
                raise self._lost(number, f"its worker died {TRIES} times, out of memory?")
        self._waiting.extendleft(sorted(lost, reverse=True))
        self._workers.renew()

    def _lost(self, number: int, why: str) -> SweepError:
        return SweepError(self._told(number, why))

    def _told(self, number: int, why: str) -> str:
        values = {one.name: one.value for one in self._prepared.variations[number]}
        where = describe.point(values)
        at = f" ({where})" if where else ""
        return f"point {number}{at}: {why}{self._keeps()}"

    def _keeps(self) -> str:
        """What is kept, to end a message with."""
        done = self._count - self._todo + self._kept
        kept = f"; {done} of {self._count} points are kept in {self._store.path}: --resume goes on"
        return kept if done else ""


def write_pages(
    folder: Path, results: pa.Table, file: ScenarioFile, at: Mapping[str, float] | None = None
) -> list[str]:
    """Write what is made of the table for people; names of the files."""
    from sim.analysis.map_report import write_report

    return write_report(folder, results, file, at)
