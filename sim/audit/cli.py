"""The verb ``audit``: published claims against the model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sim import interrupts
from sim.cli import AsJson, Width, screen, write_text

File = Annotated[
    Path | None,
    typer.Argument(metavar="[CLAIMS]", help="Claims of your own (YAML); default those shipped."),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Also write report.html, audit.md and pictures."),
]
Only = Annotated[
    list[str], typer.Option("--only", metavar="ID", help="Only this claim; may be given often.")
]
Listed = Annotated[bool, typer.Option("--measures", help="List what a claim can measure.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def audit(
    claims: File = None,
    out: Out = None,
    only: Only = [],  # noqa: B006
    measures: Listed = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    width: Width = None,
) -> None:
    """Ask the model about published claims: reproduced, only if, or why not.

    Ctrl-C ends it early and reports the claims that are complete; nothing is written then.
    """
    stop = interrupts.Stop()
    with interrupts.leaving_at_once():
        from sim import progress
        from sim.audit import load, page, report, run
        from sim.output import to_json
    if measures:
        write_text(report.measures_report(*screen(width)))
        return
    path = load.shipped() if claims is None else claims
    posed = load.load_claims(path, only)
    folder = page.check_out(out, path)
    with interrupts.handled(stop), progress.shown(quiet) as bar:
        try:
            document = run.audit(posed, bar.update)
        except run.Interrupted as error:
            document = error.document
    write_text(to_json(document) if as_json else report.audit_report(document, *screen(width)))
    if document.get("interrupted"):
        done, asked = len(document["claims"]), document["asked"]
        print(f"interrupted: {done} of {asked} claims", file=sys.stderr)
        raise typer.Exit(stop.status)
    if folder is not None:
        with interrupts.handled(stop):
            page.write(document, folder)
        print(f"wrote {folder}", file=sys.stderr)


__all__ = ["audit"]
