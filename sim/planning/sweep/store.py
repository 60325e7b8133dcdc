"""The folder of a sweep: a small file a finished point, one table at the end.

``scenario.yaml`` and ``manifest.json`` come first, then ``points/000000.parquet`` and so on, each
whole or not there; then ``results.parquet``, whole or not there, after which ``points`` goes. So a
sweep killed at any moment has lost nothing that was finished: what is in ``points`` is done, and
where ``results.parquet`` is, all is done.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from models.strict_yaml import InputError
from sim.interrupts import held
from sim.output import to_json
from sim.resume import require_scenario, require_versions
from sim.staging import foreign, obstacle
from sim.tables import ParquetFile

RESULTS, POINTS = "results.parquet", "points"
FILES = ("scenario.yaml", "manifest.json", RESULTS, "report.html")
GROUP_POINTS = 500
"""Points of one row group of the table: what is held in memory at once when it is written."""


def check_folder(folder: str, resume: bool, scenario: Path) -> Path:
    """Refuse a folder before anything is simulated.

    Parameters
    ----------
    folder : str
        As the user gave it.
    resume : bool
        Whether to go on with what it holds.
    scenario : Path
        The input file, which a result may not replace.

    Raises
    ------
    InputError
        If nothing can be written there, it holds the result of another verb, or that of a sweep
        and ``resume`` is not asked for.
    """
    path = Path(folder)
    problem = "needs a folder, got ''" if not folder else obstacle(path, FILES, scenario)
    for name in (POINTS, "figures"):
        if problem is None and (path / name).exists() and not (path / name).is_dir():
            problem = f"would replace the file '{path / name}'"
    problem = problem or foreign(path, "sweep", FILES)
    if problem is None and not resume and holds_any(path):
        problem = "holds the result of a sweep; add --resume to go on with it, or choose another"
    if problem is not None:
        raise InputError(folder, None, "--out", problem)
    return path


def holds_any(path: Path) -> bool:
    """Whether a folder holds the result of a sweep, or a finished point of one."""
    return (path / RESULTS).exists() or next(_parts(path), None) is not None


class Store:
    """The points of one sweep on disk.

    Parameters
    ----------
    path : Path
        The folder.
    schema : pyarrow.Schema
        Of the table.
    count : int
        Points in all.

    Raises
    ------
    OSError
        From any method, if the disk refuses.
    """

    def __init__(self, path: Path, schema: pa.Schema, count: int) -> None:
        self.path, self._schema, self._count = path, schema, count

    def open(self, scenario: str, manifest: dict[str, Any]) -> set[int]:
        """Begin, or go on: numbers of the points that are done.

        Parameters
        ----------
        scenario : str
            The resolved scenario as YAML.
        manifest : dict
            What the result rests on.

        Raises
        ------
        InputError
            If the folder holds a sweep of another scenario or of other versions, or one that
            cannot be read, or another sweep is writing it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock()
        try:
            return self._opened(scenario, manifest)
        except BaseException:
            os.close(self._folder)
            raise

    def _opened(self, scenario: str, manifest: dict[str, Any]) -> set[int]:
        if not holds_any(self.path):
            with held():
                (self.path / POINTS).mkdir(exist_ok=True)
                for name, text in zip(FILES, (scenario, to_json(manifest)), strict=False):
                    self._write(self.path / name, text.encode())
            return set()
        try:
            require_scenario(self.path, scenario)
            text = (self.path / "manifest.json").read_text("utf-8")
            require_versions(self.path, text == to_json(manifest))
            if self.complete:
                pq.read_metadata(self.path / RESULTS)
        except (OSError, UnicodeDecodeError, pa.ArrowInvalid):
            raise InputError(str(self.path), None, "--resume", "holds no sweep") from None
        for torn in (self.path / POINTS).glob(".*"):
            torn.unlink()
        if self.complete:
            return set(range(self._count))
        return {int(part.stem) for part in _parts(self.path) if self._whole(part)}

    def _lock(self) -> None:
        """Keep other sweeps out of the folder for as long as this process lives."""
        self._folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._folder)
            problem = "is being written by another sweep"
            raise InputError(str(self.path), None, "--out", problem) from None

    @property
    def complete(self) -> bool:
        """Whether the table is there."""
        return (self.path / RESULTS).exists()

    def _whole(self, part: Path) -> bool:
        """Whether a part can be read: after a power cut it may not."""
        try:
            return bool(pq.read_metadata(part).num_rows)
        except (OSError, pa.ArrowInvalid):
            return False

    def keep(self, number: int, content: bytes) -> None:
        """Keep a finished point."""
        with held():
            self._write(self._part(number), content)

    def _part(self, number: int) -> Path:
        return self.path / POINTS / f"{number:06d}.parquet"

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        temporary = path.with_name(f".{path.name}.part")
        temporary.write_bytes(content)
        temporary.replace(path)

    def consolidate(self) -> pa.Table:
        """Write the table from its parts, in order of points, unless it is there; read it."""
        if not self.complete:
            with ParquetFile(self.path / RESULTS, self._schema) as file:
                for _, numbers in groupby(range(self._count), lambda at: at // GROUP_POINTS):
                    parts = [_read(self._part(number)) for number in numbers]
                    file.write(pa.concat_tables(parts).cast(self._schema))
        return pq.read_table(self.path / RESULTS)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do, pictures included."""
        return self.complete and not (self.path / POINTS).exists()

    def finish(self) -> None:
        """Remove the parts, once all that is made of the table is made."""
        shutil.rmtree(self.path / POINTS, ignore_errors=True)

    def kept_message(self) -> list[str]:
        """What is kept of a sweep that was cut off, and how to go on; empty without a point."""
        done = self._count if self.complete else sum(1 for _ in _parts(self.path))
        told = f"interrupted: {done} of {self._count} points are kept in {self.path}"
        return [f"{told}; --resume goes on with them"] if done else []

    def close(self) -> None:
        """Let others at the folder, and remove what ``open`` made where no point is done."""
        with held(), contextlib.suppress(OSError):
            if not holds_any(self.path):
                self.finish()
                for name in FILES[:2]:
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()
        os.close(self._folder)


def _read(part: Path) -> pa.Table:
    """A small file: threads, and looking for a data set, would take longer than reading it."""
    with pq.ParquetFile(part) as file:
        return file.read(use_threads=False)


def _parts(path: Path) -> Iterator[Path]:
    return (path / POINTS).glob("[0-9]*.parquet")
