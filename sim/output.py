"""The folder ``speccast run --out`` leaves: scenario, tables, summary and manifest."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from models.strict_yaml import InputError
from sim.interrupts import held
from sim.manifest import manifest
from sim.tables import REQUESTS, STEPS, TIMELINE, ParquetFile, RunTable, read_runs, run_to_arrow

TABLES = {"requests.parquet": REQUESTS, "steps.parquet": STEPS, "timeline.parquet": TIMELINE}
FILES = ("scenario.yaml", *TABLES, "summary.json", "manifest.json", "report.html")
PICTURES = "figures"


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
    problem = "needs a folder, got ''" if not folder else _obstacle(path, FILES, scenario)
    problem = problem or _obstacle_to_pictures(path / PICTURES)
    if problem is not None:
        raise InputError(folder, None, "--out", problem)
    return path


def check_file(option: str, file: str, scenario: Path, folder: Path | None) -> Path:
    """Refuse a file that cannot be written, before anything is simulated.

    Parameters
    ----------
    option : str
        What asks for it, to name in the error.
    file : str
        As the user gave it.
    scenario : Path
        The input file, which a result may not replace.
    folder : Path or None
        Where the files of ``--out`` go, which it may not replace either.

    Raises
    ------
    InputError
        As ``check_folder``.
    """
    path = Path(file)
    problem = "needs a file, got ''" if not file else _obstacle(path.parent, [path.name], scenario)
    taken = [] if folder is None else [(folder / name).resolve() for name in FILES]
    if problem is None and path.resolve() in taken:
        problem = "is one of the files of --out"
    if problem is not None:
        raise InputError(file, None, option, problem)
    return path


def _obstacle(folder: Path, names: Iterable[str], scenario: Path) -> str | None:
    """What is in the way of writing files of these names into a folder, if anything is."""
    try:
        places = (folder, *folder.absolute().parents)
        existing = next(path for path in places if path.exists() or path.is_symlink())
        if not existing.is_dir():
            kind = "file" if existing.exists() else "dangling link"
            return f"needs a folder, got the {kind} '{existing}'"
        for target in (folder / name for name in names):
            if target.is_dir():
                return f"would replace the folder '{target}'"
            if target.exists() and not target.is_file():
                return f"would replace the device '{target}'"
            if target.exists() and target.samefile(scenario):
                return f"would replace the input file '{target}'"
        with staged(folder) as staging:
            for name in names:
                (staging / name).touch()
    except (OSError, ValueError) as error:
        return f"cannot write there: {getattr(error, 'strerror', None) or error}"
    return None


def _obstacle_to_pictures(folder: Path) -> str | None:
    """The folder of pictures is replaced as a whole, so it may hold nothing else."""
    if not folder.is_dir():
        return f"would replace the file '{folder}'" if folder.exists() else None
    other = (path for path in folder.iterdir() if path.suffix not in (".svg", ".png"))
    kept = next(other, None)
    return f"would remove '{kept}'" if kept else None


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Scratch folder inside ``folder``, which is made; what stays empty is removed again."""
    absolute = folder.absolute()
    places = (absolute, *absolute.parents)
    made = list(itertools.takewhile(lambda path: not path.exists(), places))
    with contextlib.ExitStack() as leftovers:
        with held():
            leftovers.callback(_remove_empty, made)
            folder.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix=".speccast.", dir=folder))
            leftovers.callback(_remove, staging)
        yield staging


def _remove_empty(folders: Iterable[Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def _remove(folder: Path) -> None:
    with held():
        shutil.rmtree(folder, ignore_errors=True)


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

    Raises
    ------
    OSError
        From any method, if the disk refuses.
    """

    takes_steps = True

    def __init__(self, path: Path, scenario: str) -> None:
        self.path, self._scenario = path, scenario
        self._runs: dict[str, list[RunTable]] = {name: [] for name in TABLES}

    def __enter__(self) -> OutputFolder:
        with contextlib.ExitStack() as stack:
            self._staging = stack.enter_context(staged(self.path))
            self._files = stack.enter_context(contextlib.ExitStack())
            self._tables = {
                name: self._files.enter_context(ParquetFile(self._staging / name, schema))
                for name, schema in TABLES.items()
            }
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
        self._tables[name].write(run_to_arrow(TABLES[name], run))
        self._runs[name].append(run._replace(columns={}))

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
        from sim.analysis.html_report import write_report

        self._files.close()
        (self._staging / "scenario.yaml").write_text(self._scenario, "utf-8")
        (self._staging / "summary.json").write_text(to_json(document), "utf-8")
        (self._staging / "manifest.json").write_text(to_json(manifest(document)), "utf-8")
        requests, timelines = self.written("requests.parquet"), self.written("timeline.parquet")
        write_report(self._staging, document, requests, timelines)
        with held():
            for name in FILES:
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
