"""Which part of a run counts: warm-up, the measured window, saturation, Little's law."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from sim.analysis.metrics import Floats, Window, e2e_s, finished, select
from sim.tables import Columns, Status

MSER_BATCH = 5
ROUNDING = 1e-9
SHORTFALL = 0.95
BACKLOG_GROWTH = 1.5
BACKLOG_SHARE = 0.02
BACKLOG_FLOOR = 16
LATENCY_GROWTH = 1.3
UNFINISHED_SHARE = 0.01


class Little(NamedTuple):
    """Both sides of L = lambda W over a window: they agree in a steady state."""

    in_system: float
    rate_per_s: float
    sojourn_s: float

    @property
    def expected_in_system(self) -> float:
        """The number in the system that Little's law predicts: lambda W."""
        return self.rate_per_s * self.sojourn_s


def warmup_count(values: Floats) -> int:
    """How many leading values to drop, by the rule MSER-5.

    Batches of five values are dropped from the front as long as that lowers the squared standard
    error of the mean of the rest, ``sum((x - mean)^2) / (n - d)^2``, at most half of them.

    Parameters
    ----------
    values : array
        One observation a request in order of arrival, shape (requests,), without NaN.

    Notes
    -----
    K. P. White, "An effective truncation heuristic for bias reduction in simulation output",
    Simulation 69 (1997); the batch of five is from Spratt (1998).
    """
    batches = len(values) // MSER_BATCH
    if batches < 2:
        return 0
    means = values[: batches * MSER_BATCH].reshape(batches, MSER_BATCH).mean(axis=1)
    means = means - means.mean()
    if np.abs(means).max() <= ROUNDING * np.abs(values).max():
        return 0
    left = np.arange(batches, 0, -1)
    tail_sum = np.cumsum(means[::-1])[::-1]
    tail_squares = np.cumsum(means[::-1] ** 2)[::-1]
    squared_error = (tail_squares - tail_sum**2 / left) / left.astype(np.float64) ** 2
    return int(np.argmin(squared_error[: batches // 2 + 1])) * MSER_BATCH


def without_warmup(columns: Columns, warmup: Literal["auto"] | float = "auto") -> Columns:
    """The requests that arrived after the warm-up.

    Parameters
    ----------
    columns : Columns
        The request table, in any order.
    warmup : "auto" or float
        ``auto`` finds the warm-up by MSER-5 on the end-to-end times of the finished requests; a
        number is the share of the requests to drop, by order of arrival.
    """
    order = np.argsort(columns["arrival_s"], kind="stable")
    if warmup == "auto":
        latency = e2e_s(columns)[order]
        measured = np.flatnonzero(~np.isnan(latency))
        dropped = warmup_count(latency[measured])
        first = int(measured[dropped]) if dropped else 0
    else:
        first = int(warmup * len(order))
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order[first:]] = True
    return select(columns, kept)


def window(kept: Columns) -> Window:
    """The stretch throughput is measured over: first to last arrival of the requests kept.

    Where that is shorter than twice the median end-to-end time (a burst, a handful of requests)
    there is no steady stretch, and the window runs to the last finish.
    """
    arrival = kept["arrival_s"]
    if not len(arrival):
        return Window(0.0, 0.0)
    start, end = float(arrival.min()), float(arrival.max())
    latency = e2e_s(kept)[finished(kept)]
    if latency.size and end - start < 2 * float(np.median(latency)):
        end = float(kept["finish_s"][finished(kept)].max())
    return Window(start, end)


def saturated(columns: Columns) -> bool:
    """Whether an open-loop run could not keep up with its arrivals.

    True when more than 1 % of the requests are unfinished because time ran out, or when during
    the second half of the arrivals all of this holds:

    - completions fall below 95 % of the arrivals;
    - the backlog (arrived, not finished) at its end exceeds 1.5 times that at its start, and also
      16 requests and 2 % of all;
    - requests of the last quarter took 1.3 times as long as those of the second, on average.

    The last condition tells a queue that grows from a run too short to fill up: there the backlog
    still rises, yet nobody waits longer. The limits are a compromise: the backlog of a stable
    M/M/1 queue at load 0.8 passes 40 of 2,000 requests with probability 1e-4, at load 1.1 it grows
    to about 180. Rejected requests are left out; they leave at once.
    """
    served = select(columns, np.not_equal(columns["status"], Status.REJECTED))
    total = len(served["arrival_s"])
    if total < MSER_BATCH:
        return False
    if np.equal(served["status"], Status.UNFINISHED).mean() > UNFINISHED_SHARE:
        return True
    order = np.argsort(served["arrival_s"], kind="stable")
    arrival, latency = served["arrival_s"][order], e2e_s(served)[order]
    middle, end = 0.5 * (arrival[0] + arrival[-1]), arrival[-1]
    finish = np.sort(arrival + latency)
    came, came_first = total, int(np.searchsorted(arrival, middle, side="right"))
    done, done_first = (int(np.searchsorted(finish, t, side="right")) for t in (end, middle))
    backlog, backlog_first = came - done, came_first - done_first
    quarter = total // 4
    return bool(
        done - done_first < SHORTFALL * (came - came_first)
        and backlog > BACKLOG_GROWTH * backlog_first
        and backlog > max(BACKLOG_FLOOR, BACKLOG_SHARE * total)
        and np.nanmean(latency[-quarter:])
        > LATENCY_GROWTH * np.nanmean(latency[quarter : 2 * quarter])
    )


def little(columns: Columns, over: Window) -> Little:
    """Requests in the system, arrival rate and mean sojourn over a window of finished requests.

    ``in_system`` is the time average of the number present, found from arrivals and finishes;
    rate and sojourn are those of the requests that arrived within the window.

    Raises
    ------
    ValueError
        If the window is empty.
    """
    if over.length_s <= 0:
        raise ValueError(f"Little's law needs a window longer than 0 s, got {over}")
    done = select(columns, finished(columns))
    arrival, finish = done["arrival_s"], done["finish_s"]
    present = np.clip(finish, *over) - np.clip(arrival, *over)
    inside = (arrival >= over.start_s) & (arrival <= over.end_s)
    sojourn = float((finish - arrival)[inside].mean()) if inside.any() else 0.0
    return Little(
        float(present.sum() / over.length_s), float(inside.sum() / over.length_s), sojourn
    )
