"""The verb ``sweep``: many points of a scenario, over processes or a cluster."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sim import interrupts
from sim.cli import AsJson, Overrides, Scenario, Width, screen, write_text

IN_ORDER = 2
"""Signals only noted while points are simulated: the first ends it in order."""

Out = Annotated[
    str,
    typer.Option("--out", metavar="DIR", help="Write results.parquet, report and maps here."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, max=1024, help="Processes; default one a core.")
]
Dask = Annotated[
    str | None,
    typer.Option("--dask", metavar="ADDRESS", help="Dask scheduler, tcp://HOST:8786 (extra dask)."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Take over from --out the points already simulated.")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="KEY=VALUE,...", help="Your operating point, marked on the maps."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def sweep(
    file: Scenario,
    out: Out,
    overrides: Overrides = [],  # noqa: B006
    jobs: Jobs = None,
    dask: Dask = None,
    resume: Resume = False,
    at: At = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    width: Width = None,
) -> None:
    """Simulate every point of `vary`, in parallel, into one table.

    Each point is kept as it ends: after Ctrl-C, or a kill, --resume goes on where it was. Results
    are the same whatever the number of workers.
    """
    stop = interrupts.Stop()
    try:
        with interrupts.handled(stop):
            with interrupts.leaving_at_once():
                from models.strict_yaml import InputError, read_yaml
                from sim import progress
                from sim.output import to_json
                from sim.planning.jobs import cores
                from sim.planning.sweep import report, whole
                from sim.planning.sweep.at import operating_point
                from sim.planning.sweep.store import check_folder
                from sim.planning.sweep.workers import require_dask
                from sim.scenario.load import expand
                from sim.scenario.vary import MAX_SWEEP

                if dask is not None:
                    require_dask()
                if jobs is not None and dask is not None:
                    raise InputError("", None, "--jobs", "is for processes; leave out --dask")
                expansion = expand(read_yaml(file), overrides, MAX_SWEEP)
                if "vary" not in expansion.document.data:
                    what = "is missing; `speccast run` simulates a single point"
                    raise InputError(str(file), None, "vary", what)
                here = operating_point(at, expansion.unfolded)
                folder = check_folder(out, resume, file)
            with progress.shown(quiet) as bar:

                def on_points(label: str, done: int, total: int) -> None:
                    stop.patience = IN_ORDER
                    stop.check()
                    bar.update(label, done, total)

                wanted = whole.Wanted(folder, jobs or cores(), dask, here)
                document, results = whole.sweep(expansion, wanted, on_points)
            rows = results.to_pylist()
            shown = {**document, "rows": rows}
            write_text(
                to_json(shown) if as_json else report.sweep_report(document, rows, *screen(width))
            )
    except KeyboardInterrupt as error:
        if error.args:
            print(error.args[0], file=sys.stderr)
        raise typer.Exit(stop.status) from None
    if not quiet or stop.asked:
        print(f"wrote {folder}", file=sys.stderr)
    if stop.asked:
        raise typer.Exit(stop.status)


__all__ = ["sweep"]
