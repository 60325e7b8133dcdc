"""What ``speccast calibrate import`` does: results of other tools into one observation."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calibration.live import recording, rows
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
from calibration.live.observe import report as observe_report
from calibration.live.observe.journal import FILE as JOURNAL
from calibration.live.recording import Stage
from calibration.live.server.per_request import Speculated, acceptance_columns
from models.strict_yaml import InputError
from sim.staging import foreign, obstacle
from sim.tables import STATUS_NAMES, Columns, RunTable, Status

MOST_LOAD = 10**9
"""Users, or requests a second: more is no load (assumed)."""


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
    """An observation not yet written."""

    about: dict[str, Any]
    stages: tuple[Stage, ...]
    runs: tuple[RunTable, ...]
    acceptance: Columns | None
    errors: tuple[dict[str, Any], ...]

    @property
    def notes(self) -> list[str]:
        """What was left out of it, or is not as it should be."""
        return list(self.about["notes"])


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
    if found is None and any((folder / name).exists() for name in (recording.STAGES, JOURNAL)):
        found = "holds an observation; choose another folder"
    if found is not None:
        raise InputError(out, None, "--out", found)
    recording.check_folder(folder)
    return folder


def read_results(results: Sequence[Path], given: Given) -> Imported:
    """Read results into one observation, its stages in order of load.

    Raises
    ------
    InputError
        If a file cannot be read or does not say enough, or the files do not belong together.
    """
    loads = [load for path in results for load in formats.read(path, given.format)]
    # What a sweep did not say of a stage that is left out does not matter.
    asked = [load for load in loads if load.mode in (None, given.mode or load.mode)]
    loads = [_told(load, given) for load in asked or loads]
    mode = _mode(loads, given.mode)
    loads = [load for load in loads if load.mode == mode]
    label, block = strategy_of(loads, given.strategy, given.label)
    about = _about(loads, given, _day(results[0])) | {"mode": mode, "strategies": {label: block}}
    stages, runs, errors = [], [], []
    told: list[tuple[int, str, Speculated]] = []
    first = 0
    for load, repeat in _repeats(loads):
        requests, start_s = in_order(load, mode)
        run = RunTable(load.point, label, repeat, columns(requests, mode, start_s))
        stage = _stage(load, run, requests, mode)
        errors += [_error(stage, i, each) for i, each in enumerate(requests) if _failed(each)]
        told += _told_steps(requests, first)
        first += len(requests)
        stages.append(stage)
        runs.append(run)
    acceptance, lost = acceptance_columns(label, told)
    about["notes"] = _notes(loads, lost)
    return Imported(about, tuple(stages), tuple(runs), acceptance, tuple(errors))


def write(imported: Imported, folder: Path) -> list[Path]:
    """Write it to a folder that ``check_out`` let pass; the files."""
    about, stages, runs, acceptance, errors = imported
    return recording.write(folder, about, stages, runs, acceptance=acceptance, errors=errors)


def document(imported: Imported) -> dict[str, Any]:
    """What it measured, as ``observe`` has it, and what was left out of it."""
    return observe_report.document(imported.about, imported.stages, imported.runs)


def _notes(loads: Sequence[Load], more: str) -> list[str]:
    """Every remark once, by the name of its file."""
    named = (f"{Path(load.path).name}: {note}" for load in loads for note in load.notes)
    return [*dict.fromkeys(named), *filter(None, [more])]


def _told(load: Load, given: Given) -> Load:
    """A load with what the command line adds where the file is silent."""
    for key, value in load.point.items():
        if not 0 < value < MOST_LOAD:
            message = f"must be positive and below {MOST_LOAD:.0e}, got {value}"
            raise InputError(load.path, None, key, message)
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
        message = f"they hold stages of several kinds ({said}): choose one with --mode"
        raise InputError("results", None, "mode", message)
    return loads[0].mode or "closed_loop"


def _about(loads: Sequence[Load], given: Given, day: str) -> dict[str, Any]:
    """What ``run.json`` says of the results."""
    files = {load.path: load for load in loads}.values()
    return {
        "made_by": "import",
        "date": min([load.date for load in loads if load.date] or [day]),
        "target": _model(loads, given.model),
        "machine": given.machine,
        "base_url": next((load.base_url for load in loads if load.base_url), ""),
        "api": next((load.api for load in loads if load.api != "unknown"), "unknown"),
        "server": {"engine": "unknown", "version": None, "info": {}},
        "options": {"tool": loads[0].tool, "files": [_source(load) for load in files]},
    }


def _model(loads: Sequence[Load], given: str | None) -> str:
    """The model of all loads, or the one the command line says."""
    said = dict.fromkeys(load.model for load in loads if load.model)
    if given is None and len(said) != 1:
        what = f"they name several ({', '.join(said)})" if said else "they do not name it"
        raise InputError("results", None, "model", f"{what}: give --model")
    return given or next(iter(said))


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


def _told_steps(requests: Sequence[Request], first: int) -> list[tuple[int, str, Speculated]]:
    """What was told of speculation; requests are numbered through all stages."""
    return [
        (number, one.domain, one.speculation)
        for number, one in enumerate(requests, first)
        if one.speculation is not None
    ]


def _stage(load: Load, run: RunTable, requests: Sequence[Request], mode: Mode) -> Stage:
    late, latest_s = lateness(requests, mode)
    ends = run.columns["finish_s"]
    known = ends[ends == ends]
    return Stage(
        load.point,
        run.replication,
        run.strategy,
        load.started,
        float(max(known, default=0.0)),
        late,
        latest_s,
        {} if load.itl is None else rows.itl(load.itl),
        load.counters,
    )


def _failed(request: Request) -> bool:
    return request.status != Status.FINISHED


def _error(stage: Stage, number: int, request: Request) -> dict[str, Any]:
    values = (stage.name, stage.replication, number, STATUS_NAMES[request.status])
    more = (request.http_status, problem(request))
    return dict(zip(recording.ERROR_COLUMNS, (*values, *more), strict=True))


def _source(load: Load) -> dict[str, str]:
    path = Path(load.path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": path.name, "tool": load.tool, "sha256": digest}


def _day(path: Path) -> str:
    """Day a file was last written, where nothing in it says when it was measured."""
    return datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
