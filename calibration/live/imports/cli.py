"""``speccast calibrate import``: results of other load generators into an observation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from calibration.live.imports.choices import Format, Mode
from models.strict_yaml import InputError
from sim.cli import AsJson, Width, screen, write_text


def import_results(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT...", help="Files that a load generator left; a row each."),
    ],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder of the observation.")],
    format: Annotated[
        Format, typer.Option("--format", help="What left them; by default told by the file.")
    ] = "auto",
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="{...}",
            help="What the server ran, as in a scenario.",
            show_default="{kind: autoregressive}",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="What to call the strategy.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the results do not say it.")
    ] = None,
    machine: Annotated[str, typer.Option(help="What the server ran on.")] = "unknown",
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Users, where the results do not say it.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second, where the results do not say it.")
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="Which stages, of results that hold several kinds.")
    ] = None,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Import results of vllm bench serve, GuideLLM, AIPerf, or a CSV table of requests.

    The folder is as ``speccast observe`` leaves one: fit it, or compare a prediction with it.
    """
    from calibration.live import observe_report
    from calibration.live.imports import command
    from sim.output import to_json

    if rate is not None and not 0 < rate < float("inf"):
        raise InputError("", None, "--rate", f"must be positive, got {rate}")
    if rate is not None and concurrency is not None:
        raise InputError("", None, "--rate", "and --concurrency exclude each other")
    point: dict[str, float] = {} if rate is None else {"rate_per_s": rate}
    point |= {} if concurrency is None else {"concurrency": concurrency}
    folder = command.check_out(out, results)
    given = command.Given(format, strategy, label, model, machine, mode, point)
    imported = command.read_results(results, given)
    written = command.write(imported, folder)
    said = command.document(imported)
    if as_json:
        write_text(to_json(said))
    else:
        write_text(observe_report.report(said, *screen(width)))
    print(f"wrote {', '.join(str(path) for path in written)}", file=sys.stderr)
