"""What was timed so far, kept beside the output: an interrupted run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from calibration.kernels.device.sweep import Shape


class Timed(NamedTuple):
    """One kernel of the sweep: its time [s] and spread, or why it could not be timed."""

    shape: str
    time_s: float
    spread: float
    flag: str = ""
    skipped: str = ""


class Partial:
    """A file of JSON lines: what is run, then one kernel a line as it comes.

    Parameters
    ----------
    path : Path
    run : mapping
        What all its kernels share: device, torch, transformer, options.

    Attributes
    ----------
    timed : dict
        By shape as text. Flagged ones of an earlier run are left out: they are timed again.
    other : str or None
        What differed from the run that left a file here, so that it was not used.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path, self.timed = path, dict[str, Timed]()
        self.other = self._read(run)
        if self.timed:
            return
        path.write_text(json.dumps(dict(run)) + "\n", "utf-8")

    def _read(self, run: Mapping[str, Any]) -> str | None:
        """Take over the lines of a run like this one; a last line cut short is left out."""
        try:
            lines = self.path.read_text("utf-8").split("\n")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            return "file"
        try:
            before = json.loads(lines[0])
            found = [Timed(**json.loads(line)) for line in lines[1:-1]]
        except (ValueError, TypeError):
            return "file"
        if not isinstance(before, dict) or before != dict(run):
            differ = (
                key for key in run if not isinstance(before, dict) or before.get(key) != run[key]
            )
            return next(differ, "options")
        self.timed = {one.shape: one for one in found if not one.flag}
        if lines[-1]:
            self.path.write_text("\n".join([*lines[:-1], ""]), "utf-8")
        return None

    def append(self, timed: Timed) -> None:
        """Keep one kernel; it is on disk when this returns."""
        self.timed[timed.shape] = timed
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(timed._asdict()) + "\n")

    def of(self, shapes: list[Shape]) -> list[tuple[Shape, Timed]]:
        """Those of these shapes that have a time, in their order."""
        known = ((shape, self.timed.get(str(shape))) for shape in shapes)
        return [(shape, one) for shape, one in known if one is not None and not one.skipped]

    def remove(self) -> None:
        """Drop the file, once what it holds is written elsewhere."""
        self.path.unlink(missing_ok=True)
