"""Who takes the tables of a run: they are handed over as they come, so that nobody holds all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sim.engine.step_rows import OnSteps, StepRow
from sim.run_tables import step_columns
from sim.tables import Columns, RunTable, Status


class Tables(Protocol):
    """Takes the tables of every run: of each first its steps, in parts, then what ends it."""

    @property
    def takes_steps(self) -> bool:
        """Whether step rows are wanted; runs are faster without."""
        ...

    def add_steps(self, run: RunTable) -> None:
        """Take the next steps of a run."""
        ...

    def add_timeline(self, run: RunTable) -> None:
        """Take the time bins of a run."""
        ...

    def add_modes(self, modes: RunTable, switches: RunTable) -> None:
        """Take the modes and switches of a run whose sequences switch between modes."""
        ...

    def add_requests(self, run: RunTable) -> None:
        """Take the requests of a run, which ends it."""
        ...


class KeptTables:
    """Keeps every table in memory, one a run, as notebooks want them."""

    def __init__(self, takes_steps: bool) -> None:
        self.takes_steps = takes_steps
        self.requests: list[RunTable] = []
        self.steps: list[RunTable] = []
        self.timelines: list[RunTable] = []
        self.modes: list[RunTable] = []
        self.switches: list[RunTable] = []
        self._parts: list[Columns] = []

    def add_steps(self, run: RunTable) -> None:
        """Keep the next steps of a run."""
        self._parts.append(run.columns)

    def add_timeline(self, run: RunTable) -> None:
        """Keep the time bins of a run."""
        self.timelines.append(run)

    def add_modes(self, modes: RunTable, switches: RunTable) -> None:
        """Keep the modes of a run over time, and its switches."""
        self.modes.append(modes)
        self.switches.append(switches)

    def add_requests(self, run: RunTable) -> None:
        """Keep the requests of a run, and its steps as one table."""
        self.requests.append(run)
        if self.takes_steps:
            parts, self._parts = self._parts or [step_columns([])], []
            steps = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            self.steps.append(run._replace(columns=steps))


@dataclass
class Collector:
    """Hands the tables of all runs to everyone who takes them.

    Attributes
    ----------
    takers : sequence of Tables
    finished : int
        Finished requests in the tables handed over.
    """

    takers: Sequence[Tables] = ()
    finished: int = 0

    def steps_of(self, run: RunTable) -> OnSteps | None:
        """What takes the step rows of ``run``; None where nobody wants them."""
        takers = [taker for taker in self.takers if taker.takes_steps]

        def hand_over(rows: list[StepRow]) -> None:
            part = run._replace(columns=step_columns(rows))
            for taker in takers:
                taker.add_steps(part)

        return hand_over if takers else None

    def end(
        self,
        run: RunTable,
        requests: Columns,
        timeline: Columns | None = None,
        modes: tuple[Columns, Columns] | None = None,
    ) -> None:
        """Hand over what is known of ``run`` at its end; modes come with the switches of them."""
        self.finished += int(np.equal(requests["status"], Status.FINISHED).sum())
        for taker in self.takers:
            if timeline is not None:
                taker.add_timeline(run._replace(columns=timeline))
            if modes is not None:
                taker.add_modes(*(run._replace(columns=columns) for columns in modes))
            taker.add_requests(run._replace(columns=requests))
