"""Windows that are lost for certain while the run still goes on.

What it saves of an hour of 25,000 requests: of one at a tenth above the largest load four fifths,
at a quarter above and beyond nine tenths; next to the largest load, where most loads are tried,
little. A search of three workloads simulates 284,000 requests in place of 377,000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analysis.metrics import QUANTILES, Floats
from sim.analysis.slo import Objective
from sim.analysis.windows import BINS, Numbers, Timeline
from sim.engine.recorder import Recorder, RequestLog
from sim.scenario.requests import Requests
from sim.tables import Columns

Flags = npt.NDArray[np.bool_]

GAVE_UP = frozenset(("rejected", "timed_out", "failed"))
ROUNDING_S = 1e-9
"""Clocks of engines and SimPy's differ by rounding."""


class Decided(KeyboardInterrupt):
    """Ends a run whose answer is known."""


class Seen(NamedTuple):
    """Some requests as they stand at a time; every array of shape (requests,).

    Attributes
    ----------
    at_s : float
        The time [s].
    arrival_s, first_s, finish_s : array
        NaN where it has not happened [s].
    later : array
        Output tokens after the first.
    lost : array
        Requests that will never be answered.
    steady : bool
        Nothing makes a request begin anew: a first token stays its first.
    """

    at_s: float
    arrival_s: Floats
    first_s: Floats
    finish_s: Floats
    later: npt.NDArray[np.int64]
    lost: Flags
    steady: bool

    @property
    def answered(self) -> Flags:
        """Those about which nothing more will be learnt."""
        return ~np.isnan(self.finish_s) | self.lost

    def over(self, metric: str, bound_s: float) -> Flags:
        """Those certain to end with a latency above a bound."""
        if metric == "tpot_s":
            late = np.zeros(len(self.later), dtype=np.bool_)
            rows = np.flatnonzero(self.later > 0)
            until = np.where(np.isnan(self.finish_s), self.at_s, self.finish_s)[rows]
            known = ~np.isnan(self.finish_s[rows]) | self.steady
            since = (until - self.first_s[rows]) / self.later[rows] > bound_s
            late[rows] = (since & known) | self.lost[rows]
            return late
        end = self.first_s if metric == "ttft_s" else self.finish_s
        waited = np.where(np.isnan(end), self.at_s, end) - self.arrival_s
        over: Flags = (waited > bound_s) | self.lost
        return over


class _Group:
    """Requests of one objective in order of arrival, in the windows they are judged in.

    ``closed``: leading windows about which nothing more will be learnt.
    """

    def __init__(
        self, objective: Objective, columns: Columns, window_s: float, span: tuple[float, float]
    ) -> None:
        self.objective = objective
        mine = {name: column[objective.rows(columns)] for name, column in columns.items()}
        line = judged_line(mine, [objective], window_s, span)
        self.rows = line.table["id"]
        self.arrival_s = line.table["arrival_s"]
        self.first, self.last = line.edges(judged_windows(line))
        ends_s = line.start_s + (judged_windows(line) + BINS) * line.hop_s
        self.ends_s = np.minimum(ends_s, span[1])
        self.closed = 0
        several = np.pad(np.cumsum(line.table["output_tokens"] > 1), (1, 0))
        self.held = self.last - self.first
        self.streamed = several[self.last] - several[self.first]


class Watch:
    """Looks at a run now and then, and ends it when its answer is known.

    Parameters
    ----------
    requests : Requests
    asked : sequence of Objective
    window_s : float
    span : (float, float)
        The requests that count arrive from the one time and before the other [s].
    steady : bool
        As in ``Seen``.
    early : bool
        End the run as soon as a window is lost; it always ends when all that counts is answered.

    Attributes
    ----------
    lost : str or None
        What a window missed for certain.
    over : bool
        Whether it ended the run.

    Notes
    -----
    With n requests in a window the q-quantile, interpolated between those at ``floor(q (n - 1))``
    and the next, exceeds its bound for certain once ``n - floor(q (n - 1))`` of them do. Where
    arrivals follow from answers, a window is looked at once it is over: until then nobody knows
    how many requests it holds.
    """

    def __init__(
        self,
        requests: Requests,
        asked: Sequence[Objective],
        window_s: float,
        span: tuple[float, float],
        steady: bool,
        early: bool = True,
    ) -> None:
        self.lost: str | None = None
        self.over = False
        self._requests, self._asked = requests, asked
        self._window_s, self._span, self._steady, self._early = window_s, span, steady, early
        self._open = requests.users is None and not requests.turn.any()
        self._groups = self._grouped(requests.arrival_s) if self._open else []

    def _grouped(self, arrival_s: Floats) -> list[_Group]:
        columns: Columns = {
            "id": np.arange(len(arrival_s)),
            "arrival_s": arrival_s,
            "stream": self._requests.stream,
            "output_tokens": self._requests.output_tokens,
        }
        return [_Group(one, columns, self._window_s, self._span) for one in self._asked]

    def look(self, recorder: Recorder, now_s: float) -> None:
        """Decide what can be decided.

        Raises
        ------
        Decided
            If a window is lost, or all requests that count are answered.
        """
        now_s -= ROUNDING_S
        if now_s < self._span[0]:
            return
        groups, log = self._groups, recorder.log
        if not self._open:
            arrival_s = np.array(log.arrival_s)
            if now_s >= self._span[1] and self._all_answered(log, arrival_s):
                self.over = True
                raise Decided
            groups = self._grouped(arrival_s) if self._early else []
        for group in groups if self._early else ():
            self.lost = self.lost or self._missed(group, log, now_s)
        if self.lost:
            self.over = True
            raise Decided

    def _all_answered(self, log: RequestLog, arrival_s: Floats) -> bool:
        start_s, end_s = self._span
        rows = np.flatnonzero((arrival_s >= start_s) & (arrival_s < end_s))
        return all(log.status[row] != "unfinished" for row in rows.tolist())

    def _missed(self, group: _Group, log: RequestLog, now_s: float) -> str | None:
        """What a window of a group misses for certain, if one does."""
        windows = np.arange(group.closed, len(group.held))
        windows = windows[(group.held[windows] > 0)]
        if not self._open:
            windows = windows[group.ends_s[windows] <= now_s]
        if not windows.size:
            return None
        lo = int(group.first[windows[0]])
        hi = int(np.searchsorted(group.arrival_s, now_s))
        seen = self._seen(group.rows[lo:hi], group.arrival_s[lo:hi], log, now_s)
        first, last = (
            np.clip(edge[windows], lo, max(hi, lo)) - lo for edge in (group.first, group.last)
        )
        whole = _within(seen.answered, first, last) == group.held[windows]
        group.closed += int(whole.size if whole.all() else np.argmin(whole))
        return _lost(group, windows, seen, first, last)

    def _seen(self, rows: Numbers, arrival_s: Floats, log: RequestLog, now_s: float) -> Seen:
        if not rows.size:
            nothing = np.zeros(0)
            none = np.zeros(0, dtype=np.bool_)
            return Seen(now_s, nothing, nothing, nothing, rows, none, self._steady)
        lo, hi = int(rows.min()), int(rows.max()) + 1
        at = rows - lo
        return Seen(
            now_s,
            arrival_s,
            np.array(log.first_token_s[lo:hi])[at],
            np.array(log.finish_s[lo:hi])[at],
            self._requests.output_tokens[rows] - 1,
            np.array([status in GAVE_UP for status in log.status[lo:hi]], dtype=np.bool_)[at],
            self._steady,
        )


def _lost(group: _Group, windows: Numbers, seen: Seen, first: Numbers, last: Numbers) -> str | None:
    objective = group.objective
    held, streamed = group.held[windows], group.streamed[windows]
    for metric, quantiles in objective.bounds.items():
        counted = streamed if metric == "tpot_s" else held
        for statistic, bound in quantiles.items():
            misses = _within(seen.over(metric, bound), first, last)
            if (misses >= too_many(counted, QUANTILES[statistic])).any():
                return f"{metric} {statistic}"
    missed = np.zeros(len(seen.later), dtype=np.bool_)
    for metric, limit in objective.limits.items():
        missed |= seen.over(metric, limit)
    misses = _within(missed, first, last)
    if ((held - misses) / held < objective.target).any():
        return "attainment"
    return None


def _within(flags: Flags, first: Numbers, last: Numbers) -> Numbers:
    sums = np.pad(np.cumsum(flags, dtype=np.int64), (1, 0))
    return sums[last] - sums[first]


def too_many(held: Numbers, q: float) -> Numbers:
    """Requests over a bound that put the q-quantile of so many over it."""
    needed: Numbers = held - np.floor(q * (held - 1)).astype(np.int64)
    return np.where(held > 0, needed, np.iinfo(np.int64).max)


def judged_line(
    columns: Columns,
    asked: Sequence[Objective],
    window_s: float,
    span: tuple[float, float],
    unanswered_s: float = math.inf,
) -> Timeline:
    """The stretch in windows; in a single one where none holds enough requests to be judged by."""
    line = Timeline(columns, asked, window_s, span, unanswered_s)
    whole_s = span[1] - span[0]
    if line.telling.size or whole_s == window_s:
        return line
    return Timeline(columns, asked, whole_s, span, unanswered_s)


def judged_windows(line: Timeline) -> Numbers:
    """The windows that hold enough requests, or all."""
    return line.telling if line.telling.size else np.arange(line.windows)
