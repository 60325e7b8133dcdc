"""A recorded stage as a scenario: the very requests, sent as they were, to a simulated server."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

import numpy as np

from calibration.live.recording import Stage
from calibration.live.repeated import Seen, repeating
from models import catalog
from models.acceptance_file import JSON
from models.schema import ModelError
from sim.analysis.metrics import finished, select
from sim.scenario.schema import Scenario
from sim.scenario.workload import Workload
from sim.tables import Columns, RunTable

STREAM, MIXED = "live", "mixed"

LEAST_GAP_S = 1e-3
"""Between the first requests of two users: a server takes them in one by one, and begins with the
first. Assumed."""

MOST_LOST = 0.05
"""Share of requests without an answer above which a stage was not under the load it is named for.
Assumed."""


def replayed(
    scenario: Scenario, stage: Stage, run: RunTable, folder: Path, repeat: bool = False
) -> Scenario:
    """The scenario with the workload of a recorded stage in place of its own.

    A closed loop has as many users, who take the recorded requests in their order; requests at a
    rate or of a trace come when they were due. Requests that failed are left out. Prompts are
    computed in full, also what a prefix cache answered of them: ``remarks.cached`` says where.

    Parameters
    ----------
    scenario : Scenario
        Hardware, model, engine and strategies are kept, and how requests are sampled.
    stage : Stage
    run : RunTable
        Its requests.
    folder : Path
        Takes a file with their lengths; the scenario reads it.
    repeat : bool
        Strategies repeat what was accepted of each request, where the server told it.

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
    sent = in_order(select(run.columns, answered))
    write_trace(path, sent)
    lengths = {"kind": "trace", "file": str(path), "format": "csv"}
    stream: dict[str, Any] = {"name": STREAM, "domain": MIXED if repeat else domain(sent, path)}
    arrivals: dict[str, Any] = lengths
    if "concurrency" in stage.point:
        # More users than requests were never there.
        users = min(stage.point["concurrency"], count)
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
    if repeat:
        steps = path.with_suffix(JSON)
        seen = Seen(catalog.transformer(scenario.model.transformer).name, _day(stage))
        strategies = (repeating(one, sent, MIXED, steps, seen) for one in scenario.strategies)
        changes["strategies"] = tuple(strategies)
    return scenario.model_copy(update=changes)


def usable(stage: Stage, run: RunTable) -> bool:
    """Whether a stage can be replayed as the load it is named for.

    Not where more than ``MOST_LOST`` of its requests have no answer: those that have one were then
    served beside fewer others than its name says.
    """
    answered = finished(run.columns)
    lost = int((~answered).sum())
    return bool(answered.any()) and lost <= MOST_LOST * answered.size


def _day(stage: Stage) -> str:
    """Day of a stage; that of its replay where nothing says it."""
    return stage.started[:10] or datetime.date.today().isoformat()


def in_order(columns: Columns) -> Columns:
    """Requests in the order in which they were sent."""
    order = np.lexsort((columns["id"], columns["arrival_s"]))
    return select(columns, order)


def write_trace(path: Path, columns: Columns) -> None:
    """Write arrivals and lengths of requests, which are in the order in which they were sent."""
    names = ("arrival_s", "prompt_tokens", "output_tokens")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(*(columns[name].tolist() for name in names), strict=True))


def _stagger_s(columns: Columns, users: int) -> float:
    """Users times the mean gap between their first requests [s]: never all at one instant."""
    first = np.sort(columns["arrival_s"])[:users]
    gap_s = (first[-1] - first[0]) / max(len(first) - 1, 1)
    return float(users * max(gap_s, LEAST_GAP_S))


def domain(columns: Columns, lengths: Path) -> str | dict[str, Any]:
    """Kind of text of a stream that sends these requests, as a scenario states it.

    Parameters
    ----------
    columns : Columns
        Requests in the order in which they are sent.
    lengths : Path
        File of their lengths; where there are several kinds of text, one beside it lists them.
    """
    texts = columns["domain"].tolist()
    if len(set(texts)) == 1:
        return str(texts[0])
    path = domains_file(lengths)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["at", "domain"])
        writer.writerows((place / len(texts), text) for place, text in enumerate(texts))
    return {"kind": "trace", "unit": "share", "file": str(path)}


def domains_file(lengths: Path) -> Path:
    """File of the kinds of text beside a file of lengths."""
    return lengths.with_name(f"{lengths.stem.removesuffix('_lengths')}_domains.csv")
