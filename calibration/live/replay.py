"""A recorded stage as a scenario: the very requests, sent as they were, to a simulated server."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from calibration.live.recording import Stage
from models.schema import ModelError
from sim.analysis.metrics import finished
from sim.scenario.schema import Scenario
from sim.scenario.workload import Workload
from sim.tables import Columns, RunTable

STREAM = "live"

LEAST_GAP_S = 1e-3
"""Between the first requests of two users: a server takes them in one by one, and begins with the
first. Assumed."""


def replayed(scenario: Scenario, stage: Stage, run: RunTable, folder: Path) -> Scenario:
    """The scenario with the workload of a recorded stage in place of its own.

    A closed loop has as many users, who take the recorded requests in their order; requests at a
    rate or of a trace come when they were due. Requests that failed are left out, and so is what
    a prefix cache answered.

    Parameters
    ----------
    scenario : Scenario
        Hardware, model, engine and strategies are kept, and how requests are sampled.
    stage : Stage
    run : RunTable
        Its requests.
    folder : Path
        Takes a file with their lengths; the scenario reads it.

    Raises
    ------
    ModelError
        If no request of the stage was answered.
    """
    answered = finished(run.columns)
    count = int(answered.sum())
    if not count:
        raise ModelError(f"no request of stage '{stage.name}' was answered", "requests")
    path = folder / f"{stage.name.replace('=', '_')}_{stage.replication}.csv"
    write_trace(path, run.columns, answered)
    lengths = {"kind": "trace", "file": str(path), "format": "csv"}
    stream: dict[str, Any] = {"name": STREAM, "domain": domain(run.columns)}
    arrivals: dict[str, Any] = lengths
    if "concurrency" in stage.point:
        users = stage.point["concurrency"]
        stagger_s = _stagger_s(run.columns, users)
        arrivals = {"kind": "closed_loop", "users": users, "stagger_s": stagger_s}
        stream["lengths"] = {**lengths, "order": "recorded"}
    workload = {
        "arrivals": arrivals,
        "requests": count,
        "sampling": scenario.workload.sampling,
        "streams": [stream],
    }
    # Only the workload is made anew: written out, acceptance would state defaults it excludes.
    changes = {
        "workload": Workload.model_validate(workload),
        "run": scenario.run.model_copy(update={"warmup": 0.0}),
        "vary": {},
    }
    return scenario.model_copy(update=changes)


def write_trace(path: Path, columns: Columns, rows: np.ndarray) -> None:
    """Write arrivals and lengths of some requests, in the order in which they were sent."""
    names = ("arrival_s", "prompt_tokens", "output_tokens")
    kept = {name: columns[name][rows] for name in (*names, "id")}
    order = np.lexsort((kept["id"], kept["arrival_s"]))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(*(kept[name][order].tolist() for name in names), strict=True))


def _stagger_s(columns: Columns, users: int) -> float:
    """Time over which the first requests of all users were sent [s]: never all at one instant."""
    first = np.sort(columns["arrival_s"])[:users]
    return float(max(first[-1] - first[0], LEAST_GAP_S * users))


def domain(columns: Columns) -> str:
    """The commonest kind of text."""
    return str(Counter(columns["domain"].tolist()).most_common(1)[0][0])
