"""The workload: streams of requests with arrivals, lengths, prefixes and domains, drawn once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from models.schema import Frozen
from models.strict_yaml import Label as Name
from sim.scenario.distributions import (
    Arrivals,
    ClosedLoop,
    Floats,
    Ints,
    Length,
    Lognormal,
    TokenCount,
    Trace,
    word_or_number,
)
from sim.scenario.fleet import Client

SHARE_TOLERANCE = 1e-6
DEFAULT_REQUESTS = 1000
MAX_REQUESTS = 20_000_000

PrefixTokens = Annotated[
    Annotated[Literal["all"], Tag("word")] | Annotated[TokenCount, Tag("number")],
    Discriminator(word_or_number),
]


class Prefix(Frozen):
    """Prompt tokens that requests of one group have in common (a system prompt, a repeat)."""

    tokens: PrefixTokens = Field(
        description="Leading prompt tokens shared in a group [tokens]; `all`: the whole prompt."
    )
    groups: int = Field(ge=1, le=10_000_000, description="Distinct prefixes in this stream.")
    order: Literal["random", "cycle"] = Field(
        default="random", description="Groups are picked at random, or one after another."
    )


class Stream(Frozen):
    """One kind of traffic."""

    name: Name = Field(default="all", description="Name in tables.")
    share: float = Field(
        default=1.0, gt=0, le=1, description="Share of all requests; the streams sum to 1."
    )
    prompt_tokens: Length = Field(
        default=Lognormal(mean=500, cv=0.8), description="Prompt length [tokens]."
    )
    output_tokens: Length = Field(
        default=Lognormal(mean=250, cv=0.7), description="Output length [tokens]."
    )
    prefix: Prefix | None = Field(default=None, description="Prompt tokens requests share.")
    domain: Name = Field(
        default="general", description="What the text is about: acceptance may differ by domain."
    )
    slo_class: Name | None = Field(
        default=None,
        description="Class of `slo.classes` it must hold; default the bounds outside of them.",
    )


class Workload(Frozen):
    """What is sent to the servers."""

    arrivals: Arrivals = Field(description="When requests arrive.")
    requests: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] | None = Field(
        default=None,
        description="Requests sent in one replication; default 1000, or all of a trace.",
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
        total = sum(stream.share for stream in streams)
        drawn = not getattr(info.data.get("arrivals"), "stream_from", None)
        if drawn and abs(total - 1) > SHARE_TOLERANCE:
            raise ValueError(f"shares must sum to 1, not {total:g}")
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

    @property
    def domain_names(self) -> tuple[str, ...]:
        """Domains of the streams, each once, in order of first mention."""
        return tuple(dict.fromkeys(stream.domain for stream in self.streams))


class Prefixes(NamedTuple):
    """Prompt tokens that requests share, as a chain of nodes a request.

    Request r owns nodes ``[offsets[r]:offsets[r + 1]]``; the first starts with its prompt, each
    other where the one before ends. Equal keys mean equal tokens, equal start and end, and equal
    nodes before.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
    keys : int64, shape (nodes,)
        Above zero.
    ends : int64, shape (nodes,)
        Prompt tokens up to the end of the node, ascending within a request [tokens].
    """

    offsets: Ints
    keys: Ints
    ends: Ints

    @classmethod
    def of_groups(cls, group: Ints, tokens: Ints) -> Prefixes:
        """At most one node a request: its group (0: none), shared up to ``tokens``."""
        member = group > 0
        offsets = np.concatenate([[0], np.cumsum(member)]).astype(np.int64)
        return cls(offsets, group[member], tokens[member])


@dataclass(frozen=True, eq=False)
class Requests:
    """All requests of one replication; every array has shape (n,).

    A request is its row, which is its id. Sessions are rows one after another; their first rows
    are in order of arrival.

    Attributes
    ----------
    arrival_s : float64
        Arrival [s]; NaN where it follows from an answer: later turns of a session, and in a closed
        loop all sessions but the first ``users``.
    stream, domain : int
        Index into ``stream_names`` and ``domain_names``.
    prompt_tokens, output_tokens : int64
        Lengths, at least 1 [tokens].
    prefixes : Prefixes
        Leading prompt tokens shared with other requests.
    keeps : int64
        Key under which all a request computed past its own prefix, ``prompt + output - 1`` tokens,
        is found once it has finished; 0 when nobody will look.
    turn : int64
        Place in its session; above 0 it is sent ``think_s`` after the row before was answered.
    think_s : float64
        Pause between the answer a request waits for and its being sent [s].
    users : int or None
        Concurrent users of a closed loop; None when first turns arrive at times of their own.
    """

    arrival_s: Floats
    stream: NDArray[np.int32]
    prompt_tokens: Ints
    output_tokens: Ints
    domain: Ints
    prefixes: Prefixes
    keeps: Ints
    turn: Ints
    think_s: Floats
    users: int | None
    stream_names: tuple[str, ...]
    domain_names: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.prompt_tokens)


class _Prompts(NamedTuple):
    tokens: Ints
    group: Ints
    prefix_tokens: Ints


_PURPOSES = ("arrivals", "streams", "prompt_tokens", "output_tokens", "prefixes")


def _rng(seed: int, replication: int, purpose: str, stream: int = 0) -> np.random.Generator:
    """Make the generator of one purpose: no other purpose or stream can shift its numbers."""
    key = (replication, _PURPOSES.index(purpose), stream)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def generate(workload: Workload, seed: int, replication: int = 0) -> Requests:
    """Draw the requests of one replication, or take them from a trace.

    Arrivals, stream choice, lengths and prefixes have substreams of their own, the last three
    one for each stream, so changing one never moves another; strategies share them all.

    Parameters
    ----------
    workload : Workload
        What to draw.
    seed, replication : int
        The same pair always gives the same requests.
    """
    if isinstance(workload.arrivals, Trace):
        from sim.scenario.trace.replay import replayed

        return replayed(workload, workload.arrivals, seed, replication)
    n = request_count(workload, seed, replication)
    stream = _choose_streams(workload, n, _rng(seed, replication, "streams"))
    prompt_tokens, output_tokens, group, prefix_tokens, domain = np.zeros((5, n), dtype=np.int64)
    domains, groups_before = workload.domain_names, 0
    for index, kind in enumerate(workload.streams):
        (mine,) = np.nonzero(stream == index)
        prompts = _prompts(kind, seed, replication, index, len(mine))
        prompt_tokens[mine] = prompts.tokens
        group[mine] = np.where(prompts.group > 0, prompts.group + groups_before, 0)
        prefix_tokens[mine] = prompts.prefix_tokens
        output_rng = _rng(seed, replication, "output_tokens", index)
        output_tokens[mine] = kind.output_tokens.sample(output_rng, len(mine))
        domain[mine] = domains.index(kind.domain)
        groups_before += kind.prefix.groups if kind.prefix else 0
    loop = workload.arrivals if isinstance(workload.arrivals, ClosedLoop) else None
    return Requests(
        arrival_s=workload.arrivals.times(_rng(seed, replication, "arrivals"), n),
        stream=stream,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        domain=domain,
        prefixes=Prefixes.of_groups(group, prefix_tokens),
        keeps=np.zeros(n, dtype=np.int64),
        turn=np.zeros(n, dtype=np.int64),
        think_s=np.full(n, loop.think_s if loop else 0.0),
        users=loop.users if loop else None,
        stream_names=tuple(kind.name for kind in workload.streams),
        domain_names=domains,
    )


def request_count(workload: Workload, seed: int, replication: int = 0) -> int:
    """How many requests ``generate`` makes."""
    if isinstance(workload.arrivals, Trace):
        from sim.scenario.trace.replay import replayed_count

        return replayed_count(workload, workload.arrivals, seed, replication)
    return workload.requests or DEFAULT_REQUESTS


def _choose_streams(workload: Workload, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Stream of each request, drawn by share."""
    shares = np.array([kind.share for kind in workload.streams])
    edges = np.cumsum(shares / shares.sum())[:-1]
    return np.searchsorted(edges, rng.random(n), side="right").astype(np.int32)


def _prompts(kind: Stream, seed: int, replication: int, index: int, n: int) -> _Prompts:
    """Prompts of one stream; groups count from 1 within it."""
    rng = _rng(seed, replication, "prompt_tokens", index)
    prefix = kind.prefix
    if prefix is None:
        return _Prompts(kind.prompt_tokens.sample(rng, n), np.zeros(n, int), np.zeros(n, int))
    if prefix.order == "cycle":
        group = np.arange(n) % prefix.groups
    else:
        group = _rng(seed, replication, "prefixes", index).integers(prefix.groups, size=n)
    if prefix.tokens == "all":
        tokens = kind.prompt_tokens.sample(rng, prefix.groups)[group]
        return _Prompts(tokens, group + 1, tokens)
    tokens = kind.prompt_tokens.sample(rng, n)
    holds = tokens >= prefix.tokens  # a shorter prompt cannot contain the whole prefix
    return _Prompts(tokens, np.where(holds, group + 1, 0), np.where(holds, prefix.tokens, 0))
