"""Requests of a trace: its window, scaled in rate and time, with what its prompts share."""

from __future__ import annotations

import math
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.schema import ModelError
from models.strict_yaml import show
from sim.scenario.checks import blame
from sim.scenario.distributions import Floats, Ints
from sim.scenario.mixture import Clock, StreamDraws, choose_streams, domains_change, draw_domains
from sim.scenario.requests import Prefixes, Requests
from sim.scenario.trace.columns import spread
from sim.scenario.trace.prefixes import Turns, drawn_chains, session_chains
from sim.scenario.trace.reading import TraceFile, read_trace
from sim.scenario.trace.schema import Trace
from sim.scenario.workload import MAX_REQUESTS, Workload

FROM_TRACE = ("prompt_tokens", "output_tokens", "lengths", "prefix", "session")
NAMES_SHOWN = 12

_PURPOSES = ("thinning", "copies", "streams", "domains", "regimes")
_KEY = 0x7ACE


class Chosen(NamedTuple):
    """Rows of a trace that are replayed, in order of arrival; every array of shape (n,).

    Attributes
    ----------
    row, copy : int64
        Row of the trace, and how many times it was taken before.
    arrival_s : float64
        Since the start of the window [s].
    """

    row: Ints
    copy: Ints
    arrival_s: Floats


def replayed(workload: Workload, arrivals: Trace, seed: int, replication: int) -> Requests:
    """Make the requests of one replication; see ``generate``.

    Replications differ only where rows are left out or copied, or streams drawn by share.

    Raises
    ------
    InputError, ModelError
        As ``check_replay``.
    """
    trace = _file(arrivals)
    chosen = _chosen(trace, workload, arrivals, seed, replication)
    row, n = chosen.row, len(chosen.row)
    stream = _streams(trace, workload, arrivals, seed, replication)[row]
    prefixes, keeps = _shared(trace, chosen)
    return Requests(
        arrival_s=chosen.arrival_s,
        stream=stream,
        prompt_tokens=trace.prompt_tokens[row].astype(np.int64),
        output_tokens=trace.output_tokens[row].astype(np.int64),
        domain=_domains(trace, workload, chosen, stream, partial(_rng, seed, replication)),
        prefixes=prefixes,
        keeps=keeps,
        turn=np.zeros(n, dtype=np.int64),
        think_s=np.zeros(n),
        users=None,
        stream_names=tuple(kind.name for kind in workload.streams),
        domain_names=workload.domain_names,
    )


def replayed_count(workload: Workload, arrivals: Trace, seed: int, replication: int) -> int:
    """How many requests ``replayed`` makes."""
    trace = _file(arrivals)
    times = _times(trace, _window(trace, arrivals), arrivals.rate_scale, seed, replication)
    total = int(times.sum())
    return min(total, workload.requests or total)


def summary(workload: Workload, arrivals: Trace, seed: int, folder: PurePath) -> dict[str, Any]:
    """Say what the first replication replays: the file, its lines, the requests made of them.

    Parameters
    ----------
    workload, arrivals, seed
        As for ``replayed``.
    folder : path
        A file within it is named as seen from there.
    """
    trace, path = _file(arrivals), PurePath(arrivals.file)
    row, _, arrival_s = _chosen(trace, workload, arrivals, seed, 0)
    return {
        "file": str(path.relative_to(folder) if path.is_relative_to(folder) else path),
        "format": trace.format,
        "rows": trace.rows,
        "used": len(arrival_s),
        "failures": trace.failures,
        "skipped": trace.skipped,
        "span_s": float(arrival_s[-1] - arrival_s[0]),
        "mean_prompt_tokens": float(trace.prompt_tokens[row].mean()),
        "mean_output_tokens": float(trace.output_tokens[row].mean()),
        "sha256": trace.sha256,
    }


def check_replay(workload: Workload, arrivals: Trace) -> None:
    """Refuse a trace that cannot be replayed, and keys that have no meaning beside one.

    Raises
    ------
    InputError
        For bad lines, with the trace file and the number of the first.
    ModelError
        For all else, with the dotted key at fault.
    """
    for index, kind in enumerate(workload.streams):
        for key in FROM_TRACE:
            if key in kind.model_fields_set and getattr(kind, key) is not None:
                where = f"workload.streams[{index}].{key}"
                raise ModelError("comes from the trace; leave this key out", where)
        if arrivals.stream_from and "share" in kind.model_fields_set:
            raise ModelError(
                f"comes from the trace with stream_from: {arrivals.stream_from}; leave it out",
                f"workload.streams[{index}].share",
            )
    trace = _file(arrivals)
    rows = _window(trace, arrivals)
    most = math.ceil(len(rows) * arrivals.rate_scale)
    if workload.requests is not None and workload.requests > most:
        raise ModelError(
            f"the trace has {most} requests there, got {workload.requests}", "workload.requests"
        )
    if arrivals.stream_from:
        _named_streams(trace, workload, arrivals.stream_from)


def _file(arrivals: Trace) -> TraceFile:
    with blame("workload.arrivals.file"):
        return read_trace(arrivals.file, arrivals.format, arrivals.bad_lines)


def _rng(seed: int, replication: int, purpose: str, stream: int = 0) -> np.random.Generator:
    key = (replication, _KEY, _PURPOSES.index(purpose), stream)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _chosen(
    trace: TraceFile, workload: Workload, arrivals: Trace, seed: int, replication: int
) -> Chosen:
    rows = _window(trace, arrivals)
    times = _times(trace, rows, arrivals.rate_scale, seed, replication)
    row, copy = np.repeat(rows, times), spread(np.zeros(len(rows), dtype=np.int64), times)
    time = trace.arrival_s[row]
    gaps = np.diff(trace.arrival_s, append=trace.arrival_s[-1])
    for number in range(1, int(times.max())):
        (mine,) = np.nonzero(copy == number)
        late = _rng(seed, replication, "copies", number).random(len(trace))[row[mine]]
        time[mine] += late * gaps[row[mine]]
    order = np.argsort(time, kind="stable")[: workload.requests]
    return Chosen(row[order], copy[order], (time[order] - arrivals.from_s) * arrivals.time_scale)


def _window(trace: TraceFile, arrivals: Trace) -> Ints:
    """Rows within the window."""
    end_s = np.inf if arrivals.to_s is None else arrivals.to_s
    first, end = np.searchsorted(trace.arrival_s, [arrivals.from_s, end_s])
    if first == end:
        raise ModelError(
            f"leaves no request up to to_s: the last of all comes {trace.arrival_s[-1]:g} s after "
            f"the first, got {arrivals.from_s:g}",
            "workload.arrivals.from_s",
        )
    if (end - first) * arrivals.rate_scale > MAX_REQUESTS:
        raise ModelError(
            f"makes more than {MAX_REQUESTS} of {end - first} requests, "
            f"got {arrivals.rate_scale:g}",
            "workload.arrivals.rate_scale",
        )
    return np.arange(first, end)


def _times(trace: TraceFile, rows: Ints, scale: float, seed: int, replication: int) -> Ints:
    """How often each row is replayed; all of a family alike, and never none at all.

    A family is in the replay at every scale above its own draw, so that a smaller one is part of
    each larger one.
    """
    whole, part = divmod(scale, 1.0)
    times = np.full(len(rows), int(whole))
    if not part:
        return times
    family = _families(trace)
    draws = _rng(seed, replication, "thinning").random(int(family.max()) + 1)[family[rows]]
    times += draws < part
    return times if times.any() else (draws == draws.min()).astype(np.int64)


def _families(trace: TraceFile) -> Ints:
    """Equal numbers for requests that belong together: of one session, or of one conversation."""
    if trace.chains is not None:
        return trace.chains.family
    alone = np.arange(len(trace))
    if "session" not in trace.labels:
        return alone
    session = trace.labels["session"].codes
    return np.where(session > 0, len(trace) + session, alone)


def _streams(
    trace: TraceFile, workload: Workload, arrivals: Trace, seed: int, replication: int
) -> NDArray[np.int32]:
    """Stream of each row of the trace: by its column, or drawn by share for each family."""
    if arrivals.stream_from:
        return _named_streams(trace, workload, arrivals.stream_from)
    family = _families(trace)
    draws = _rng(seed, replication, "streams").random(int(family.max()) + 1)[family]
    return choose_streams(workload.streams, draws, None).astype(np.int32)


def _named_streams(trace: TraceFile, workload: Workload, column: str) -> NDArray[np.int32]:
    """Stream of each row of the trace by one of its columns."""
    label, key = trace.labels.get(column), "workload.arrivals.stream_from"
    if label is None:
        raise ModelError(f"this {trace.format} trace has no such column, got '{column}'", key)
    if not label.codes.all():
        raise ModelError(f"must name a stream for every request, some have no {column}", key)
    names = [kind.name for kind in workload.streams]
    seen = [label.names[code] for code in np.unique(label.codes)]
    listed = ", ".join(show(name) for name in seen[:NAMES_SHOWN])
    listed += ", ..." if len(seen) > NAMES_SHOWN else ""
    for name in (*seen, *names):
        if name not in names:
            raise ModelError(
                f"one must be called {show(name)}: the trace has the {column} {listed}",
                "workload.streams",
            )
        if name not in seen:
            raise ModelError(
                f"no request has this {column}, there is {listed}; got {show(name)}",
                f"workload.streams[{names.index(name)}].name",
            )
    places = np.zeros(len(label.names), dtype=np.int32)
    for code, name in enumerate(label.names):
        places[code] = names.index(name) if name in names else 0
    return places[label.codes]


def _domains(
    trace: TraceFile,
    workload: Workload,
    chosen: Chosen,
    stream: NDArray[np.int32],
    rng: StreamDraws,
) -> Ints:
    """Domain of each request: that of the first of its family, copy and stream."""
    n, first = len(chosen.row), np.arange(len(chosen.row))
    if domains_change(workload.streams):
        family = _families(trace)[chosen.row] * (int(chosen.copy.max()) + 1) + chosen.copy
        family = family * len(workload.streams) + stream
        _, heads, own = np.unique(family, return_index=True, return_inverse=True)
        first = heads[own]
    clock = Clock(chosen.arrival_s, np.arange(n) / n)
    drawn = draw_domains(workload.streams, workload.domain_names, stream, clock, rng)
    return drawn[first]


def _shared(trace: TraceFile, chosen: Chosen) -> tuple[Prefixes, Ints]:
    """Prefixes of the requests, and the keys under which sessions find them again.

    Copies share popular blocks and named prefixes; sessions and conversations are their own.
    """
    row, copy = chosen.row, chosen.copy
    nothing = np.zeros(len(row), dtype=np.int64)
    if trace.chains is not None:
        return drawn_chains(trace.chains, row, copy), nothing
    session, prefix = nothing, nothing
    if "session" in trace.labels:
        label = trace.labels["session"]
        session = label.codes[row].astype(np.int64)
        session = np.where(session > 0, session + copy * len(label.names), 0)
    if "prefix" in trace.labels:
        prefix = trace.labels["prefix"].codes[row].astype(np.int64)
    lengths = (trace.prefix_tokens, trace.prompt_tokens, trace.output_tokens)
    return session_chains(Turns(session, prefix, *(t[row].astype(np.int64) for t in lengths)))
