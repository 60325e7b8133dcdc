"""The journal of an observation: one line a request, from which tables are written.

The first line says what was asked for. Each part of a stage has a line when it begins, with the
time the stage had taken by then, and, unless the program was killed, one when it ends; the requests
between them are its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibration.json_lines import append_line, differing, read_lines
from calibration.live.observe.rows import Row
from calibration.live.observe.schedule import Planned
from models.strict_yaml import InputError

FILE = "journal.jsonl"
REPEATS = "repeats"
"""The one option that may change between runs."""

Key = tuple[str, int]


@dataclass
class Measured:
    """What is known of one stage.

    Attributes
    ----------
    rows : dict
        By the number of the request.
    begun : list of str
        When each part began: ISO time, UTC.
    after_s : list of float
        Time the stage had taken when each part began [s].
    sizes : list of int
        Requests kept of each part.
    ends : list of dict
        What each part that ended left: ``after_s`` of it, ``duration_s``, and what the server said.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    after_s: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        """Time the stage has taken so far, without breaks [s]."""
        times = [t for row in self.rows.values() for t in (row.arrival_s, row.finish_s)]
        known = [t for t in times if t is not None]
        ends = [float(end["after_s"] + end["duration_s"]) for end in self.ends]
        return max([0.0, *known, *ends])

    @property
    def torn(self) -> bool:
        """Whether a part was killed, so that what the server counted in it is not known."""
        return len(self.ends) < len(self.begun)


class Journal:
    """What an observation has measured so far.

    Parameters
    ----------
    path : Path
    run : mapping
        What all its lines share: the options, JSON-ready.
    date : str
        Of today; that of the first run is kept.

    Attributes
    ----------
    stages : dict
        Point and repeat -> what is known of it, in the order they were begun.
    date, server
        As above; what the server said of itself.

    Raises
    ------
    InputError
        If the file is the journal of another observation, or something else.
    """

    def __init__(self, path: Path, run: Mapping[str, Any], date: str) -> None:
        self.path, self.run, self.date = path, dict(run), date
        self.stages: dict[Key, Measured] = {}
        self.server: dict[str, Any] = {}
        self._at: Key | None = None
        before = self._read()
        self._headed = before is not None
        if before is None:
            return
        if _lasting(before) != _lasting(self.run):
            message = (
                f"holds another observation ({differing(_lasting(before), _lasting(self.run))}); "
                "give the same options to go on with it, or another --out"
            )
            raise InputError(str(path), None, "", message)

    @property
    def requests(self) -> int:
        """How many requests are kept."""
        return sum(len(stage.rows) for stage in self.stages.values())

    def of(self, planned: Planned) -> Measured:
        """What is known of a stage."""
        return self.stages.get(planned.key, Measured())

    def left(self, planned: Planned) -> list[int]:
        """Numbers of its requests that are still to be sent."""
        known = self.of(planned).rows
        return [number for number in range(planned.requests) if number not in known]

    def begin(self, planned: Planned, started: str) -> None:
        """A part of a stage begins."""
        if not self._headed:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_line(self.path, {"run": self.run, "date": self.date})
            self._headed = True
        after_s = round(self.of(planned).elapsed_s, 6)
        self._add({"begin": [*planned.key], "started": started, "after_s": after_s})

    def add(self, row: Row) -> None:
        """Keep a request; its line is with the system when this returns."""
        self._add({"row": row})

    def end(self, left: Mapping[str, Any]) -> None:
        """The part that began last ends."""
        self._add({"end": left})

    def know(self, server: Mapping[str, Any]) -> None:
        """Keep what the server says of itself."""
        if dict(server) != self.server:
            self._add({"server": server})

    def _add(self, line: Mapping[str, Any]) -> None:
        append_line(self.path, line)
        self._take(line)

    def _take(self, line: Mapping[str, Any]) -> None:
        if "server" in line:
            self.server = dict(line["server"])
        elif "begin" in line:
            name, replication = line["begin"]
            self._at = (str(name), int(replication))
            stage = self.stages.setdefault(self._at, Measured())
            stage.begun.append(str(line["started"]))
            stage.after_s.append(float(line["after_s"]))
            stage.sizes.append(0)
        elif self._at is None:
            raise ValueError("a request before any stage")
        elif "row" in line:
            row = Row(*line["row"])
            self.stages[self._at].rows[row.id] = row._replace(gaps=tuple(row.gaps))
            self.stages[self._at].sizes[-1] += 1
        else:
            stage = self.stages[self._at]
            stage.ends.append({**line["end"], "after_s": stage.after_s[-1]})

    def _read(self) -> dict[str, Any] | None:
        """Take over what is there; the options of the first run."""
        try:
            lines = read_lines(self.path)
            if not lines:
                return None
            before, self.date = dict(lines[0]["run"]), str(lines[0]["date"])
            for line in lines[1:]:
                self._take(line)
            return before
        except (ValueError, TypeError, KeyError):
            message = "holds no observation that can be read; remove it to start anew"
            raise InputError(str(self.path), None, "", message) from None


def _lasting(run: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if key != REPEATS}


def now() -> str:
    """ISO time, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
