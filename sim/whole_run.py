"""All of one ``speccast run``: what is written is checked first, and Ctrl-C keeps what is there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from models.strict_yaml import InputError
from sim import experiment, progress
from sim.collect import Tables
from sim.interrupts import Stop
from sim.output import OutputFolder, check_folder, tables_of
from sim.perfetto_file import PerfettoFile, check_trace, parse_window
from sim.resume import NOTHING, complete_points
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import ScenarioFile

IN_ORDER, WRITING = 2, 1
"""Signals only noted while simulating, where one ends it in order, and while writing."""


class Output(Tables, contextlib.AbstractContextManager["Output"], Protocol):
    """Takes tables as they come; nothing appears at ``path`` before it is complete."""

    path: Path

    def finish(self, document: Mapping[str, Any]) -> str | None:
        """Make it appear; a warning, if there is one."""
        ...


class Prepared(NamedTuple):
    """What is to be simulated, and written.

    Attributes
    ----------
    scenario : ScenarioFile
    outputs : list of Output
    rows : list of dict
        Rows of the first points, taken over from an earlier run.
    """

    scenario: ScenarioFile
    outputs: list[Output]
    rows: list[dict[str, Any]]


def prepare(
    scenario: ScenarioFile,
    file: Path,
    folder: str | None = None,
    trace: str | None = None,
    window: str | None = None,
    resume: bool = False,
) -> Prepared:
    """Find out whether everything asked for can be written.

    Parameters
    ----------
    scenario : ScenarioFile
    file : Path
        Where it came from, which is not to be replaced.
    folder, trace, window : str, optional
        ``--out``, ``--perfetto`` and ``--perfetto-window`` as the user gave them.
    resume : bool
        Take over what ``folder`` holds of an earlier run.

    Raises
    ------
    InputError
        If something is in the way.
    """
    outputs: list[Output] = []
    path = None if folder is None else check_folder(folder, file)
    rows: list[dict[str, Any]] = []
    if resume and (path is None or trace is not None):
        why = "needs --out" if path is None else "leaves out of --perfetto what it takes over"
        raise InputError("", None, "--resume", why)
    if path is not None:
        earlier = complete_points(path, scenario) if resume else NOTHING
        rows = earlier.rows
        text, tables = resolved_yaml(scenario.resolved), tables_of(scenario)
        outputs.append(OutputFolder(path, text, earlier.tables, tables))
    if trace is not None:
        shown = parse_window("0:60" if window is None else window)
        outputs.append(PerfettoFile(check_trace(trace, file, path), shown))
    elif window is not None:
        raise InputError("", None, "--perfetto-window", "needs --perfetto")
    return Prepared(scenario, outputs, rows)


def simulate_and_write(
    prepared: Prepared, stop: Stop, quiet: bool
) -> tuple[dict[str, Any], list[str]]:
    """Simulate with a bar on stderr, and finish the outputs.

    Parameters
    ----------
    prepared : Prepared
    stop : Stop
        The signal handler in place: once a strategy runs, a first signal ends the run in order.
    quiet : bool
        Show no bar.

    Returns
    -------
    The result document, and warnings.

    Raises
    ------
    KeyboardInterrupt
        If nothing is kept: no request had finished, or writing was cut off.
    """
    scenario, outputs, rows = prepared
    with progress.shown(quiet) as bar, contextlib.ExitStack() as stack:

        def on_progress(label: str, done: int, total: int) -> None:
            stop.patience = IN_ORDER
            stop.check()
            bar.update(label, done, total)

        tables = [stack.enter_context(output) for output in outputs]
        try:
            document = experiment.run(scenario, on_progress, tables=tables, rows=rows).document
        except experiment.Interrupted as stopped:
            document = stopped.result.document
        stop.patience = WRITING
        with bar.writing():
            warnings = [_finished(output, document) for output in outputs]
    return document, [warning for warning in warnings if warning]


def _finished(output: Output, document: Mapping[str, Any]) -> str | None:
    try:
        return output.finish(document)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted while writing {output.path}") from None
