"""All of one ``speccast run``: what is written is checked first, and Ctrl-C keeps what is there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from models.strict_yaml import InputError
from sim import experiment, progress
from sim.collect import Tables
from sim.interrupts import Stop
from sim.output import OutputFolder, check_file, check_folder
from sim.perfetto_file import PerfettoFile, parse_window
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


def outputs_of(
    scenario: ScenarioFile,
    file: Path,
    folder: str | None = None,
    trace: str | None = None,
    window: str | None = None,
) -> list[Output]:
    """What is to be written, if it can be.

    Parameters
    ----------
    scenario : ScenarioFile
    file : Path
        Where it came from, which is not to be replaced.
    folder, trace, window : str, optional
        ``--out``, ``--perfetto`` and ``--perfetto-window`` as the user gave them.

    Raises
    ------
    InputError
        If something is in the way.
    """
    outputs: list[Output] = []
    path = None if folder is None else check_folder(folder, file)
    if path is not None:
        outputs.append(OutputFolder(path, resolved_yaml(scenario.resolved)))
    if trace is not None:
        shown = parse_window("0:60" if window is None else window)
        outputs.append(PerfettoFile(check_file("--perfetto", trace, file, path), shown))
    elif window is not None:
        raise InputError("", None, "--perfetto-window", "needs --perfetto")
    return outputs


def simulate_and_write(
    scenario: ScenarioFile, outputs: list[Output], stop: Stop, quiet: bool
) -> tuple[dict[str, Any], list[str]]:
    """Simulate with a bar on stderr, and finish the outputs.

    Parameters
    ----------
    scenario : ScenarioFile
    outputs : list of Output
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
    with progress.shown(quiet) as bar, contextlib.ExitStack() as stack:

        def on_progress(label: str, done: int, total: int) -> None:
            stop.patience = IN_ORDER
            stop.check()
            bar.update(label, done, total)

        tables = [stack.enter_context(output) for output in outputs]
        try:
            document = experiment.run(scenario, on_progress, tables=tables).document
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
