"""What a run leaves behind: one row a request, step totals, and step rows for who wants them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import simpy

from sim.engine.bins import Bins
from sim.engine.mode_log import ModeLog
from sim.engine.request import Request
from sim.engine.step_rows import OnSteps, StepRows
from sim.engine.totals import StepTotals
from sim.histogram import LogHistogram

NAN = math.nan
TIMES = ("arrival_s", "schedule_s", "first_token_s", "finish_s")
COUNTS = (
    "replica",
    "cached_tokens",
    "n_steps",
    "drafted",
    "accepted",
    "preemptions",
    "attempts",
    "discarded_tokens",
)
REPORT_REQUESTS = 500
"""Most requests between two reports of progress: some hundredths of a second."""


@dataclass
class RequestLog:
    """Columns of the request table, by request id; NaN where it did not happen.

    Steps, tokens and preemptions add up over all attempts at a request; times are those of the
    attempt that finished. ``refusals`` counts rejected requests by reason.
    """

    total: int
    replica: array[int] = field(init=False)
    status: list[str] = field(init=False)
    schedule_s: array[float] = field(init=False)
    first_token_s: array[float] = field(init=False)
    finish_s: array[float] = field(init=False)
    arrival_s: array[float] = field(init=False)
    cached_tokens: array[int] = field(init=False)
    n_steps: array[int] = field(init=False)
    drafted: array[int] = field(init=False)
    accepted: array[int] = field(init=False)
    preemptions: array[int] = field(init=False)
    attempts: array[int] = field(init=False)
    discarded_tokens: array[int] = field(init=False)
    refusals: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        # Arrays of numbers: lists of as many objects would take four times their memory.
        none, nan = array("q", [0]), array("d", [NAN])
        for name in COUNTS:
            setattr(self, name, none * self.total)
        for name in TIMES:
            setattr(self, name, nan * self.total)
        self.status = ["unfinished"] * self.total

    def end(self, number: int, status: str, reason: str) -> None:
        """Request ``number`` ends unserved."""
        self.status[number] = status
        if status == "rejected":
            self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def finish(self, request: Request, replica: int, now_s: float) -> None:
        """A request emitted its last token at ``now_s``."""
        number = request.id
        self.replica[number] = replica
        self.finish_s[number] = now_s
        self.cached_tokens[number] = request.cached_tokens
        self._count(request)
        # Last, so that a row cut off by an interrupt still counts as unfinished.
        self.status[number] = "finished"

    def unschedule(self, number: int) -> None:
        """An attempt came to nothing: when it was scheduled and emitted no longer counts."""
        self.schedule_s[number] = self.first_token_s[number] = NAN

    def discard(self, request: Request) -> None:
        """Count what was done for an attempt that came to nothing."""
        self.discarded_tokens[request.id] += request.produced
        self._count(request)

    def _count(self, request: Request) -> None:
        number = request.id
        self.n_steps[number] += request.n_steps
        self.drafted[number] += request.drafted
        self.accepted[number] += request.accepted
        self.preemptions[number] += request.preemptions


class Recorder:
    """Collects what happens in all replicas of one run.

    Attributes
    ----------
    log : RequestLog
    totals : list of StepTotals
        One a replica.
    bins : list of Bins
        The same over time.
    gaps : list of LogHistogram
        Gaps between stream chunks of each replica.
    rows : StepRows or None
        Where step rows go; None when nobody wants them.
    modes : dict
        Log of the modes of each replica; empty where sequences do not switch.
    interrupted : bool
        Whether the run was stopped before every request was answered.
    """

    def __init__(self, total: int, replicas: int, on_steps: OnSteps | None = None) -> None:
        self.log = RequestLog(total)
        self.totals = [StepTotals() for _ in range(replicas)]
        self.gaps = [LogHistogram() for _ in range(replicas)]
        self.bins = [Bins(*both) for both in zip(self.totals, self.gaps, strict=True)]
        self.rows = None if on_steps is None else StepRows(on_steps)
        self.modes: dict[int, ModeLog] = {}
        self.interrupted = False
        self._left = total
        self._done: simpy.Event | None = None
        self._progress: Callable[[int, int], None] | None = None
        self._report_every = min(max(total // 100, 1), REPORT_REQUESTS)

    def modes_of(self, replica: int, names: tuple[str, ...]) -> ModeLog:
        """Log of the modes of a replica, made when it is first asked for."""
        return self.modes.setdefault(replica, ModeLog(names))

    @property
    def itl(self) -> LogHistogram:
        """Gaps between stream chunks."""
        return LogHistogram.merged(self.gaps)

    def on_done(self, done: simpy.Event, progress: Callable[[int, int], None] | None) -> None:
        """Trigger ``done`` when every request is finished or rejected; report on the way."""
        self._done, self._progress = done, progress

    def answered(self) -> None:
        """One more request is finished or rejected."""
        self._left -= 1
        if self._progress is not None and self._left % self._report_every == 0:
            self._progress(self.log.total - self._left, self.log.total)
        if not self._left and self._done is not None:
            self._done.succeed()
