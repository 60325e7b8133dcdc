"""The verbs ``capacity`` and ``plan``: how much a deployment carries, and what to buy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sim import interrupts
from sim.cli import AsJson, Overrides, Scenario, Width, screen, write_text

Only = Annotated[
    list[str],
    typer.Option("--only", metavar="STRATEGY", help="Only this strategy; may be given often."),
]
Replications = Annotated[
    int,
    typer.Option(
        "--replications", min=1, max=100, help="Workloads drawn; a largest load is found for each."
    ),
]


def _between(least: float, most: float) -> Callable[[float], float]:
    """A check that, unlike a range of typer's, words what is no number as well."""

    def checked(value: float) -> float:
        if not least <= value <= most:
            raise typer.BadParameter(f"must be {least:g} to {most:g} seconds, got {value:g}")
        return value

    return checked


Hour = Annotated[
    float,
    typer.Option("--hour", callback=_between(1, 1e6), help="Seconds that must hold; from 1."),
]
Lead = Annotated[
    float,
    typer.Option(
        "--lead", callback=_between(0, 1e6), help="Seconds of load before them, not judged."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]

PlanFile = Annotated[Path, typer.Argument(metavar="FILE", help="Plan file (YAML).")]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Also write plan.json, chosen.yaml, report.html."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, max=256, help="Processes; default one a core.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Without the check over a whole day.")]


def capacity(
    file: Scenario,
    overrides: Overrides = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    replications: Replications = 3,
    hour: Hour = 3600.0,
    lead: Lead = 300.0,
    as_json: AsJson = False,
    quiet: Quiet = False,
    width: Width = None,
) -> None:
    """Search the largest load at which each strategy holds the SLO in the worst five minutes.

    Ctrl-C ends it early and prints the strategies that are complete.
    """
    stop = interrupts.Stop()
    with interrupts.leaving_at_once():
        from sim import progress
        from sim.analysis.capacity_report import capacity_report
        from sim.output import to_json
        from sim.planning import by_strategy
        from sim.planning.busy_hour import Stretch
        from sim.scenario.load import load_scenario

        scenario = load_scenario(file, overrides)
        window_s = scenario.resolved.run.window_s
        stretch = Stretch(lead, hour, min(window_s, hour))
        asked = by_strategy.Asked(only, replications, stretch)
        by_strategy.check(scenario, asked, overrides)
    with interrupts.handled(stop), progress.shown(quiet) as bar:
        try:
            document = by_strategy.capacities(scenario, asked, bar.update)
        except by_strategy.Interrupted as error:
            document = error.document
    write_text(to_json(document) if as_json else capacity_report(document, *screen(width)))
    if document.get("interrupted"):
        done = len(document["rows"])
        print(f"interrupted: {done} of {document['asked']} strategies", file=sys.stderr)
        raise typer.Exit(stop.status)


def plan(
    file: PlanFile,
    overrides: Overrides = [],  # noqa: B006
    out: Out = None,
    jobs: Jobs = None,
    quick: Quick = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    width: Width = None,
) -> None:
    """Find what to buy for a demand: the cheapest fleet within the SLO, by strategy and GPU.

    Ctrl-C ends it; nothing is written then.
    """
    stop = interrupts.Stop()
    with interrupts.leaving_at_once():
        from sim import progress
        from sim.analysis.plan_report import plan_report
        from sim.output import to_json
        from sim.planning import candidates, document, page
        from sim.planning.jobs import cores

        asked = candidates.load_plan(file, overrides)
        folder = page.check_out(out, file)
    try:
        with interrupts.handled(stop):
            with progress.shown(quiet) as bar:
                found = document.planned(asked, jobs or cores(), quick, bar.update)
            if folder is not None:
                page.write(found, folder)
    except KeyboardInterrupt:
        print("interrupted: no plan", file=sys.stderr)
        raise typer.Exit(stop.status) from None
    told = found.document
    write_text(to_json(told) if as_json else plan_report(told, *screen(width)))
    if folder is not None and not quiet:
        print(f"wrote {folder}", file=sys.stderr)


__all__ = ["capacity", "plan"]
