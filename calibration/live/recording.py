"""The folder of an observation: requests by stage, what the server said, and how it was asked.

``run.json`` says what was observed, ``requests.parquet`` holds a row a request in the schema of the
simulator, ``stages.json`` what belongs to a stage as a whole.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from calibration.live import checked
from models.strict_yaml import InputError
from sim.interrupts import held
from sim.output import to_json
from sim.staging import obstacle, staged
from sim.table_schemas import COUNT, NUMBER, SECONDS, TEXT, field
from sim.tables import (
    ACCEPTANCE,
    REQUESTS,
    Columns,
    ParquetFile,
    RunTable,
    run_to_arrow,
    text_of,
    to_arrow,
    to_columns,
    write_parquet,
)

VERSION = 1
ABOUT, TABLE, STAGES = "run.json", "requests.parquet", "stages.json"
STEPS_TABLE, SAMPLES, ERRORS, TEXTS = (
    "acceptance.parquet",
    "server.parquet",
    "errors.csv",
    "metrics",
)
ERROR_COLUMNS = ("point", "replication", "id", "status", "http_status", "message")

SERVER = pa.schema(
    [
        field("point", TEXT, "", "stage, as in the request table"),
        field("replication", COUNT, "", "0, 1, ...: repeat of the stage"),
        field("at_s", SECONDS, "s", "since the start of the stage"),
        field("name", TEXT, "", "what is measured, by one name for every server"),
        field("value", NUMBER, "", "in the unit its name carries"),
    ]
)


class Stage(NamedTuple):
    """One stage of load.

    Attributes
    ----------
    point : dict
        What sets it, under one key: ``concurrency``, ``rate_per_s`` or ``rate_scale``.
    replication : int
        0, 1, ...: repeat.
    strategy : str
        Label of the strategy the server ran.
    started : str
        ISO time, UTC.
    duration_s : float
        From the first request to the end of the last [s].
    late : int
        Requests sent later than they were due.
    latest_s : float
        By how much the latest of them was late [s].
    itl : dict
        Gaps between chunks: count, mean and quantiles [s]; a chunk may carry several tokens.
    counters : dict
        Increase of the server's counters over the stage, by one name for every server.
    gauges : dict
        Mean and max of its gauges.
    """

    point: dict[str, Any]
    replication: int
    strategy: str
    started: str = ""
    duration_s: float = 0.0
    late: int = 0
    latest_s: float = 0.0
    itl: dict[str, float | int | None] = {}  # noqa: RUF012
    counters: dict[str, float] = {}  # noqa: RUF012
    gauges: dict[str, dict[str, float]] = {}  # noqa: RUF012

    @property
    def name(self) -> str:
        """Its point as one word, as ``concurrency=8``."""
        return " ".join(f"{key}={text_of(value)}" for key, value in self.point.items())


class Observation(NamedTuple):
    """What a folder holds.

    Attributes
    ----------
    folder : Path
    about : dict
        ``run.json``.
    stages : tuple of Stage
    runs : tuple of RunTable
        Request table of each stage; ``stream`` and ``domain`` are spelled out.
    acceptance : Columns or None
        Steps of requests, where the server tells them.
    """

    folder: Path
    about: dict[str, Any]
    stages: tuple[Stage, ...]
    runs: tuple[RunTable, ...]
    acceptance: Columns | None = None

    @property
    def label(self) -> str:
        """Label of the strategy the server ran."""
        return str(next(iter(self.about["strategies"])))

    @property
    def block(self) -> dict[str, Any]:
        """Its block in a scenario, without acceptance."""
        return dict(self.about["strategies"][self.label])


def check_folder(folder: Path) -> None:
    """Refuse a folder in which an observation could not be written.

    Raises
    ------
    InputError
        That names what is in the way; key ``--out``.
    """
    found = obstacle(folder, (ABOUT, TABLE, STAGES, STEPS_TABLE, SAMPLES, ERRORS))
    texts = folder / TEXTS
    if found is None and (texts.exists() or texts.is_symlink()) and not texts.is_dir():
        found = f"needs a folder '{texts}' for what the server says, a file is in its place"
    if found is not None:
        raise InputError(str(folder), None, "--out", found)


def write(
    folder: Path,
    about: Mapping[str, Any],
    stages: Sequence[Stage],
    runs: Sequence[RunTable],
    *,
    acceptance: pa.Table | Columns | None = None,
    samples: Iterable[Mapping[str, Any]] = (),
    texts: Mapping[str, str] | None = None,
    errors: Iterable[Mapping[str, Any]] = (),
) -> list[Path]:
    """Write an observation; all files appear together, and those of an earlier one are replaced.

    Parameters
    ----------
    folder : Path
        Made where it is missing.
    about : mapping
        ``run.json`` without its ``version`` and ``kind``.
    stages : sequence of Stage
    runs : sequence of RunTable
        Request table of each stage, in the same order.
    acceptance : pyarrow.Table or Columns, optional
        In the schema of acceptance.
    samples : iterable of mapping
        Rows of ``server.parquet``.
    texts : mapping, optional
        What the server said of itself: name of a file -> text.
    errors : iterable of mapping
        Rows of ``errors.csv``.

    Returns
    -------
    list of Path
        Files written.
    """
    made: list[str] = [ABOUT, TABLE, STAGES]
    with staged(folder) as staging:
        head = {"version": VERSION, "kind": "live", **about}
        (staging / ABOUT).write_text(to_json(head), "utf-8")
        listed = {"stages": [stage._asdict() for stage in stages]}
        (staging / STAGES).write_text(to_json(listed), "utf-8")
        with ParquetFile(staging / TABLE, REQUESTS) as file:
            for run in runs:
                file.write(run_to_arrow(REQUESTS, run))
        if acceptance is not None:
            whole = isinstance(acceptance, pa.Table)
            steps = acceptance if whole else to_arrow(ACCEPTANCE, acceptance)
            write_parquet(steps, staging / STEPS_TABLE)
            made.append(STEPS_TABLE)
        if rows := list(samples):
            write_parquet(pa.Table.from_pylist(rows, SERVER), staging / SAMPLES)
            made.append(SAMPLES)
        if problems := list(errors):
            (staging / ERRORS).write_text(_as_csv(problems), "utf-8")
            made.append(ERRORS)
        for name, text in (texts or {}).items():
            (staging / TEXTS).mkdir(exist_ok=True)
            (staging / TEXTS / name).write_text(text, "utf-8")
            made.append(f"{TEXTS}/{name}")
        with held():
            for name in (STEPS_TABLE, SAMPLES, ERRORS):
                (folder / name).unlink(missing_ok=True)
            if texts:
                (folder / TEXTS).mkdir(exist_ok=True)
            for name in made:
                (staging / name).replace(folder / name)
    return [folder / name for name in made]


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, ERROR_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read(folder: Path) -> Observation:
    """Read an observation.

    Raises
    ------
    InputError
        If a file is missing or not what it should be.
    """
    about, said = checked.about(folder / ABOUT, VERSION), checked.mapping(folder / STAGES)
    stages = checked.listed(folder / STAGES, "stages", Stage, said.get("stages"))
    checked.points(folder / STAGES, [stage.point for stage in stages])
    points = [dict(stage.point) for stage in stages]
    runs = _runs(folder / TABLE, stages, points)
    steps = folder / STEPS_TABLE
    return Observation(folder, about, stages, runs, _columns(steps) if steps.exists() else None)


def _runs(
    path: Path, stages: Sequence[Stage], points: Sequence[dict[str, Any]]
) -> tuple[RunTable, ...]:
    try:
        with pq.ParquetFile(path) as file:
            if file.schema_arrow.names != REQUESTS.names:
                raise InputError(str(path), None, "", "is no request table of this speccast")
            groups = [file.read_row_group(index) for index in range(file.num_row_groups)]
    except (OSError, pa.ArrowException) as error:
        raise checked.unreadable(path, error) from None
    if len(groups) != len(stages):
        message = f"holds {len(groups)} stages, {STAGES} names {len(stages)}"
        raise InputError(str(path), None, "", message)
    return tuple(
        RunTable(point, stage.strategy, stage.replication, to_columns(group))
        for stage, point, group in zip(stages, points, groups, strict=True)
    )


def _columns(path: Path) -> Columns:
    try:
        return to_columns(pq.read_table(path))
    except (OSError, pa.ArrowException) as error:
        raise checked.unreadable(path, error) from None
