"""Results of anything else: a CSV file with a row a request, every time with its unit.

======================  ============================================================================
arrival_s               when it was sent, or due where ``sent_s`` says when it was sent
ttft_s, first_token_s   time to the first token, or when it came
e2e_s, finish_s         time to the last token, or when it came
prompt_tokens           with output_tokens; both needed
sent_s                  when it was sent, if later than it was due
status                  finished (where none is said), rejected, unfinished, timed_out, failed
concurrency             or rate_per_s, or point as ``concurrency=8``: what set the load of its stage
replication             repeat of the stage: 0, 1, ...
======================  ============================================================================

Times end in ``_s``, ``_ms`` or ``_us``; those of one stage are on one clock. cached_tokens,
n_steps, drafted, accepted, domain and message may be there too; other columns are left alone.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from calibration.live.imports.choices import Mode
from calibration.live.imports.fields import MISSING, MOST, read_text
from calibration.live.imports.requests import Load, Request
from calibration.live.server.per_request import Speculated
from models.strict_yaml import InputError, show
from sim.tables import STATUS_NAMES, Status

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
TIMES = ("arrival", "sent", "ttft", "first_token", "e2e", "finish")
POINTS: dict[str, Mode] = {
    "concurrency": "closed_loop",
    "rate_per_s": "open_loop",
    "rate_scale": "trace",
}
NEEDED = ("prompt_tokens", "output_tokens")


class _Line(NamedTuple):
    """Cells of one row by column; blank ones are left out."""

    path: str
    number: int
    cells: Mapping[str, str]

    def error(self, key: str, message: str) -> InputError:
        return InputError(self.path, self.number, key, message)

    def value(self, key: str) -> float | None:
        """A number that is not negative; None without one."""
        text = self.cells.get(key)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.error(key, f"must be a number, got {show(text)}") from None
        if value != value:
            return None
        if not 0 <= value < float("inf"):
            raise self.error(key, f"must be finite and not negative, got {show(text)}")
        if value >= MOST:
            raise self.error(key, f"must be below {MOST:.0e}, got {show(text)}")
        return value

    def count(self, key: str) -> int:
        value = self.value(key) or 0.0
        if value != int(value):
            raise self.error(key, f"must be a whole number, got {value}")
        return int(value)

    def time(self, name: str) -> float | None:
        """A time [s], in whatever unit its column is."""
        for unit, scale in UNITS.items():
            if (value := self.value(f"{name}_{unit}")) is not None:
                return value * scale
        return None


def read(path: Path) -> list[Load]:
    """The stages of a table.

    Raises
    ------
    InputError
        If a column is missing or has no unit, or a row holds what cannot be.
    """
    rows = list(_rows(path))
    stages: dict[tuple[tuple[str, Any] | None, int | None], list[_Line]] = {}
    for row in rows:
        repeat = row.count("replication") if "replication" in row.cells else None
        stages.setdefault((_point(row), repeat), []).append(row)
    return [
        Load(
            str(path),
            "csv",
            POINTS[point[0]] if point else None,
            dict([point]) if point else {},
            tuple(_request(row) for row in lines),
            replication=repeat,
        )
        for (point, repeat), lines in stages.items()
    ]


def _rows(path: Path) -> list[_Line]:
    lines = read_text(path).splitlines()
    try:
        reader = csv.reader(lines, strict=True)
        header = [name.strip() for name in next(reader, [])]
        _check(str(path), header)
        found = []
        for cells in reader:
            if len(cells) > len(header):
                got = f"has {len(cells)} cells, the header {len(header)}"
                raise InputError(str(path), reader.line_num, "", got)
            named = zip(header, (cell.strip() for cell in cells), strict=False)
            if filled := {name: cell for name, cell in named if cell}:
                found.append(_Line(str(path), reader.line_num, filled))
    except csv.Error as error:
        raise InputError(str(path), None, "", f"is not CSV: {error}") from None
    if not found:
        raise InputError(str(path), None, "", "has a header and nothing else")
    return found


def _check(path: str, header: list[str]) -> None:
    for name in header:
        bare = name.removesuffix("_time")
        if bare in (*TIMES, "latency", "tpot"):
            message = f"needs its unit in its name, as in {bare}_ms"
            raise InputError(path, 1, name, message)
        if name and header.count(name) > 1:
            raise InputError(path, 1, name, "is there twice")
    present = {name.rpartition("_")[0] for name in header if name.rpartition("_")[2] in UNITS}
    missing = [name for name in NEEDED if name not in header]
    missing += [] if "arrival" in present else ["arrival_s"]
    missing += [] if present & {"ttft", "first_token"} else ["ttft_s"]
    missing += [] if present & {"e2e", "finish"} else ["e2e_s"]
    if missing:
        raise InputError(path, 1, missing[0], "is missing: neither JSON nor a table of requests")


def _point(row: _Line) -> tuple[str, Any] | None:
    """What set the load of a row's stage; None where no column says it."""
    key, equals, text = row.cells.get("point", "").partition("=")
    if equals:
        if key not in POINTS:
            raise row.error("point", f"must be of {', '.join(POINTS)}, got {show(key)}")
        row = row._replace(cells={key: text})
    for name in POINTS:
        if name in row.cells:
            value = row.count(name) if name == "concurrency" else row.value(name)
            if not value:
                raise row.error(name, f"must be positive, got {show(row.cells[name])}")
            return name, value
    return None


def _request(row: _Line) -> Request:
    due, sent = row.time("arrival"), row.time("sent")
    if due is None:
        raise row.error("arrival_s", "is missing")
    sent = due if sent is None else sent
    first, finish = _moment(row, "ttft", "first_token", due), _moment(row, "e2e", "finish", due)
    word = row.cells.get("status", "finished")
    if word not in STATUS_NAMES:
        raise row.error("status", f"must be one of {', '.join(STATUS_NAMES)}, got {show(word)}")
    told = Speculated(row.count("n_steps"), row.count("drafted"), row.count("accepted"))
    return Request(
        sent,
        row.count("prompt_tokens"),
        row.count("output_tokens"),
        first,
        finish,
        due,
        Status(STATUS_NAMES.index(word)),
        row.count("cached_tokens"),
        told if told.n_steps else None,
        row.cells.get("domain", "text"),
        row.count("http_status") or None,
        row.cells.get("message", ""),
    )


def _moment(row: _Line, since: str, at: str, due: float) -> float:
    """When something happened [s]: said outright, or as time since the arrival."""
    moment, span = row.time(at), row.time(since)
    if moment is not None:
        return moment
    return MISSING if span is None else due + span
