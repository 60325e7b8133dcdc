"""Metrics of sliding windows of a run: its worst five minutes, and how it went.

A run is cut into bins of a fifth of a window; a window is five bins in a row, and holds the
requests that arrived in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analysis import metrics
from sim.analysis.metrics import Floats, select
from sim.analysis.slo import Objective, within
from sim.tables import Columns

BINS = 5
FEW = 20
"""Requests a window must hold to be the worst."""
ROUNDING = 1e-9
"""Of a bin: less than this of one more is none."""
SERIES = 300
SHORTEST_RUN = 1.5
"""Windows a run must last."""
LATENCIES = ("ttft_s", "tpot_s", "e2e_s")

Numbers = npt.NDArray[np.int64]


class _Known(NamedTuple):
    """One latency of the requests that have it, in order of arrival, and their bins."""

    values: Floats
    bins: Numbers


class Timeline:
    """One replication, or a stretch of it, in order of arrival, cut into bins.

    Parameters
    ----------
    run : Columns
        Its request table.
    asked : sequence of Objective
        What the streams must hold; may be empty.
    window_s : float
        Length of a window [s].
    span : (float, float), optional
        Only the requests that arrived from the one time and before the other, in windows that
        begin with it, the first one, and that end with it but for a fraction of a bin [s].
        Default all, in bins at multiples of a fifth of a window.
    unanswered_s : float
        Latency of requests that did not finish [s]; NaN: they have none.
    """

    def __init__(
        self,
        run: Columns,
        asked: Sequence[Objective],
        window_s: float,
        span: tuple[float, float] | None = None,
        unanswered_s: float = math.nan,
    ) -> None:
        self._unanswered_s = unanswered_s
        arrival = run["arrival_s"]
        lo, hi = span or (-np.inf, np.inf)
        came = np.flatnonzero((arrival >= lo) & (arrival < hi))
        order = came[np.argsort(arrival[came], kind="stable")]
        in_order = len(order) == len(arrival) and bool((np.diff(order) == 1).all())
        self.table = run if in_order else select(run, order)
        self.asked, self.window_s, self.hop_s = asked, window_s, window_s / BINS
        arrival = self.table["arrival_s"]
        self.start_s = float(arrival[0] // self.hop_s * self.hop_s) if arrival.size else 0.0
        self.end_s = float(arrival[-1]) if arrival.size else 0.0
        if span is not None:
            self.start_s, self.end_s = span
        self.bins = ((arrival - self.start_s) // self.hop_s).astype(np.int64)
        self.windows = int(self.bins[-1]) + 2 - BINS if arrival.size else 0
        if span is not None:
            whole = math.ceil((self.end_s - self.start_s) / self.hop_s - ROUNDING)
            self.windows = max(whole + 1 - BINS, 1)

    @property
    def lasts(self) -> bool:
        """Whether it spans enough windows for one of them to stand out."""
        arrival = self.table["arrival_s"]
        return len(arrival) > 0 and bool(np.ptp(arrival) >= SHORTEST_RUN * self.window_s)

    @cached_property
    def known(self) -> dict[str, _Known]:
        """Latencies by name."""
        found = {}
        for name in LATENCIES:
            values = metrics.LATENCIES[name](self.table)
            values[~metrics.finished(self.table)] = self._unanswered_s
            some = ~np.isnan(values) & ((name != "tpot_s") | (self.table["output_tokens"] > 1))
            found[name] = _Known(values[some], self.bins[some])
        return found

    @cached_property
    def finishes(self) -> Floats:
        """When requests finished, ascending [s]."""
        return np.sort(self.table["finish_s"][metrics.finished(self.table)])

    @cached_property
    def flags(self) -> Numbers:
        """Requests that met the bounds of their own, and requests with bounds: running sums."""
        sums = np.cumsum(within(self.table, self.asked), axis=1, dtype=np.int64)
        return np.pad(sums, ((0, 0), (1, 0)))

    def latency(self, name: str, window: int) -> Floats:
        """One latency of the requests of a window [s]."""
        known = self.known[name]
        first, last = np.searchsorted(known.bins, (window, window + BINS))
        return known.values[first:last]

    def p95(self, name: str, window: int) -> float | None:
        """95th percentile of one latency in a window [s]; None where nothing finished."""
        values = self.latency(name, window)
        return float(np.quantile(values, 0.95)) if values.size else None

    def edges(self, windows: Numbers) -> Numbers:
        """First request of each window, and the first after it, shape (2, windows)."""
        found: Numbers = np.searchsorted(self.bins, (windows, windows + BINS))
        return found

    def requests(self, windows: Numbers) -> Numbers:
        """How many requests arrived in each window."""
        first, last = self.edges(windows)
        held: Numbers = last - first
        return held

    @property
    def telling(self) -> Numbers:
        """Windows that hold enough requests to be judged by."""
        windows = np.unique(np.unique(self.bins)[:, None] - np.arange(BINS))
        windows = windows[(windows >= 0) & (windows < self.windows)]
        return windows[self.requests(windows) >= FEW]

    def attainment(self, windows: Numbers) -> Floats:
        """Share of the requests with bounds that met them, by window; NaN where there are none."""
        first, last = self.edges(windows)
        met, bound = self.flags[:, last] - self.flags[:, first]
        share: Floats = np.divide(met, bound, out=np.full(len(met), np.nan), where=bound > 0)
        return share

    def entry(self, window: int) -> dict[str, Any]:
        """Everything told of one window."""
        start_s = self.start_s + window * self.hop_s
        length_s = min(start_s + self.window_s, self.end_s) - start_s
        left = np.searchsorted(self.finishes, (start_s, start_s + length_s))
        at = np.array([window])
        requests, attainment = int(self.requests(at)[0]), float(self.attainment(at)[0])
        return {
            "start_s": start_s,
            "requests": requests,
            **{f"{name}_p95": self.p95(name, window) for name in LATENCIES},
            "attainment": None if np.isnan(attainment) else attainment,
            "offered_req_per_s": requests / length_s,
            "served_req_per_s": float(left[1] - left[0]) / length_s,
        }

    def worst(self) -> tuple[float, float, int] | None:
        """How bad the worst window is (share of misses, TTFT p95), and which; None if all hold few.

        A window in which nothing finished is worse than any other.
        """
        windows = self.telling
        if not windows.size:
            return None
        misses = np.nan_to_num(1.0 - self.attainment(windows), nan=-1.0)
        most = float(misses.max())
        waits = [
            (np.inf if p95 is None else p95, -int(window))
            for window in windows[misses == most]
            for p95 in [self.p95("ttft_s", window)]
        ]
        wait, window = max(waits)
        return most, wait, -window


def sliding(
    runs: Sequence[Columns], window_s: float, asked: Sequence[Objective], saturated: bool
) -> dict[str, Any] | None:
    """How a run went, window by window, and its worst window.

    Parameters
    ----------
    runs : sequence of Columns
        Request tables, one a replication, warm-up included.
    window_s : float
        Length of a window [s].
    asked : sequence of Objective
        What the streams must hold; may be empty.
    saturated : bool
        Passed on: where the rate is constant, what follows is a matter of the run's length.

    Returns
    -------
    dict or None
        None where no replication spans one and a half windows. ``series``: windows every
        ``hop_s``, about 300 at most over all replications; ``worst``: among the windows of every
        replication a fifth of a window apart that hold 20 requests, the one with the lowest
        attainment, of equal ones and where no bound is stated that with the largest TTFT p95; None
        where all hold fewer. It is in the series whatever its hop.
    """
    timelines = {
        replication: timeline
        for replication, run in enumerate(runs)
        if (timeline := Timeline(run, asked, window_s)).lasts
    }
    if not timelines:
        return None
    every = -(-sum(timeline.windows for timeline in timelines.values()) // SERIES)
    found = {number: timeline.worst() for number, timeline in timelines.items()}
    ranked = [(bad[:2], -number) for number, bad in found.items() if bad]
    chosen = -max(ranked)[1] if ranked else None
    series, worst = [], None
    for number, timeline in timelines.items():
        shown = set(range(0, timeline.windows, every))
        bad = found[number]
        if number == chosen and bad:
            shown.add(bad[2])
            worst = _worst(timeline, number, bad[2])
        series += [{"replication": number, **timeline.entry(window)} for window in sorted(shown)]
    return {
        "window_s": window_s,
        "hop_s": every * window_s / BINS,
        "saturated": saturated,
        "series": series,
        "worst": worst,
    }


def _worst(timeline: Timeline, replication: int, window: int) -> dict[str, Any]:
    return {
        "replication": replication,
        **timeline.entry(window),
        **{
            name: metrics.summary(timeline.latency(name, window))._asdict()
            for name in ("ttft_s", "tpot_s")
        },
        "by": "attainment" if timeline.asked else "ttft_s_p95",
    }
