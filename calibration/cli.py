"""The verb ``calibrate``: fit a profile to timed kernels, time them here, show a profile."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from calibration.acceptance.cli import acceptance
from calibration.decoding.cli import decode
from calibration.decoding.heads.cli import train_heads
from calibration.live.calibrate_cli import live
from calibration.live.imports.cli import import_results
from sim.cli import AsJson, Width, screen, write_text

app = typer.Typer(
    help="Fit the kernel constants of a device to timed kernels.",
    no_args_is_help=True,
    add_completion=False,
)

BUDGET_S = 480.0
"""With start, fit and report a run stays within ten minutes."""

Out = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="FILE", help="Profile to write (.yaml); its rows go beside it (.parquet)."
    ),
]


@app.command()
def kernels(
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="System of the tables, as h100_sxm.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME/VERSION", help="Such as vllm/0.24.0.")
    ] = None,
    rows: Annotated[
        list[Path],
        typer.Option(
            "--rows", metavar="FILE", help="Own or Vidur's timings instead (CSV, Parquet); often."
        ),
    ] = [],  # noqa: B006
    gpu: Annotated[
        str | None, typer.Option(help="Catalogue name of what --rows were timed on.")
    ] = None,
    out: Out = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Write the profiles of the catalogue anew.")
    ] = False,
    date: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Date of the profile; default today.")
    ] = None,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Fit a profile to published kernel tables, or to timings of your own.

    Without --system, or without --engine, it lists the tables there are to fit.
    """
    from calibration.kernels import command, output, report
    from sim.output import to_json

    source = command.Source(system, engine, tuple(rows), gpu)
    command.check_options(source, shipped=shipped, out=out, date=date, as_json=as_json)
    if shipped:
        _wrote(command.write_shipped(date))
        return
    if not source.names_rows:
        found = command.listing(system, engine)
        if as_json:
            write_text(to_json({"tables": [one._asdict() for one in found]}))
        else:
            write_text(report.listing_report(found, *screen(width)))
        return
    path = None if out is None else output.check_out(out, rows)
    fitted = command.fit(source, path, date)
    if as_json:
        write_text(to_json(command.as_json(fitted)))
    else:
        write_text(report.kernels_report(*fitted, *screen(width)))
    if path is not None:
        _wrote(output.write(fitted.profile, fitted.rows, path))


@app.command()
def device(
    out: Annotated[
        str,
        typer.Option("--out", metavar="FILE", help="Profile to write (.yaml); rows go beside it."),
    ],
    name: Annotated[Literal["cuda", "cpu"], typer.Option("--device", help="Where to run.")],
    transformer: Annotated[
        str | None,
        typer.Option(
            help="Whose layers to time; catalogue name or config.json.",
            show_default="llama-3.1-8b on cuda, smollm2-135m on cpu",
        ),
    ] = None,
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel GPUs a replica.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Few shapes, to try it out.")] = False,
    budget_s: Annotated[
        float, typer.Option(min=1, help="Seconds after which no further kernel is begun.")
    ] = BUDGET_S,
    width: Width = None,
) -> None:
    """Time real kernels on this machine and fit a profile to them.

    Interrupted, it goes on where it was. The last line on stdout is JSON.
    """
    from calibration.kernels import command, output, report
    from calibration.kernels.device.resume import enough_time, interruption
    from calibration.kernels.device.run import Options, calibrate_device, partial_of
    from sim import progress

    path = output.check_out(out)
    options = Options(quick=quick, threads=threads, budget_s=budget_s)
    given = f"--device {name} --transformer {transformer}" if transformer else f"--device {name}"
    given += f" --tp {tp} --threads {threads}{' --quick' if quick else ''}"
    try:
        with progress.shown(quiet=False) as bar:
            measured = calibrate_device(name, transformer, tp, path, options, bar.update, _note)
        with enough_time(measured.left, measured.partial):
            fitted = command.fit_device(measured, path, given)
    except KeyboardInterrupt:
        _note(interruption(partial_of(path)))
        raise
    written = output.write(fitted.profile, fitted.rows, path)
    measured.partial.unlink(missing_ok=True)
    write_text(report.kernels_report(*fitted, *screen(width)))
    write_text(json.dumps(measured.summary | {"profile": str(path)}) + "\n")
    _wrote(written)


@app.command("show")
def show_profile(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="Catalogue name or file.")],
    figure: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also draw measured against fitted (.svg, .png)."),
    ] = None,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Show a profile: constants with standard errors, residuals, where it holds."""
    from calibration.kernels import report, show
    from sim.output import to_json

    shown = show.load(profile)
    path = None if figure is None else show.check_figure(figure, shown)
    if as_json:
        write_text(to_json(show.as_json(shown)))
    else:
        write_text(report.profile_report(shown.profile, shown.note, *screen(width)))
    if path is not None:
        show.draw(shown, path)
        _wrote([path])


app.command("acceptance")(acceptance)
app.command()(decode)
app.command("train-heads")(train_heads)
app.command("live")(live)
app.command("import")(import_results)


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _wrote(paths: list[Path]) -> None:
    print(f"wrote {', '.join(str(path) for path in paths)}", file=sys.stderr)


__all__ = ["app"]
