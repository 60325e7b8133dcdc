"""The folder ``speccast run --out`` leaves: scenario, tables, summary and manifest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from models.strict_yaml import InputError
from sim.interrupts import held
from sim.manifest import manifest
from sim.scenario.load import ScenarioFile
from sim.staging import foreign, obstacle, staged
from sim.tables import (
    MODES,
    REQUESTS,
    STEPS,
    SWITCHES,
    TIMELINE,
    ParquetFile,
    RunTable,
    read_runs,
    run_to_arrow,
)

TABLES = {"requests.parquet": REQUESTS, "steps.parquet": STEPS, "timeline.parquet": TIMELINE}
SWITCHING = {"modes.parquet": MODES, "switches.parquet": SWITCHES}
"""Tables written only where a strategy switches between modes."""
FILES = ("scenario.yaml", *TABLES, "summary.json", "manifest.json", "report.html")
PICTURES = "figures"

Before = Callable[[str], Iterable[tuple[RunTable, pa.Table]]]


def tables_of(scenario: ScenarioFile) -> dict[str, pa.Schema]:
    """Schema of each table a scenario leaves, by name of its file."""
    strategies = (each for point in scenario.points for each in point.scenario.strategies)
    switching = any(strategy.switches for strategy in strategies)
    return {**TABLES, **(SWITCHING if switching else {})}


def check_folder(folder: str, scenario: Path) -> Path:
    """Refuse a folder that cannot be written, before anything is simulated.

    Parameters
    ----------
    folder : str
        As the user gave it.
    scenario : Path
        The input file, which a result may not replace.

    Raises
    ------
    InputError
        If ``folder`` or a parent of it is a file, it cannot be made or written to, or a file to
        be written is the input or no regular file, or the folder holds the result of another verb.
    """
    path = Path(folder)
    problem = (
        "needs a folder, got ''" if not folder else obstacle(path, (*FILES, *SWITCHING), scenario)
    )
    problem = problem or foreign(path, "run", ["report.html"])
    problem = problem or _obstacle_to_pictures(path / PICTURES)
    if problem is not None:
        raise InputError(folder, None, "--out", problem)
    return path


def _obstacle_to_pictures(folder: Path) -> str | None:
    """The folder of pictures is replaced as a whole, so it may hold nothing else."""
    if not folder.is_dir():
        return f"would replace the file '{folder}'" if folder.exists() else None
    other = (path for path in folder.iterdir() if path.suffix not in (".svg", ".png"))
    kept = next(other, None)
    return f"would remove '{kept}'" if kept else None


class OutputFolder:
    """The files of one result: tables are written as they come, and all files appear together.

    A context manager; unless ``finish`` is reached, it leaves the folder as it was. The same
    result gives the same bytes.

    Parameters
    ----------
    path : Path
        Created where it is missing; files of an earlier result are replaced.
    scenario : str
        The resolved scenario as YAML.
    before : callable, optional
        Gives, by name of a file, the tables it is to begin with, and the run of each.
    tables : mapping, optional
        Schema of each table to write, by name of its file.

    Raises
    ------
    OSError
        From any method, if the disk refuses.
    """

    takes_steps = True

    def __init__(
        self,
        path: Path,
        scenario: str,
        before: Before = lambda _: (),
        tables: Mapping[str, pa.Schema] = TABLES,
    ) -> None:
        self.path, self._scenario, self._before, self._schemas = path, scenario, before, tables
        self._runs: dict[str, list[RunTable]] = {name: [] for name in tables}

    def __enter__(self) -> OutputFolder:
        with contextlib.ExitStack() as stack:
            self._staging = stack.enter_context(staged(self.path))
            self._files = stack.enter_context(contextlib.ExitStack())
            self._tables = {
                name: self._files.enter_context(ParquetFile(self._staging / name, schema))
                for name, schema in self._schemas.items()
            }
            for name in self._schemas:
                for run, table in self._before(name):
                    self._append(name, run, table)
            self._stack = stack.pop_all()
        return self

    def add_steps(self, run: RunTable) -> None:
        """Write the next steps of a run."""
        self._write("steps.parquet", run)

    def add_timeline(self, run: RunTable) -> None:
        """Write the time bins of a run."""
        self._write("timeline.parquet", run)

    def add_modes(self, modes: RunTable, switches: RunTable) -> None:
        """Write the modes of a run over time, and its switches."""
        self._write("modes.parquet", modes)
        self._write("switches.parquet", switches)

    def add_requests(self, run: RunTable) -> None:
        """Write the requests of a run."""
        self._write("requests.parquet", run)

    def _write(self, name: str, run: RunTable) -> None:
        table = run_to_arrow(self._schemas[name], run)
        if table.num_rows:
            self._append(name, run._replace(columns={}), table)

    def _append(self, name: str, run: RunTable, table: pa.Table) -> None:
        self._tables[name].write(table)
        self._runs[name].append(run)

    def written(self, name: str) -> Iterator[RunTable]:
        """Read the tables of one file back, once all are written: the report needs them.

        Parameters
        ----------
        name : str
            One of the tables that come one a run: not ``steps.parquet``. Nothing comes of a table
            this folder does not hold.
        """
        if name not in self._runs:
            return iter(())
        self._files.close()
        return read_runs(self._staging / name, self._runs[name])

    def finish(self, document: Mapping[str, Any]) -> None:
        """Write the rest, and move all files into the folder.

        Parameters
        ----------
        document : mapping
            The result document, which becomes summary.json.
        """
        from sim.analysis.html_report import write_report

        self._files.close()
        (self._staging / "scenario.yaml").write_text(self._scenario, "utf-8")
        (self._staging / "summary.json").write_text(to_json(document), "utf-8")
        (self._staging / "manifest.json").write_text(to_json(manifest(document)), "utf-8")
        read = ("requests", "timeline", "modes", "switches")
        written = [self.written(f"{name}.parquet") for name in read]
        write_report(self._staging, document, *written)
        with held():
            if (self.path / "summary.json").is_file():
                for name in SWITCHING:
                    (self.path / name).unlink(missing_ok=True)
            for name in dict.fromkeys((*FILES, *self._schemas)):
                (self._staging / name).replace(self.path / name)
            _replace_pictures(self._staging / PICTURES, self.path / PICTURES)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _replace_pictures(made: Path, folder: Path) -> None:
    """A folder cannot replace another: the old one first moves out of the way."""
    if folder.exists():
        folder.rename(made.with_name("replaced"))
    made.rename(folder)


def to_json(document: Mapping[str, Any]) -> str:
    """A document as indented JSON with a final newline.

    Raises
    ------
    ValueError
        If a number is NaN or infinite: JSON has neither.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
