"""The folder ``speccast run --out`` leaves: scenario, tables, summary and manifest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from models import catalog
from models.strict_yaml import InputError
from sim.interrupts import held
from sim.staging import obstacle, staged
from sim.tables import REQUESTS, STEPS, TIMELINE, ParquetFile, RunTable, read_runs, run_to_arrow

TABLES = {"requests.parquet": REQUESTS, "steps.parquet": STEPS, "timeline.parquet": TIMELINE}
FILES = ("scenario.yaml", *TABLES, "summary.json", "manifest.json")

Before = Callable[[str], Iterable[tuple[RunTable, pa.Table]]]


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
        be written is the input or no regular file.
    """
    path = Path(folder)
    problem = "needs a folder, got ''" if not folder else obstacle(path, FILES, scenario)
    if problem is not None:
        raise InputError(folder, None, "--out", problem)
    return path


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

    Raises
    ------
    OSError
        From any method, if the disk refuses.
    """

    takes_steps = True

    def __init__(self, path: Path, scenario: str, before: Before = lambda _: ()) -> None:
        self.path, self._scenario, self._before = path, scenario, before
        self._runs: dict[str, list[RunTable]] = {name: [] for name in TABLES}

    def __enter__(self) -> OutputFolder:
        with contextlib.ExitStack() as stack:
            self._staging = stack.enter_context(staged(self.path))
            self._files = stack.enter_context(contextlib.ExitStack())
            self._tables = {
                name: self._files.enter_context(ParquetFile(self._staging / name, schema))
                for name, schema in TABLES.items()
            }
            for name in TABLES:
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

    def add_requests(self, run: RunTable) -> None:
        """Write the requests of a run."""
        self._write("requests.parquet", run)

    def _write(self, name: str, run: RunTable) -> None:
        table = run_to_arrow(TABLES[name], run)
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
            ``requests.parquet`` or ``timeline.parquet``, whose tables come one a run.
        """
        self._files.close()
        return read_runs(self._staging / name, self._runs[name])

    def finish(self, document: Mapping[str, Any]) -> None:
        """Write the rest, and move all files into the folder.

        Parameters
        ----------
        document : mapping
            The result document, which becomes summary.json.
        """
        self._files.close()
        (self._staging / "scenario.yaml").write_text(self._scenario, "utf-8")
        (self._staging / "summary.json").write_text(to_json(document), "utf-8")
        (self._staging / "manifest.json").write_text(to_json(manifest(document)), "utf-8")
        with held():
            for name in FILES:
                (self._staging / name).replace(self.path / name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def to_json(document: Mapping[str, Any]) -> str:
    """A document as indented JSON with a final newline.

    Raises
    ------
    ValueError
        If a number is NaN or infinite: JSON has neither.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def speccast_version() -> str:
    """Version of the installed distribution; "unknown" when run from a bare source tree."""
    try:
        return version("speccast")
    except PackageNotFoundError:
        return "unknown"


def manifest(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a result rests on: versions, seed, profile, digests of catalogue entries and files."""
    return {
        "speccast": speccast_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": document["seed"],
        "profile": document["profile"],
        **({"interrupted": True} if document.get("interrupted") else {}),
        "catalogue": {
            section: {name: _digest(section, name) for name in sorted(names)}
            for section, names in _entries_named(document).items()
        },
        "files": _file_digests(document["scenario"]),
    }


def _digest(section: str, name: str) -> str:
    text = json.dumps(catalog.entry(section, name), sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _file_digests(scenario: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the files a scenario names."""
    found = {}
    for word in sorted(set(_words(scenario))):
        path = Path(word)
        # A word may be no name of a file at all: too long, or with a null byte.
        with contextlib.suppress(OSError, ValueError):
            if path.is_absolute() and path.is_file():
                with path.open("rb") as file:
                    found[word] = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _entries_named(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """Catalogue entries named in the scenario or used by default."""
    used = [row.get("acceptance_entries", []) for row in document["rows"]]
    words = {*_words(document["scenario"]), *_words(used), document["profile"]}
    return {section: words & set(catalog.names(section)) for section in catalog.SECTIONS}


def _words(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)
