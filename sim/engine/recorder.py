"""What a run leaves behind: one row a request, step totals, and step rows for who wants them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import simpy

from sim.engine.request import Request
from sim.histogram import LogHistogram

NAN = math.nan
CHUNK_STEPS = 65_536
"""Step rows handed over at a time."""
REPORT_REQUESTS = 500
"""Most requests between two reports of progress: some hundredths of a second."""


@dataclass(slots=True)
class StepTotals:
    """Sums over the steps of one replica.

    Attributes
    ----------
    steps : int
        Steps run.
    decode_s : float
        Time in steps that decode [s].
    n_s, width_s : float
        Decoding sequences and, where their width varies, their query tokens, integrated over that
        time.
    blocks_peak : int
        Most KV blocks in use during a step.
    """

    steps: int = 0
    decode_s: float = 0.0
    n_s: float = 0.0
    width_s: float = 0.0
    blocks_peak: int = 0


@dataclass
class RequestLog:
    """Columns of the request table, by request id; NaN where it did not happen.

    ``refusals`` counts rejected requests by reason.
    """

    total: int
    replica: list[int] = field(init=False)
    status: list[str] = field(init=False)
    schedule_s: list[float] = field(init=False)
    first_token_s: list[float] = field(init=False)
    finish_s: list[float] = field(init=False)
    arrival_s: list[float] = field(init=False)
    cached_tokens: list[int] = field(init=False)
    n_steps: list[int] = field(init=False)
    drafted: list[int] = field(init=False)
    accepted: list[int] = field(init=False)
    preemptions: list[int] = field(init=False)
    refusals: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        n = self.total
        self.replica, self.cached_tokens, self.n_steps = [0] * n, [0] * n, [0] * n
        self.drafted, self.accepted, self.preemptions = [0] * n, [0] * n, [0] * n
        self.status = ["unfinished"] * n
        self.schedule_s, self.first_token_s = [NAN] * n, [NAN] * n
        self.finish_s, self.arrival_s = [NAN] * n, [NAN] * n

    def reject(self, number: int, reason: str) -> None:
        """The engine refused request ``number``."""
        self.status[number] = "rejected"
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def finish(self, request: Request, replica: int, now_s: float) -> None:
        """A request emitted its last token at ``now_s``."""
        number = request.id
        self.replica[number] = replica
        self.finish_s[number] = now_s
        self.cached_tokens[number] = request.cached_tokens
        self.n_steps[number] = request.n_steps
        self.drafted[number] = request.drafted
        self.accepted[number] = request.accepted
        self.preemptions[number] = request.preemptions
        # Last, so that a row cut off by an interrupt still counts as unfinished.
        self.status[number] = "finished"


StepRow = tuple[int, float, float, float, float, float, int, int, int, int, int, int]
OnSteps = Callable[[list[StepRow]], None]


class StepRows:
    """Step rows on their way out, so that a long run does not hold them all.

    Parameters
    ----------
    on_steps : callable
        Gets full chunks of rows in the order of ``sim.tables.STEPS``, and what is left at the end.
    """

    def __init__(self, on_steps: OnSteps) -> None:
        self._on_steps = on_steps
        self._rows: list[StepRow] = []

    def append(self, row: StepRow) -> None:
        """Take the row of one step."""
        self._rows.append(row)
        if len(self._rows) == CHUNK_STEPS:
            self.flush()

    def flush(self) -> None:
        """Hand over the rows not yet handed over."""
        rows, self._rows = self._rows, []
        if rows:
            self._on_steps(rows)


class Recorder:
    """Collects what happens in all replicas of one run.

    Attributes
    ----------
    log : RequestLog
    totals : list of StepTotals
        One a replica.
    itl : LogHistogram
        Gaps between stream chunks.
    rows : StepRows or None
        Where step rows go; None when nobody wants them.
    interrupted : bool
        Whether the run was stopped before every request was answered.
    """

    def __init__(self, total: int, replicas: int, on_steps: OnSteps | None = None) -> None:
        self.log = RequestLog(total)
        self.totals = [StepTotals() for _ in range(replicas)]
        self.itl = LogHistogram()
        self.rows = None if on_steps is None else StepRows(on_steps)
        self.interrupted = False
        self._left = total
        self._done: simpy.Event | None = None
        self._progress: Callable[[int, int], None] | None = None
        self._report_every = min(max(total // 100, 1), REPORT_REQUESTS)

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
