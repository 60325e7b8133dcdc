"""``speccast calibrate acceptance``: from recorded runs to an acceptance file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sim.cli import AsJson, Width, screen, write_text


def acceptance(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="Folder of recorded runs, or its table.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Acceptance file (.yaml).")],
    strategy: Annotated[
        list[str],
        typer.Option(
            metavar="LABEL={...}", help="What a label of the table is, without run.json; often."
        ),
    ] = [],  # noqa: B006
    check: Annotated[
        bool, typer.Option("--check", help="Fit every other request, check on the rest.")
    ] = False,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Fit acceptance to recorded decoding runs, for use in any scenario.

    Rates by position, their spread between requests and passages, dependence on context.
    """
    from calibration.acceptance import command
    from calibration.acceptance.report import acceptance_report
    from calibration.acceptance.runs import read
    from sim import progress
    from sim.output import to_json

    path = command.check_out(out, runs)
    recorded = read(runs, strategy)
    if recorded.unknown:
        _note(f"left out, no strategies of the simulator: {', '.join(recorded.unknown)}")
    with progress.shown(quiet=False) as bar:
        fitted = command.fit(recorded, check, bar.update)
    if as_json:
        write_text(to_json(command.as_json(fitted)))
    else:
        write_text(acceptance_report(fitted, check, *screen(width)))
    if not command.write(fitted.file, path):
        _note("recorded requests left out: the file would be over 1 MB")
    _note(f"wrote {path}")


def _note(text: str) -> None:
    print(text, file=sys.stderr)
