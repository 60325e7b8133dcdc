"""What every format is read into: the requests of one stage of load, and what set the load."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.live import rows
from calibration.live.imports.choices import Mode
from calibration.live.imports.fields import MISSING
from calibration.live.server.per_request import MOST, Speculated
from models.strict_yaml import InputError, one_line
from sim.histogram import LogHistogram
from sim.tables import Columns, Status

ROUNDING_S = 1e-5
"""By so much may times disagree that tools round or take from two clocks [s] (assumed)."""

_REFUSALS = ("too many requests", "service unavailable")


class Request(NamedTuple):
    """One request; times in seconds on any one clock of its stage, NaN where there is none."""

    sent_s: float
    prompt_tokens: int
    output_tokens: int
    first_token_s: float = MISSING
    finish_s: float = MISSING
    due_s: float | None = None
    status: Status = Status.FINISHED
    cached_tokens: int = 0
    speculation: Speculated | None = None
    domain: str = "text"
    http_status: int | None = None
    message: str = ""


class Load(NamedTuple):
    """One stage of load out of one file.

    Attributes
    ----------
    path : str
    tool : str
    mode : str
        Closed loop, open loop, or the times of a trace.
    point : dict
        What set the load, under one key; empty where the file does not say.
    requests : tuple of Request
    model, base_url, api, date, started : str
        Empty where the file does not say; ``started`` in UTC.
    replication : int or None
        Repeat of the same point; None: counted.
    itl : LogHistogram or None
        Gaps between chunks [s].
    counters : dict
        Counters of the server over the stage, by neutral name.
    notes : tuple of str
        What was left out, or is not as it should be.
    """

    path: str
    tool: str
    mode: Mode | None
    point: dict[str, Any]
    requests: tuple[Request, ...]
    model: str = ""
    base_url: str = ""
    api: str = "unknown"
    date: str = ""
    started: str = ""
    replication: int | None = None
    itl: LogHistogram | None = None
    counters: dict[str, float] = {}  # noqa: RUF012
    notes: tuple[str, ...] = ()

    @property
    def speculates(self) -> bool:
        """Whether the server told that it drafts."""
        drafts = self.counters.get("spec_drafts", 0) > 0
        return drafts or any(one.speculation and one.speculation.drafted for one in self.requests)


def ended(message: str, http_status: int | None = None) -> Status:
    """How a request ended that brought no answer, by its HTTP status or what was said of it."""
    said = message.lower()
    if http_status in rows.REJECTIONS or any(words in said for words in _REFUSALS):
        return Status.REJECTED
    if http_status == 408 or "timeout" in said or "timed out" in said:
        return Status.TIMED_OUT
    return Status.FAILED


def gaps(histogram: LogHistogram, values_s: Iterable[float]) -> None:
    """Add gaps between chunks [s]; chunks read at once are a nanosecond apart."""
    for value in values_s:
        histogram.add(max(value, 1e-9))


def due_s(request: Request, mode: Mode) -> float:
    """When a request arrives: as it is sent in a closed loop, else when it was due [s]."""
    if mode == "closed_loop" or request.due_s is None:
        return request.sent_s
    return min(request.due_s, request.sent_s)


def in_order(load: Load, mode: Mode) -> tuple[list[Request], float]:
    """The requests of a stage by arrival, and when its first one arrives [s].

    Raises
    ------
    InputError
        If there is none, or the times or counts of one cannot be.
    """
    if not load.requests:
        raise InputError(load.path, None, "", "holds no request")
    for index, request in enumerate(load.requests):
        _check(load.path, index, request)
    ordered = sorted(load.requests, key=lambda request: due_s(request, mode))
    return ordered, due_s(ordered[0], mode)


def _check(path: str, index: int, request: Request) -> None:
    where = f"request {index + 1}"
    if not math.isfinite(request.sent_s):
        raise InputError(path, None, where, "does not say when it was sent")
    counts = {name: getattr(request, name) for name in rows.COUNTS}
    if request.speculation is not None:
        counts |= {name: getattr(request.speculation, name) for name in rows.SPECULATION}
    for name, count in counts.items():
        if count > MOST:
            message = f"{name} must be at most {MOST}, got {count}"
            raise InputError(path, None, where, message)
    if request.status != Status.FINISHED:
        return
    times = {"first token": request.first_token_s, "finish": request.finish_s}
    for name, value in times.items():
        if math.isnan(value):
            raise InputError(path, None, where, f"has no time of its {name}: it was not streamed")
    if not request.sent_s - ROUNDING_S <= request.first_token_s <= request.finish_s + ROUNDING_S:
        order = f"sent {request.sent_s:.6f}, first token {request.first_token_s:.6f}"
        got = f"{order}, finish {request.finish_s:.6f} s"
        raise InputError(path, None, where, f"must be sent, answer and end in turn, got {got}")
    if request.output_tokens < 1 or request.prompt_tokens < 1:
        got = f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens"
        raise InputError(path, None, where, f"finished and must have tokens, got {got}")


def columns(requests: Sequence[Request], mode: Mode, start_s: float) -> Columns:
    """The request table of a stage, its times from ``start_s`` on; rows in the order given."""
    arrival = np.array([due_s(request, mode) for request in requests]) - start_s
    sent = np.array([request.sent_s for request in requests]) - start_s
    finished = np.array([request.status == Status.FINISHED for request in requests])
    first = np.array([request.first_token_s for request in requests]) - start_s
    finish = np.array([request.finish_s for request in requests]) - start_s
    # Rounded clocks must not put an answer before its question.
    first = np.where(finished, np.maximum(first, sent), first)
    finish = np.where(finished, np.maximum(finish, first), finish)
    known: Columns = {
        **rows.taken(requests, ("domain",), object),
        **rows.taken(requests, ("status",), np.int8),
        **rows.taken(requests, rows.COUNTS, np.int64),
        "arrival_s": arrival,
        "first_token_s": first,
        "finish_s": finish,
    }
    return rows.columns(known, [request.speculation for request in requests])


def lateness(requests: Sequence[Request], mode: Mode) -> tuple[int, float]:
    """How many requests were sent late, and by how much the latest of them was [s]."""
    late = [request.sent_s - due_s(request, mode) for request in requests]
    return sum(each > rows.LATE_S for each in late), max(late, default=0.0)


def problem(request: Request) -> str:
    """What is said of a request that did not finish, on one line."""
    lines = [line for line in request.message.splitlines() if line.strip()]
    return one_line(lines[-1].strip()) if lines else ""


def utc(seconds: float) -> str:
    """ISO time of so many seconds since 1970; empty where that is no date."""
    try:
        when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return when.isoformat(timespec="seconds")


def left_out(count: int, of: str) -> tuple[str, ...]:
    """The note of requests that are not in the table; none where all are."""
    what = "1 request was" if count == 1 else f"{count} requests were"
    return (f"{what} left out: {of}",) if count else ()
