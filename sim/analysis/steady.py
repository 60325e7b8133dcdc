"""Which part of a run counts: warm-up, the measured window, saturation, Little's law."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from sim.analysis.lifetimes import arrival_span, lifetimes, lives_s
from sim.analysis.metrics import Floats, Window, e2e_s, finished, queue_s, select
from sim.tables import Columns, Status

MSER_BATCH = 5
ROUNDING = 1e-9
SHORTFALL = 0.95
BACKLOG_GROWTH = 1.2
BACKLOG_SHARE = 0.02
BACKLOG_FLOOR = 16
E2E_TREND = 0.25
QUEUE_TREND = 0.5
QUEUE_SHARE = 0.1
SURE_ERRORS = 3.0
SHORT_WINDOW = 2.0
SHORT_RUN = 8.0
SETTLED = 3.0
SURE_GROWTH = 4.0
UNFINISHED_SHARE = 0.01
UNDRAINED_SHARE = 0.01
GAVE_UP = (Status.REJECTED, Status.TIMED_OUT, Status.FAILED)


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
        ``auto`` finds the warm-up by MSER-5 on the end-to-end times of the finished requests, and
        where there are sessions leaves out the time most of them last: a run starts without any
        under way. A number is the share of the requests to drop, by order of arrival.
    """
    order = np.argsort(columns["arrival_s"], kind="stable")
    if warmup == "auto":
        latency = e2e_s(columns)[order]
        measured = np.flatnonzero(~np.isnan(latency))
        dropped = warmup_count(latency[measured])
        first = max(int(measured[dropped]) if dropped else 0, _filling(columns))
    else:
        first = int(warmup * len(order))
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order[first:]] = True
    return select(columns, kept)


def _filling(columns: Columns) -> int:
    """Requests sent before nine in ten sessions could have ended; at most half of all."""
    lives = lives_s(columns)
    if len(lives) == len(columns["id"]) or np.isnan(lives).all():
        return 0
    arrival = np.sort(columns["arrival_s"])
    full_s = arrival[0] + np.nanquantile(lives, 0.9)
    return min(int(np.searchsorted(arrival, full_s)), len(arrival) // 2)


def window(kept: Columns) -> Window:
    """The stretch throughput of an open loop is measured over: first to last arrival kept.

    Sessions end it where the last of them begins: only late turns arrive after. Where it is
    shorter than two median lifetimes (a burst, a handful of requests) there is no steady stretch,
    and the window runs to the last finish.
    """
    whole = whole_run(kept)
    if not whole.length_s or lifetimes(kept) < SHORT_WINDOW:
        return whole
    return Window(whole.start_s, arrival_span(kept).end_s)


def short_run(columns: Columns) -> bool:
    """Whether arrivals lasted less than eight median lifetimes: hardly a steady state.

    A batch sent all at once has none by intention, and is not called short.
    """
    return 0.0 < lifetimes(columns) < SHORT_RUN


def whole_run(columns: Columns) -> Window:
    """First arrival to last finish: the stretch a closed loop is measured over.

    It does not depend on how fast a strategy is, so throughputs compare; the tail, in which users
    have nothing left to send, counts as it does in a benchmark client.
    """
    if not len(columns["arrival_s"]):
        return Window(0.0, 0.0)
    start, done = float(columns["arrival_s"].min()), finished(columns)
    return Window(start, float(columns["finish_s"][done].max()) if done.any() else start)


def saturated(columns: Columns) -> bool:
    """Whether an open-loop run could not keep up with its arrivals.

    True when more than 1 % of the requests are unfinished because time ran out, or when during
    the second half of the arrivals all of this holds:

    - completions fall below 95 % of the arrivals;
    - the backlog (arrived, not finished) at its end exceeds 1.2 times that at its start, and also
      16 requests and 2 % of all;
    - the system had filled up by then (the first half lasted three median end-to-end times) and
      the backlog grew by more than four times the root of both, so not by chance; or a straight
      line through the end-to-end times rises by a quarter of their mean, or one through the
      queueing times, where they are a tenth of the end-to-end times, by half of theirs, either
      by more than three of its standard errors.

    The last condition tells a queue that grows from a run too short to fill up: there the backlog
    still rises, yet nobody waits longer. The limits are a compromise: the backlog of a stable
    M/M/1 queue at load 0.8 passes 40 of 2,000 requests with probability 1e-4, at load 1.1 it grows
    to about 180. Requests that gave up (rejected, timed out, lost with a replica) are left out, and
    so are late turns sent after the last session began.
    """
    stayed = _stayed(columns)
    served = _while_begun(stayed)
    if len(served["arrival_s"]) < MSER_BATCH:
        return False
    if _cut_off(served):
        return True
    if not _backlog_grows(served):
        return False
    arrival, finish = np.sort(served["arrival_s"]), np.sort(served["finish_s"])
    middle = 0.5 * (arrival[0] + arrival[-1])
    first, last = _backlog(arrival, finish, middle), _backlog(arrival, finish, arrival[-1])
    sure = last - first > SURE_GROWTH * np.sqrt(first + last)
    settled = lifetimes(stayed) > 2 * SETTLED
    later = select(served, served["arrival_s"] > middle)
    return bool(sure and settled) or _waits_grow(later)


def overloaded(columns: Columns) -> bool:
    """Whether a run whose rate changes with time ended with a backlog it could not carry.

    There is no steady state to leave: a backlog that grows to a peak and drains is the answer to
    the question asked. True when more than 1 % of the requests are unfinished because time ran
    out, or when both of this holds at the last arrival:

    - the backlog (arrived, not finished) exceeds 16 requests and 1 % of all;
    - the last tenth of the arrivals waited longer than requests are served: their median queueing
      time exceeds the median of e2e - queue of the whole run.

    The first alone is a run that ends at its busiest, with many requests in service and none in
    a queue; the second alone a queue of a few long requests. Requests that gave up are left out.
    """
    served = _stayed(columns)
    total = len(served["arrival_s"])
    if total < MSER_BATCH:
        return False
    if _cut_off(served):
        return True
    arrival, finish = np.sort(served["arrival_s"]), np.sort(served["finish_s"])
    if _backlog(arrival, finish, arrival[-1]) <= max(BACKLOG_FLOOR, UNDRAINED_SHARE * total):
        return False
    done = select(served, finished(served))
    queue, service = queue_s(done), e2e_s(done) - queue_s(done)
    last = done["arrival_s"] >= arrival[-total // 10]
    return bool(np.median(queue[last]) > np.median(service))


def _stayed(columns: Columns) -> Columns:
    """The requests that were finished, or would have been had the run gone on."""
    return select(columns, ~np.isin(columns["status"], GAVE_UP))


def _cut_off(served: Columns) -> bool:
    return bool(np.equal(served["status"], Status.UNFINISHED).mean() > UNFINISHED_SHARE)


def unsettled(columns: Columns) -> bool:
    """Whether an open-loop run shows no steady state: too short, or its backlog still grows."""
    stayed = _stayed(columns)
    served = _while_begun(stayed)
    return short_run(stayed) or (len(served["arrival_s"]) > 0 and _backlog_grows(served))


def _while_begun(columns: Columns) -> Columns:
    """The requests sent while sessions still began."""
    return select(columns, columns["arrival_s"] <= arrival_span(columns).end_s)


def _backlog_grows(served: Columns) -> bool:
    """The first two conditions of ``saturated``: completions fall behind, the backlog rises."""
    arrival, finish = np.sort(served["arrival_s"]), np.sort(served["finish_s"])
    middle, end = 0.5 * (arrival[0] + arrival[-1]), arrival[-1]
    came = len(arrival) - int(np.searchsorted(arrival, middle, side="right"))
    first, last = _backlog(arrival, finish, middle), _backlog(arrival, finish, end)
    return bool(
        came - (last - first) < SHORTFALL * came
        and last > BACKLOG_GROWTH * first
        and last > max(BACKLOG_FLOOR, BACKLOG_SHARE * len(arrival))
    )


def _backlog(arrival: Floats, finish: Floats, time: float) -> int:
    """Requests arrived and not finished at ``time``; both arrays sorted."""
    came, done = (int(np.searchsorted(times, time, side="right")) for times in (arrival, finish))
    return came - done


def _waits_grow(half: Columns) -> bool:
    latency, queue = e2e_s(half), queue_s(half)
    if _trend(half["arrival_s"], latency) > E2E_TREND:
        return True
    queueing = float(np.nanmean(queue)) > QUEUE_SHARE * float(np.nanmean(latency))
    return queueing and _trend(half["arrival_s"], queue) > QUEUE_TREND


def _trend(time: Floats, values: Floats) -> float:
    """Rise of a least-squares line from first to last time over the mean; 0 when unsure."""
    known = ~np.isnan(values)
    time, values = time[known], values[known]
    span, mean = float(np.ptp(time)) if time.size else 0.0, float(values.mean())
    if span <= 0.0 or mean <= 0.0:
        return 0.0
    fit = stats.linregress(time, values)
    sure = fit.slope > SURE_ERRORS * fit.stderr
    return float(fit.slope) * span / mean if sure else 0.0


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
