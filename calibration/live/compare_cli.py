"""The verb ``compare``: a recorded run against what a scenario predicts of it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from sim import interrupts
from sim.cli import AsJson, Overrides, Scenario, Width, screen, write_text

Runs = Annotated[
    Path, typer.Argument(metavar="RUNS", help="Folder of `speccast observe`, or imported.")
]
Chosen = Annotated[
    str | None,
    typer.Option(
        "--strategy", metavar="NAME", help="Strategy to predict with; default what the server ran."
    ),
]
Figure = Annotated[
    str | None,
    typer.Option("--figure", metavar="FILE", help="Also draw it over the load (.svg, .png)."),
]


def _percent(value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise typer.BadParameter(f"must be a percentage from 0, got {value:g}")
    return value


FailOver = Annotated[
    float | None,
    typer.Option(
        "--fail-over",
        metavar="PERCENT",
        callback=_percent,
        help="Exit 1 if predictions are farther off on average.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def compare(
    runs: Runs,
    file: Scenario,
    overrides: Overrides = [],  # noqa: B006
    strategy: Chosen = None,
    figure: Figure = None,
    fail_over: FailOver = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    width: Width = None,
) -> None:
    """Compare a recorded run with the prediction for the same requests, stage by stage.

    Ctrl-C ends it early and prints the points that are complete; nothing is written then.
    """
    stop = interrupts.Stop()
    with interrupts.leaving_at_once():
        from calibration.live import compare as comparing
        from calibration.live import compare_output, recording
        from calibration.live.compare_report import compare_report
        from sim import progress
        from sim.output import to_json
        from sim.scenario.load import load_scenario

        observation = recording.read(runs)
        scenario = load_scenario(file, overrides)
        picture = None if figure is None else compare_output.check_out(figure, observation, file)
    cut_short = False
    with interrupts.handled(stop), progress.shown(quiet) as bar:
        try:
            found = comparing.compare(observation, scenario, strategy, bar.update)
        except comparing.Interrupted as error:
            found, cut_short = error.comparison, True
    document = found.document() | ({"interrupted": True} if cut_short else {})
    write_text(to_json(document) if as_json else compare_report(document, *screen(width)))
    if cut_short:
        print(f"interrupted: {len(found.rows)} points complete", file=sys.stderr)
        raise typer.Exit(stop.status)
    if picture is not None:
        with interrupts.handled(stop):
            compare_output.draw(document, picture)
        print(f"wrote {picture}", file=sys.stderr)
    if fail_over is not None and (why := compare_output.failure(found, fail_over)):
        print(f"speccast: {why}", file=sys.stderr)
        raise typer.Exit(1)


__all__ = ["compare"]
