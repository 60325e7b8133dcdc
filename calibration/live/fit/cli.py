"""The verb ``speccast calibrate live``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from sim.cli import AsJson, Overrides, Width, screen, write_text


def live(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Folders of speccast observe.")
    ],
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help="GPU or profile: catalogue name, or a profile file.")
    ],
    transformer: Annotated[
        str, typer.Option(metavar="NAME", help="Catalogue name, or a config.json.")
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="Scenario to write; files go beside it.")
    ],
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel GPUs a replica.")] = 1,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Catalogue name of the engine version, or a file.",
            show_default="what the server said it is",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="What the server ran, a kind or a YAML block.",
            show_default="as observed",
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("--k", min=1, max=64, help="Its draft tokens.")] = None,
    loads: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Fit on these concurrencies or rates.", show_default="all"
        ),
    ] = None,
    overrides: Overrides = [],  # noqa: B006
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    width: Width = None,
) -> None:
    """Fit host times, bandwidth and compute of a server to how it answered.

    Writes a scenario that runs as it is: the server as observed, with plain decoding beside it.
    """
    from calibration.live.fit import command as calibrate
    from calibration.live.fit import files as calibrated_files
    from calibration.live.fit import report as fit_report
    from sim import progress
    from sim.output import to_json

    wanted = calibrate.loads_of(loads) if loads else ()
    asked = calibrate.Asked(
        tuple(runs), hardware, transformer, tp, engine, strategy, k, wanted, tuple(overrides)
    )
    path = calibrated_files.check_out(out, calibrated_files.inputs_of(asked))
    with progress.shown(quiet) as bar:
        found = calibrate.calibrate(asked, lambda done: bar.update("fitting", done, 0))
    command = shlex.join(["speccast", *sys.argv[1:]])
    written = calibrated_files.write(found, path, command)
    if as_json:
        write_text(to_json(fit_report.as_json(found)))
    else:
        write_text(fit_report.report(found, *screen(width)))
    print(f"wrote {', '.join(str(file) for file in written)}", file=sys.stderr)


__all__ = ["live"]
