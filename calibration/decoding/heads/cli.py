"""The command ``calibrate train-heads``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sim.cli import AsJson, Width, screen, write_text


def train_heads(
    out: Annotated[
        str, typer.Option("--out", metavar="FOLDER", help="Folder for weights and heads.json.")
    ],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Target: smollm2-135m, or a folder of weights.")
    ] = "smollm2-135m",
    heads: Annotated[int, typer.Option(min=1, max=10, help="Medusa heads.")] = 4,
    parts: Annotated[
        str, typer.Option(metavar="LIST", help="Some of medusa,eagle,draft.")
    ] = "medusa,eagle,draft",
    draft_layers: Annotated[
        int | None,
        typer.Option(min=1, help="Layers of the draft.", show_default="a sixth of the target's"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Most minutes of training a part.", show_default="4"),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Little text, seconds of training: to try it out.")
    ] = False,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Train Medusa heads, an EAGLE layer and a draft on text the target writes itself.

    Interrupted, the same command goes on where it was.
    """
    from calibration.decoding.heads import command
    from calibration.decoding.heads.report import heads_report
    from sim import progress
    from sim.output import to_json

    folder = command.check_out(out)
    chosen = command.parse_parts(parts)
    options = command.Options(model, heads, chosen, draft_layers, minutes, threads, quick)
    try:
        with progress.shown(quiet=False) as bar:
            info = command.train_heads(options, folder, bar.update)
    except KeyboardInterrupt:
        kept = f"interrupted: what is done is kept in {folder}; the same command goes on from there"
        print(kept, file=sys.stderr)
        raise
    if as_json:
        write_text(to_json(info))
    else:
        write_text(heads_report(info, out, *screen(width)))
    print(f"wrote {folder}", file=sys.stderr)
