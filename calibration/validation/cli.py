"""The verb ``validate``: predictions against what others measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from sim import interrupts
from sim.cli import AsJson, Width, screen, write_text

Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="Also write validation.md and pictures.")
]
Own = Annotated[
    Path | None,
    typer.Option("--cases", metavar="FILE", help="Measured runs of your own (CSV) instead."),
]
One = Annotated[
    str | None, typer.Option("--scenario", metavar="NAME", help="Print the scenario of one case.")
]
Names = Annotated[bool, typer.Option("--list", help="Print the names of the cases.")]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="FILE", help="Also write the error of every figure (CSV)."),
]
Band = Annotated[
    bool | None,
    typer.Option(
        "--band/--no-band",
        help="Simulate both ends of the band too.",
        show_default="with --out only",
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes.", show_default="one a core")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def validate(
    which: Annotated[
        Literal["serving", "prefill", "speculation", "kernels", "all"],
        typer.Argument(metavar="[SUITE]", help="serving, prefill, speculation, kernels or all."),
    ] = "all",
    out: Out = None,
    cases: Own = None,
    scenario: One = None,
    names: Names = False,
    store: Store = None,
    band: Band = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    width: Width = None,
) -> None:
    """Predict runs that others measured, and say how far off it is.

    Ctrl-C ends it early and reports the cases that are complete; nothing is written then.
    """
    stop = interrupts.Stop()
    with interrupts.leaving_at_once():
        from calibration.validation import command, extras, page, report, score
        from calibration.validation.groups import with_groups
        from sim import progress
        from sim.output import to_json
    chosen = command.select(which, cases)
    if names:
        write_text("".join(f"{case.name}\n" for case in chosen))
        return
    if scenario is not None:
        write_text(command.scenario(chosen, scenario))
        return
    written = page.check_out(out, store, cases)
    with interrupts.handled(stop), progress.shown(quiet) as bar:
        found = command.run(chosen, out is not None if band is None else band, jobs, bar.update)
    frame = with_groups(score.table(found.outcomes))
    promised = cases is None and not found.interrupted
    if as_json:
        write_text(to_json(report.as_json(frame, promised)))
    else:
        write_text(report.validation_report(frame, *screen(width), promised))
    if found.interrupted:
        print(f"interrupted: {found.done} of {found.asked} cases", file=sys.stderr)
        raise typer.Exit(stop.status)
    more = extras.Extras()
    if out is not None or store is not None:
        with interrupts.handled(stop), progress.shown(quiet) as bar:
            more = extras.gather(found.outcomes, out is not None, jobs, bar.update)
    if paths := written.write(frame, more):
        print(f"wrote {', '.join(str(path) for path in paths)}", file=sys.stderr)


__all__ = ["validate"]
