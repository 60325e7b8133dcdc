"""The JSON document of a run: what was asked, what it rests on, and a row a strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models import catalog
from sim.scenario.build import build
from sim.scenario.load import ScenarioFile
from sim.scenario.trace.schema import Trace

Row = dict[str, Any]


def document_of(scenario_file: ScenarioFile, rows: list[Row], interrupted: bool) -> Row:
    """What ``speccast run --json`` prints.

    Parameters
    ----------
    scenario_file : ScenarioFile
    rows : list of dict
        One for each point and strategy.
    interrupted : bool
        Whether rows are missing because the run was stopped.
    """
    first, asked = build(scenario_file.points[0].scenario), scenario_file.resolved.hardware
    table = catalog.table_file(asked.profile or first.profile.name, first.profile)
    question = scenario_file.document.comment
    return {
        **({"question": question} if question else {}),
        "scenario": first.shown(scenario_file.resolved),
        "seed": scenario_file.resolved.run.seed,
        "profile": first.profile.name,
        **({"kernel_table": str(table)} if first.kernel_table else {}),
        **_traces(scenario_file),
        "rows": rows,
        **({"interrupted": True} if interrupted else {}),
    }


def _traces(scenario_file: ScenarioFile) -> Row:
    """What the first point replays as ``trace``; ``traces`` too where the file varies."""
    found: Row = {}
    for _, scenario in scenario_file.points:
        arrivals = scenario.workload.arrivals
        if isinstance(arrivals, Trace) and arrivals.file not in found:
            from sim.scenario.trace.replay import summary

            folder = Path(scenario_file.document.path).resolve().parent
            said = summary(scenario.workload, arrivals, scenario.run.seed, folder)
            found[arrivals.file] = said
    traces = list(found.values())
    several = {"traces": traces} if len(traces) > 1 else {}
    return {"trace": traces[0], **several} if traces else {}
