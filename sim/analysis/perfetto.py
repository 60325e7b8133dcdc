"""Step and request tables as events of a trace: what ui.perfetto.dev and chrome://tracing show.

A run is a process, the engine of a replica a thread of it. Times are cut to a window and rounded
to nanoseconds, so that no slice reaches into the next by a rounding error.

Notes
-----
Chrome Trace Event Format: ``X`` is a slice, ``C`` a counter, ``b``, ``e`` and ``n`` the begin, the
end and an instant of an asynchronous slice, ``M`` a name; ``ts`` and ``dur`` are microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.analysis.metrics import Window
from sim.tables import STATUS_NAMES, Columns, Status

Event = dict[str, Any]

THREADS = 100_000
"""More replicas than a run has: thread numbers are unique in the whole trace."""
IDLE_NS = 1000
"""A shorter gap between steps is a rounding error."""
WORK = {"prefill": "prefill_tokens", "decode": "n_decode"}
PHASES = ("draft_s", "verify_s", "host_s")
COUNTERS = {"batch": "sequences", "waiting": "requests", "KV in use": "blocks"}
COUNTED = {"batch": "n_decode", "waiting": "waiting", "KV in use": "blocks_used"}
NOTHING = dict.fromkeys(COUNTERS, 0)
STAGES = ("queue", "prefill", "decode")
MOMENTS = ("arrival_s", "schedule_s", "first_token_s", "finish_s")


class RunTrace:
    """Events of one run, from its step table in parts and then its request table.

    Parameters
    ----------
    process : int
        Number of the run in the trace, from 1.
    window : Window
        What to show [s].
    """

    def __init__(self, process: int, window: Window) -> None:
        self._process = process
        self._begin, self._end = _nanoseconds(np.array(window)).tolist()
        self._ends: dict[int, int] = {}
        self._counts: dict[int, dict[str, int]] = {}

    @property
    def end_s(self) -> float:
        """End of the last step so far [s]."""
        return max(self._ends.values(), default=0) / 1e9

    def names(self, name: str, label: str) -> Iterator[Event]:
        """Names of the process and of the threads seen so far."""
        yield self._name("process_name", 0, name=name)
        yield self._name("process_labels", 0, labels=label)
        yield self._name("process_sort_index", 0, sort_index=self._process)
        for replica in sorted(self._ends):
            yield self._name("thread_name", replica, name=f"replica {replica}")

    def steps(self, columns: Columns) -> Iterator[Event]:
        """Slices and counters of the next steps, those of a replica in order of time."""
        for replica in np.unique(columns["replica"]).tolist():
            own = np.flatnonzero(columns["replica"] == replica)
            start_s = columns["start_s"][own]
            start, end = _nanoseconds(start_s), _nanoseconds(start_s + columns["duration_s"][own])
            before = np.append(self._ends.get(replica, start[0]), end[:-1])
            start = np.maximum(start, before)
            self._ends[replica] = int(end[-1])
            runs = (start < self._end) & (end > self._begin)
            idle = (before < self._end) & (start > self._begin) & (start - before > IDLE_NS)
            shown = np.flatnonzero(runs | idle)
            for row, step in zip(shown.tolist(), _rows(columns, own[shown]), strict=True):
                if idle[row]:
                    yield from self._counters(replica, int(before[row]), NOTHING)
                if runs[row]:
                    yield from self._step(replica, int(start[row]), int(end[row]), step)

    def idle(self) -> Iterator[Event]:
        """Counters drop to zero where each engine has run its last step."""
        for replica, end in self._ends.items():
            if self._begin <= end < self._end:
                yield from self._counters(replica, end, NOTHING)

    def requests(self, columns: Columns, names: Mapping[str, Sequence[str]]) -> Iterator[Event]:
        """Each request as an asynchronous slice named by its stream, its stages within.

        One that left without an answer ends where it was last heard of; one still in progress
        lasts until the end of the last step.
        """
        known = np.stack([columns[moment] for moment in MOMENTS])
        last_s = np.where(np.isnan(known), -np.inf, known).max(axis=0)
        open_ended = columns["status"] == Status.UNFINISHED
        last_s[open_ended] = np.maximum(last_s[open_ended], self.end_s)
        first, last = _nanoseconds(np.nan_to_num(known[0], nan=np.inf)), _nanoseconds(last_s)
        inside = (first < self._end) & ((last > self._begin) | (first >= self._begin))
        rows = np.flatnonzero(inside)
        for request, until in zip(_rows(columns, rows), last[rows].tolist(), strict=True):
            request |= {key: texts[request[key]] for key, texts in names.items()}
            request["status"] = STATUS_NAMES[request["status"]]
            yield from self._request(request, until)

    def _request(self, request: dict[str, Any], until: int) -> Iterator[Event]:
        moments = [None if (s := request[m]) is None else round(s * 1e9) for m in MOMENTS]
        since = moments[0]
        assert since is not None
        whole = self._asynchronous(request, request["stream"], since, until)
        if not whole:
            yield self._event("n", request, request["stream"], since) | {"args": request}
            return
        whole[0]["args"] = request
        yield whole[0]
        for stage, begun, ended in zip(STAGES, moments, moments[1:], strict=False):
            if begun is not None:
                yield from self._asynchronous(
                    request, stage, begun, until if ended is None else ended
                )
        yield whole[1]

    def _asynchronous(
        self, request: dict[str, Any], name: str, begun: int, ended: int
    ) -> list[Event]:
        """Begin and end, cut to the window; nothing where nothing is left."""
        begun, ended = max(begun, self._begin), min(ended, self._end)
        ends = (("b", begun), ("e", ended)) if begun < ended else ()
        return [self._event(phase, request, name, at) for phase, at in ends]

    def _event(self, phase: str, request: dict[str, Any], name: str, at: int) -> Event:
        identity = {"cat": "request", "id2": {"local": str(request["id"])}}
        return {"ph": phase, "name": name, **self._thread(request["replica"])} | identity | _at(at)

    def _step(self, replica: int, start: int, end: int, step: dict[str, Any]) -> Iterator[Event]:
        """A slice for the step, within it its phases, and what the counters show meanwhile."""
        yield from self._slice(replica, what(step), start, end, step)
        phases = [phase for phase in PHASES if step[phase] > 0]
        until = start + _nanoseconds(np.cumsum([step[phase] for phase in phases[:-1]]))
        edges = [start, *np.minimum(until, end).tolist(), end]
        for phase, begun, ended in zip(phases, edges, edges[1:], strict=False):
            yield from self._slice(replica, phase.removesuffix("_s"), begun, ended)
        counts = {name: step[column] for name, column in COUNTED.items()}
        yield from self._counters(replica, start, counts)

    def _slice(
        self, replica: int, name: str, start: int, end: int, args: dict[str, Any] | None = None
    ) -> Iterator[Event]:
        start, end = max(start, self._begin), min(end, self._end)
        if start < end:
            event = {"ph": "X", "name": name, "cat": "step", **self._thread(replica)}
            more = {} if args is None else {"args": args}
            yield event | _at(start) | {"dur": (end - start) / 1e3} | more

    def _counters(self, replica: int, at: int, counts: dict[str, int]) -> Iterator[Event]:
        """A point on every counter that changes."""
        before = self._counts.get(replica, {})
        self._counts[replica] = counts
        for name, count in counts.items():
            if count != before.get(name):
                event = {"ph": "C", "name": f"{name}, replica {replica}", "cat": "step"}
                more = _at(max(at, self._begin)) | {"args": {COUNTERS[name]: count}}
                yield event | self._thread(replica) | more

    def _name(self, kind: str, replica: int, **args: Any) -> Event:
        return {"ph": "M", "name": kind, **self._thread(replica), "args": args}

    def _thread(self, replica: int) -> dict[str, int]:
        return {"pid": self._process, "tid": THREADS * self._process + replica}


def what(step: dict[str, Any]) -> str:
    """What a step did: ``decode 34``, ``prefill 2048 + decode 34``."""
    parts = [f"{verb} {step[column]}" for verb, column in WORK.items() if step[column]]
    return " + ".join(parts) or "swap in"


def _at(nanoseconds: int) -> dict[str, float]:
    return {"ts": nanoseconds / 1e3}


def _nanoseconds(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round to nanoseconds; what is infinite becomes farther than any run."""
    return np.clip(np.rint(seconds * 1e9), -(2.0**62), 2.0**62).astype(np.int64)


def _rows(columns: Columns, rows: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    """Rows of a table as dicts, None for NaN."""
    lists = (column[rows].tolist() for column in columns.values())
    for values in zip(*lists, strict=True):
        known = (None if isinstance(v, float) and math.isnan(v) else v for v in values)
        yield dict(zip(columns, known, strict=True))
