"""The folder an observation writes: one at a time, and never that of somebody else."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType

from calibration.live import recording
from calibration.live.observe.journal import FILE
from calibration.live.observe.tables import FILES
from models.strict_yaml import InputError
from sim.staging import foreign, obstacle


class Folder:
    """A folder held by one process, by a lock on its journal; a context manager.

    Where nothing was measured, what was made for the lock is removed again.

    Parameters
    ----------
    out : Path

    Raises
    ------
    InputError
        If it cannot be written, holds what no observation left, or another process observes into
        it.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.journal = out, out / FILE
        recording.check_folder(out)
        problem = obstacle(out, (FILE,)) or _foreign(out)
        if problem is not None:
            raise InputError(str(out), None, "--out", problem)
        self._made: list[Path] = []
        self._lock = self._locked()

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the folder go."""
        with contextlib.suppress(OSError):
            if not _size(self.journal):
                self.journal.unlink()
                for folder in self._made:
                    folder.rmdir()
        os.close(self._lock)

    def _locked(self) -> int:
        """Descriptor of the journal, locked; it is made where it is missing."""
        try:
            while True:
                self._make()
                lock = os.open(self.journal, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Whoever held it before may have removed it in between.
                    if _is_at(lock, self.journal):
                        return lock
                except OSError:
                    os.close(lock)
                    raise
                os.close(lock)
        except BlockingIOError:
            message = "is written by another `speccast observe`; wait for it, or choose another"
        except OSError as error:
            message = f"cannot be locked: {error.strerror or error}"
        raise InputError(str(self.out), None, "--out", message)

    def _make(self) -> None:
        """Make the folder, and note what was made, the innermost first."""
        missing = [one for one in (self.out, *self.out.parents) if not one.exists()]
        self.out.mkdir(parents=True, exist_ok=True)
        self._made = self._made or missing


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _size(path: Path) -> int:
    return path.stat().st_size


def _foreign(out: Path) -> str | None:
    """What in the folder no observation left."""
    journal = out / FILE
    begun = journal.is_file() and _size(journal) > 0
    if (out / recording.STAGES).exists() and not begun:
        return "holds an observation without its journal, as imports are; choose another"
    # An empty journal is what a run leaves that was killed before it had anything to say.
    others = [name for name in (*FILES, recording.TEXTS) if name != FILE]
    found = foreign(out, "observe", () if begun else others)
    if found is None and not begun and _others(out):
        return "is not empty and holds no observation; choose another"
    return found


def _others(out: Path) -> list[Path]:
    """What is in the folder besides the journal and hidden files."""
    there = out.iterdir() if out.is_dir() else ()
    return [path for path in there if path.name != FILE and not path.name.startswith(".")]
