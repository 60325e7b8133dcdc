"""Where files are written: what is in the way is found early, and nothing half done appears."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from sim.interrupts import held

MARKS = {
    "run": ("summary.json",),
    "sweep": ("results.parquet", "points"),
    "plan": ("plan.json",),
    "audit": ("audit.json",),
    "observe": ("stages.json",),
}
"""What only the result of each verb holds, by which its folder is known."""


def foreign(folder: Path, verb: str, names: Iterable[str]) -> str | None:
    """What a verb would destroy in a folder that is not its own, if anything.

    Parameters
    ----------
    folder : Path
    verb : str
        Who is to write there, a key of ``MARKS``; its own result is not in the way.
    names : iterable of str
        Files it replaces. Beside no result of its own, none of them may be there.
    """
    made_by = [v for v, marks in MARKS.items() if any((folder / m).exists() for m in marks)]
    for other in made_by:
        if other != verb:
            return f"holds the result of `speccast {other}`; choose another folder"
    kept = next((name for name in names if (folder / name).exists()), None)
    if verb in made_by or kept is None:
        return None
    return f"would replace '{folder / kept}', which no `speccast {verb}` left"


def obstacle(folder: Path, names: Iterable[str], *inputs: Path) -> str | None:
    """What is in the way of writing files of these names into a folder, if anything is.

    None of them may be one of the ``inputs``, files that exist.
    """
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
            if target.exists() and any(target.samefile(path) for path in inputs):
                return f"would replace the input file '{target}'"
        with held(), staged(folder) as staging:
            for name in names:
                (staging / name).touch()
    except (OSError, ValueError) as error:
        return f"cannot write there: {getattr(error, 'strerror', None) or error}"
    return None


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
