"""The file of ``speccast run --perfetto``: a window of the runs, to be read like a profile."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from models.strict_yaml import InputError
from sim.analysis import describe
from sim.analysis.metrics import Window
from sim.analysis.perfetto import Event, RunTrace
from sim.interrupts import held
from sim.output import FILES, SWITCHING
from sim.staging import obstacle, staged
from sim.tables import Columns, RunTable


def parse_window(text: str) -> Window:
    """Read ``600:660``, seconds of simulated time.

    Raises
    ------
    InputError
        If it is anything else, or empty.
    """
    begin, _, end = text.partition(":")
    with contextlib.suppress(ValueError):
        window = Window(float(begin), float(end))
        if 0 <= window.start_s < window.end_s < math.inf:
            return window
    what = f"must be two times in seconds, as in 600:660, got '{text}'"
    raise InputError("", None, "--perfetto-window", what)


def check_trace(file: str, scenario: Path, folder: Path | None) -> Path:
    """Refuse a trace that cannot be written, before anything is simulated.

    Parameters
    ----------
    file : str
        As the user gave it.
    scenario : Path
        The input file, which a result may not replace.
    folder : Path or None
        Where the files of ``--out`` go, which it may not replace either.

    Raises
    ------
    InputError
        If it is a folder, cannot be written, or is the input, a file of ``--out`` or a device.
    """
    path = Path(file)
    problem = "needs a file, got ''" if not file else obstacle(path.parent, [path.name], scenario)
    taken = [] if folder is None else [(folder / name).resolve() for name in (*FILES, *SWITCHING)]
    if problem is None and path.resolve() in taken:
        problem = "is one of the files of --out"
    if problem is not None:
        raise InputError(file, None, "--perfetto", problem)
    return path


class PerfettoFile:
    """Writes events as the tables come; the file appears only when complete.

    A context manager. The first replication of every strategy is shown, each as a process. The
    same result gives the same bytes.

    Parameters
    ----------
    path : Path
    window : Window
        What to show [s].

    Raises
    ------
    OSError
        From any method, if the disk refuses.
    """

    takes_steps = True

    def __init__(self, path: Path, window: Window) -> None:
        self.path, self.window = path, window
        self._span: Window | None = None
        self._written = self._events = 0
        self._processes = 0
        self._run: RunTrace | None = None

    def __enter__(self) -> PerfettoFile:
        with contextlib.ExitStack() as stack:
            self._staging = stack.enter_context(staged(self.path.parent)) / self.path.name
            self._file = stack.enter_context(self._staging.open("w", encoding="ascii"))
            self._stack = stack.pop_all()
        self._file.write('{"displayTimeUnit":"ms","traceEvents":[')
        return self

    def add_steps(self, run: RunTable) -> None:
        """Write the next steps of a run."""
        if not run.replication:
            self._count(self._shown().steps(run.columns))

    def add_timeline(self, run: RunTable) -> None:
        """Leave the time bins out: counters show every step."""

    def add_modes(self, modes: RunTable, switches: RunTable) -> None:
        """Leave the modes out."""

    def add_requests(self, run: RunTable) -> None:
        """Write the requests of a run, and its name."""
        if run.replication:
            return
        shown = self._shown()
        self._count(shown.idle())
        self._count(shown.requests(run.columns, run.names))
        name = describe.run(run.strategy, run.point)
        self._write(shown.names(name, f"replication {run.replication}"))
        self._widen(run.columns, shown.end_s)
        self._run = None

    def _shown(self) -> RunTrace:
        if self._run is None:
            self._processes += 1
            self._run = RunTrace(self._processes, self.window)
        return self._run

    def _widen(self, requests: Columns, end_s: float) -> None:
        arrivals = requests["arrival_s"]
        begin_s = float(arrivals[arrivals >= 0].min(initial=math.inf))
        if begin_s < math.inf:
            before = self._span or Window(begin_s, end_s)
            self._span = Window(min(before.start_s, begin_s), max(before.end_s, end_s))

    def _count(self, events: Iterable[Event]) -> None:
        self._events += self._write(events)

    def _write(self, events: Iterable[Event]) -> int:
        """Append events; how many there were."""
        before = self._written
        for event in events:
            self._file.write(",\n" if self._written else "\n")
            self._file.write(json.dumps(event, allow_nan=False, separators=(",", ":")))
            self._written += 1
        return self._written - before

    def finish(self, document: Mapping[str, Any]) -> str | None:
        """Close the list of events and move the file into place; a warning if it shows nothing."""
        self._file.write("\n]}\n")
        self._file.close()
        with held():
            self._staging.replace(self.path)
        if self._events or self._span is None:
            return None
        ours, theirs = self.window, self._span
        return (
            f"{self.path}: nothing happens from {ours.start_s:g} to {ours.end_s:g} s: "
            f"the runs span {theirs.start_s:.3f} to {theirs.end_s:.3f} s"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
