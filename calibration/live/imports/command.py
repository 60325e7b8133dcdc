"""What ``speccast calibrate import`` does: results of other tools into one observation."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from calibration.live import recording
from calibration.live.imports import formats
from calibration.live.imports.choices import Format, Mode
from calibration.live.imports.requests import (
    Load,
    Request,
    columns,
    in_order,
    lateness,
    problem,
)
from calibration.live.imports.served import strategy_of
from calibration.live.imports.speculation import acceptance_rows
from calibration.live.recording import Stage
from models.strict_yaml import InputError
from sim.analysis.metrics import histogram_summary
from sim.staging import foreign, obstacle
from sim.tables import ACCEPTANCE, STATUS_NAMES, RunTable, Status

JOURNAL = "journal.jsonl"
"""What only a recording of ``observe`` has."""


class Given(NamedTuple):
    """What the command line says of results that do not say it themselves."""

    format: Format = "auto"
    strategy: str | None = None
    label: str | None = None
    model: str | None = None
    machine: str = "unknown"
    mode: Mode | None = None
    point: Mapping[str, Any] = {}


class Imported(NamedTuple):
    """An observation not yet written; ``notes`` are for people."""

    about: dict[str, Any]
    stages: tuple[Stage, ...]
    runs: tuple[RunTable, ...]
    acceptance: pa.Table | None
    errors: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


def check_out(out: str, results: Sequence[Path]) -> Path:
    """Refuse a folder that cannot be written, or holds what importing would destroy.

    Raises
    ------
    InputError
        As said.
    """
    folder = Path(out)
    names = (recording.ABOUT, recording.TABLE, recording.STAGES)
    files = [path for path in results if path.is_file()]
    found = "needs a folder, got ''" if not out else obstacle(folder, names, *files)
    found = found or foreign(folder, "observe", names)
    if found is None and (folder / JOURNAL).exists():
        found = "holds a recording of `speccast observe`; choose another folder"
    if found is not None:
        raise InputError(out, None, "--out", found)
    return folder


def read_results(results: Sequence[Path], given: Given) -> Imported:
    """Read results into one observation, its stages in order of load.

    Raises
    ------
    InputError
        If a file cannot be read or does not say enough, or the files do not belong together.
    """
    loads = [load for path in results for load in formats.read(path, given.format)]
    loads = [_told(load, given) for load in loads]
    mode = _mode(loads, given.mode)
    loads = [load for load in loads if load.mode == mode]
    label, block = strategy_of(loads, given.strategy, given.label)
    model = _same(loads, "model", given.model, "--model")
    stages, runs, errors, steps = [], [], [], []
    first = 0
    for load, repeat in _repeats(loads):
        requests, start_s = in_order(load, mode)
        run = RunTable(load.point, label, repeat, columns(requests, mode, start_s))
        stage = _stage(load, run, requests, mode)
        errors += [_error(stage, i, each) for i, each in enumerate(requests) if _failed(each)]
        steps += acceptance_rows(requests, first, label)
        first += len(requests)
        stages.append(stage)
        runs.append(run)
    dates = [load.date for load in loads if load.date] or [_day(results[0])]
    about = {
        "made_by": "import",
        "date": min(dates),
        "target": model,
        "machine": given.machine,
        "base_url": next((load.base_url for load in loads if load.base_url), ""),
        "api": next((load.api for load in loads if load.api != "unknown"), "unknown"),
        "mode": mode,
        "server": {"engine": "unknown", "version": None, "info": {}},
        "strategies": {label: block},
        "options": {"tool": loads[0].tool, "files": [_source(load) for load in _files(loads)]},
    }
    table = pa.Table.from_pylist(steps, ACCEPTANCE) if steps else None
    notes = tuple(dict.fromkeys(f"{load.path}: {note}" for load in loads for note in load.notes))
    return Imported(about, tuple(stages), tuple(runs), table, tuple(errors), notes)


def write(imported: Imported, folder: Path) -> list[Path]:
    """Write it to a folder that ``check_out`` let pass; the files."""
    about, stages, runs, acceptance, errors, _ = imported
    return recording.write(folder, about, stages, runs, acceptance=acceptance, errors=errors)


def as_json(imported: Imported) -> dict[str, Any]:
    """What ``--json`` prints: what was imported, without the rows."""
    stages = [
        {**stage._asdict(), "requests": len(run.columns["id"])}
        for stage, run in zip(imported.stages, imported.runs, strict=True)
    ]
    return {**imported.about, "stages": stages, "notes": list(imported.notes)}


def _told(load: Load, given: Given) -> Load:
    """A load with what the command line adds where the file is silent."""
    if load.point:
        return load
    if not given.point:
        needs = "does not say under what load it ran: give --concurrency N or --rate R"
        raise InputError(load.path, None, "", needs)
    mode: Mode = "closed_loop" if "concurrency" in given.point else "open_loop"
    return load._replace(mode=mode, point=dict(given.point))


def _mode(loads: Sequence[Load], wanted: Mode | None) -> Mode:
    counts: dict[str, int] = {}
    for load in loads:
        counts[str(load.mode)] = counts.get(str(load.mode), 0) + 1
    said = ", ".join(f"{n} in {mode}" for mode, n in counts.items())
    if wanted is not None:
        if wanted not in counts:
            raise InputError(loads[0].path, None, "--mode", f"holds no {wanted} stage, got {said}")
        return wanted
    if len(counts) > 1:
        message = f"hold stages of several kinds ({said}): choose one with --mode"
        raise InputError("results", None, "", message)
    return loads[0].mode or "closed_loop"


def _same(loads: Sequence[Load], name: str, given: str | None, option: str) -> str:
    """What all loads say of themselves, or the command line says of them."""
    if given:
        return given
    said = dict.fromkeys(str(getattr(load, name)) for load in loads if getattr(load, name))
    if len(said) != 1:
        what = f"name several ({', '.join(said)})" if said else "do not say it"
        raise InputError("results", None, name, f"{what}: give {option}")
    return next(iter(said))


def _repeats(loads: Sequence[Load]) -> list[tuple[Load, int]]:
    """Loads in order of their point, each with its repeat; equal points are counted."""
    found: list[tuple[Load, int]] = []
    taken: dict[tuple[Any, ...], set[int]] = {}
    for load in sorted(loads, key=lambda load: next(iter(load.point.values()))):
        there = taken.setdefault(tuple(load.point.items()), set())
        repeat = len(there) if load.replication is None else load.replication
        if repeat in there:
            name = Stage(load.point, repeat, "").name
            raise InputError(load.path, None, "replication", f"{repeat} of {name} is there twice")
        there.add(repeat)
        found.append((load, repeat))
    return found


def _stage(load: Load, run: RunTable, requests: Sequence[Request], mode: Mode) -> Stage:
    late, latest_s = lateness(requests, mode)
    ends = run.columns["finish_s"]
    known = ends[ends == ends]
    itl = load.itl
    gaps = {} if not itl else {"count": itl.count, **histogram_summary(itl)._asdict()}
    return Stage(
        load.point,
        run.replication,
        run.strategy,
        load.started,
        float(max(known, default=0.0)),
        late,
        latest_s,
        gaps,
        load.counters,
    )


def _failed(request: Request) -> bool:
    return request.status != Status.FINISHED


def _error(stage: Stage, number: int, request: Request) -> dict[str, Any]:
    values = (stage.name, stage.replication, number, STATUS_NAMES[request.status])
    more = (request.http_status, problem(request))
    return dict(zip(recording.ERROR_COLUMNS, (*values, *more), strict=True))


def _files(loads: Sequence[Load]) -> list[Load]:
    return list({load.path: load for load in loads}.values())


def _source(load: Load) -> dict[str, str]:
    path = Path(load.path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": path.name, "tool": load.tool, "sha256": digest}


def _day(path: Path) -> str:
    """Day a file was last written, where nothing in it says when it was measured."""
    return datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
