"""The workload: streams of requests with arrivals, lengths, prefixes and domains, drawn once."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from models.schema import Frozen, ModelError
from sim.scenario.arrivals import Arrivals, ClosedLoop
from sim.scenario.distributions import Floats, Ints
from sim.scenario.fleet import Client
from sim.scenario.mixture import (
    Clock,
    choose_streams,
    domains_change,
    draw_domains,
    mean_shares,
)
from sim.scenario.over_time import ShareOverTime, check_shares, unit_of
from sim.scenario.requests import Prefixes, Requests
from sim.scenario.sessions import Substreams, Turns, draw_turns
from sim.scenario.streams import Stream
from sim.scenario.trace.schema import Trace

__all__ = ["Prefixes", "Requests", "Stream", "Workload", "generate"]

DEFAULT_REQUESTS = 1000
MAX_REQUESTS = 20_000_000
SHARE_TOLERANCE = 1e-6


class Workload(Frozen):
    """What is sent to the servers."""

    arrivals: Arrivals = Field(description="When requests arrive.")
    requests: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REQUESTS,
        description="Requests sent in one replication, all turns of sessions counted; the last "
        f"session may be cut short. Default {DEFAULT_REQUESTS}, or all of a trace.",
    )
    duration_s: float | None = Field(
        default=None,
        gt=0,
        le=1e8,
        description="In place of `requests`: whatever arrives until then, and all turns of the "
        "sessions begun [s].",
    )
    sampling: Literal["default", "greedy", "top_p"] = Field(
        default="default",
        description="Decoding at temperature 0, with top-p, or as the model's own config says.",
    )
    client: Client = Field(
        default=Client(), description="Patience of clients: time-outs and retries."
    )
    streams: tuple[Stream, ...] = Field(
        default=(Stream(),), min_length=1, max_length=1000, description="Kinds of traffic."
    )

    @field_validator("streams")
    @classmethod
    def _whole(cls, streams: tuple[Stream, ...], info: ValidationInfo) -> tuple[Stream, ...]:
        shares = [stream.share for stream in streams]
        constant = [share for share in shares if isinstance(share, float)]
        drawn = not getattr(info.data.get("arrivals"), "stream_from", None)
        if len(constant) < len(shares):
            check_shares(shares)
        elif drawn and abs(sum(constant) - 1) > SHARE_TOLERANCE:
            raise ValueError(f"shares must sum to 1, not {sum(constant):g}")
        names = [stream.name for stream in streams]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two streams are called '{twice}'; give each its own name")
        return streams

    @model_serializer(mode="wrap")
    def _without_what_a_trace_says(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out lengths, and shares where a column names the streams: they mean nothing."""
        data: dict[str, Any] = plain(self)
        if isinstance(self.arrivals, Trace):
            unused = {"prompt_tokens", "output_tokens"}
            unused |= {"share"} if self.arrivals.stream_from else set()
            for stream in data.get("streams", ()):
                for key in unused & stream.keys():
                    del stream[key]
        return data

    @model_validator(mode="after")
    def _one_end(self) -> Workload:
        if self.duration_s is not None and isinstance(self.arrivals, Trace):
            raise ModelError(
                f"is not for a trace: state its to_s, got {self.duration_s:g}", "duration_s"
            )
        if self.requests is not None and self.duration_s is not None:
            raise ModelError(
                f"takes the place of requests ({self.requests}): state one of them, "
                f"got {self.duration_s:g}",
                "duration_s",
            )
        return self

    @property
    def domain_names(self) -> tuple[str, ...]:
        """Domains of the streams, each once, in order of first mention."""
        return tuple(dict.fromkeys(name for stream in self.streams for name in stream.domains))

    @property
    def stationary(self) -> bool:
        """Neither the rate of arrivals nor what arrives changes with time: a run can settle."""
        changing = any(isinstance(kind.share, ShareOverTime) for kind in self.streams)
        return self.arrivals.stationary and not changing and not domains_change(self.streams)

    @property
    def mean_turns(self) -> float:
        """Requests to expect of what arrives: 1 without sessions."""
        turns = [stream.mean_turns for stream in self.streams]
        return float(mean_shares(self.streams, self.duration_s) @ np.array(turns))

    @property
    def expected_requests(self) -> int:
        """Requests of one replication; their mean number where a duration sets it."""
        if self.duration_s is None:
            return self.requests or DEFAULT_REQUESTS
        return round(self.arrivals.mean_count(self.duration_s) * self.mean_turns)


_PURPOSES = (
    "arrivals",
    "streams",
    "prompt_tokens",
    "output_tokens",
    "prefixes",
    "turns",
    "think",
    "users",
    "domains",
    "regimes",
    "lengths",
)


def _rng(
    seed: int, replication: int, purpose: str, stream: int = 0, turn: int = 0
) -> np.random.Generator:
    """Make the generator of one purpose: no other purpose, stream or turn can shift its numbers."""
    key = (replication, _PURPOSES.index(purpose), stream, *([turn] if turn else []))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def generate(workload: Workload, seed: int, replication: int = 0) -> Requests:
    """Draw the requests of one replication, or take them from a trace.

    Arrivals, stream choice, lengths, prefixes, turns, pauses and domains that change have
    substreams of their own, all but the first two one for each stream, so changing one never moves
    another; strategies share them all. More requests, or a longer duration, begin with the same
    ones, unless something changes by share of the run's requests.

    Parameters
    ----------
    workload : Workload
        What to draw.
    seed, replication : int
        The same pair always gives the same requests.

    Raises
    ------
    ModelError
        If no request arrives in the duration, too many do, or arrivals end too soon; if a domain
        changes too often.
    """
    if isinstance(workload.arrivals, Trace):
        from sim.scenario.trace.replay import replayed

        return replayed(workload, workload.arrivals, seed, replication)
    rng: Substreams = partial(_rng, seed, replication)
    if workload.duration_s is None:
        rows = _draw_number(workload, workload.expected_requests, rng)
        times = _times(workload, rng, int((rows.turn == 0).sum()))
    else:
        times = _times_until(workload, rng, workload.duration_s)
        rows = _draw(workload, len(times), rng, len(times))
    n, domains = len(rows.turn), workload.domain_names
    (heads,) = np.nonzero(rows.turn == 0)
    arrival_s, think_s = np.full(n, np.nan), rows.think_s
    arrival_s[heads] = times
    loop = workload.arrivals if isinstance(workload.arrivals, ClosedLoop) else None
    if loop:
        think_s[heads] = loop.pauses(rng("users"), len(heads))
    computed = rows.prompt_tokens + rows.output_tokens - 1
    own_key = 1 + sum(kind.prefix.groups for kind in workload.streams if kind.prefix)
    return Requests(
        arrival_s=arrival_s,
        stream=rows.stream.astype(np.int32),
        prompt_tokens=rows.prompt_tokens,
        output_tokens=rows.output_tokens,
        domain=_domains(workload, rows, times, rng),
        prefixes=Prefixes.of_sessions(rows.group, rows.prefix_tokens, rows.turn, computed, own_key),
        keeps=np.where(np.append(rows.turn[1:] > 0, False), own_key + np.arange(n), 0),
        turn=rows.turn,
        think_s=think_s,
        users=loop.users if loop else None,
        stream_names=tuple(kind.name for kind in workload.streams),
        domain_names=domains,
    )


def request_count(workload: Workload, seed: int, replication: int = 0) -> int:
    """How many requests ``generate`` makes; their mean number where a duration sets it."""
    if isinstance(workload.arrivals, Trace):
        from sim.scenario.trace.replay import replayed_count

        return replayed_count(workload, workload.arrivals, seed, replication)
    return workload.expected_requests


def _draw_number(workload: Workload, n: int, rng: Substreams) -> Turns:
    """Draw ``n`` requests: as many sessions as that takes, the last cut short."""
    of_all = n / workload.mean_turns
    sessions = min(n, int(1.1 * of_all) + 16)
    rows = _draw(workload, sessions, rng, of_all)
    while len(rows.turn) < n:
        sessions = min(n, 2 * sessions)
        rows = _draw(workload, sessions, rng, of_all)
    return rows.take(slice(n))


def _draw(workload: Workload, sessions: int, rng: Substreams, of_all: float) -> Turns:
    """All requests of the first sessions; a stream without them has one request in each.

    ``of_all`` are the sessions to expect in the whole run.
    """
    unit, x = unit_of([kind.share for kind in workload.streams]), None
    if unit == "s":
        x = workload.arrivals.times(rng("arrivals"), sessions)
    elif unit == "share":
        x = np.arange(sessions) / of_all
    stream = choose_streams(workload.streams, rng("streams").random(sessions), x)
    parts, groups_before = [], 0
    for index, kind in enumerate(workload.streams):
        turns = draw_turns(kind, index, np.flatnonzero(stream == index), rng)
        parts.append(turns._replace(group=turns.group + groups_before * (turns.group > 0)))
        groups_before += kind.prefix.groups if kind.prefix else 0
    return Turns.joined(parts).by_session()


def _domains(workload: Workload, rows: Turns, times: Floats, rng: Substreams) -> Ints:
    """Domain of each request: that of its session's first."""
    first = rows.turn == 0
    clock = Clock(times, np.flatnonzero(first) / len(first))
    drawn = draw_domains(workload.streams, workload.domain_names, rows.stream[first], clock, rng)
    domain: Ints = drawn[np.cumsum(first) - 1]
    return domain


def _times(workload: Workload, rng: Substreams, n: int) -> Floats:
    """Arrivals of ``n`` requests or sessions [s]."""
    times = workload.arrivals.times(rng("arrivals"), n)
    if np.isinf(times[-1]):
        came = int(np.isfinite(times).sum())
        raise ModelError(f"only {came} arrivals come before the rate is 0", "workload.requests")
    return times


def _times_until(workload: Workload, rng: Substreams, until_s: float) -> Floats:
    """Arrivals before an instant [s]."""
    expected = workload.arrivals.mean_count(until_s)
    n = int(expected + 6 * expected**0.5) + 16
    times = workload.arrivals.times(rng("arrivals"), n)
    while times[-1] < until_s and n <= MAX_REQUESTS:
        n *= 2
        times = workload.arrivals.times(rng("arrivals"), n)
    times = times[times < until_s]
    if not len(times):
        raise ModelError(f"ends before the first arrival, got {until_s:g}", "workload.duration_s")
    return times
