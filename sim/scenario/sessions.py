"""Sessions: users who answer back, each prompt holding everything said before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from models.schema import Frozen
from sim.scenario.distributions import (
    Floats,
    Ints,
    Length,
    Lognormal,
    Seconds,
    ThinkSpread,
    TokenCount,
    pauses,
)

if TYPE_CHECKING:
    from sim.scenario.streams import Stream

MAX_TURNS = 1000


class Session(Frozen):
    """Turns of one user: the prompt of each is all before it, answers included, and new tokens.

    Notes
    -----
    Logs of public chats hold 2.0 (LMSYS-Chat-1M), 2.5 (WildChat), 3.5 (ShareGPT) and 4.6
    (ShareChat) turns a conversation on average: Y. Yan et al., arXiv 2512.17843, Table 1.
    """

    turns: Length = Field(
        default=Lognormal(mean=3.5, cv=1),
        description="Turns of a session, drawn like a length; the default has the mean of ShareGPT "
        f"chats and an assumed spread. Draws above {MAX_TURNS} become {MAX_TURNS}.",
    )
    think_s: Seconds = Field(
        default=10.0, description="Mean pause between an answer and the next turn [s]."
    )
    think_cv: ThinkSpread = Field(
        default=1.0, description="Spread of that pause over its mean; 0 constant, 1 exponential."
    )
    max_tokens: TokenCount | None = Field(
        default=None,
        description="A session ends before a later turn whose prompt and output would pass this "
        "[tokens]; without, the engine rejects what it cannot take.",
    )

    @field_validator("turns")
    @classmethod
    def _few(cls, turns: Length) -> Length:
        if max(turns.about, turns.max or 0) > MAX_TURNS:
            raise ValueError(f"a session has at most {MAX_TURNS} turns")
        return turns


class Substreams(Protocol):
    """Generators by purpose, stream and turn: none can shift the numbers of another."""

    def __call__(self, purpose: str, stream: int = 0, turn: int = 0) -> np.random.Generator:
        """Make the generator of one purpose."""
        ...


class Turns(NamedTuple):
    """Requests as turns of sessions, one request a session where a stream has none; shape (n,).

    ``group`` is 0, or the prefix group whose ``prefix_tokens`` all turns of a session begin with.
    """

    session: Ints
    turn: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    think_s: Floats
    group: Ints
    prefix_tokens: Ints
    stream: Ints

    def take(self, rows: Ints | slice | NDArray[np.bool_]) -> Turns:
        """Some of them."""
        return Turns._make(column[rows] for column in self)

    @classmethod
    def joined(cls, parts: Sequence[Turns]) -> Turns:
        """One after another."""
        if len(parts) == 1:
            return parts[0]
        return cls._make(map(np.concatenate, zip(*parts, strict=True)))

    def by_session(self) -> Turns:
        """Sessions in order, the turns of each one after another."""
        if len(self.turn) and np.array_equal(self.session, np.arange(len(self.turn))):
            return self
        length = np.bincount(self.session)
        order = np.empty(len(self.turn), dtype=np.int64)
        order[(np.cumsum(length) - length)[self.session] + self.turn] = np.arange(len(order))
        return self.take(order)


def draw_turns(kind: Stream, stream: int, sessions: Ints, rng: Substreams) -> Turns:
    """Draw all turns of some sessions of one stream, round by round.

    Every turn has substreams of its own: longer sessions leave the turns before as they were.
    """
    n = len(sessions)
    if kind.lengths is not None:
        drawn, output = kind.lengths.sample(rng("lengths", stream), n)
        prompt, group, prefix_tokens = _first_prompts(kind, stream, n, rng, drawn)
    else:
        prompt, group, prefix_tokens = _first_prompts(kind, stream, n, rng)
        output = kind.output_tokens.sample(rng("output_tokens", stream), n)
    first = np.zeros(n, dtype=np.int64)
    start = Turns(
        sessions, first, prompt, output, np.zeros(n), group, prefix_tokens, first + stream
    )
    if kind.session is None:
        return start
    return Turns.joined([start, *_later_turns(kind, kind.session, start, rng)])


def _later_turns(kind: Stream, asked: Session, before: Turns, rng: Substreams) -> Iterator[Turns]:
    """Second turns, third turns, ... of the sessions that come so far."""
    stream = int(before.stream[0]) if len(before.stream) else 0
    turns = np.minimum(asked.turns.sample(rng("turns", stream), len(before.turn)), MAX_TURNS)
    ended = np.zeros(len(turns), dtype=np.bool_)
    for turn in range(1, MAX_TURNS):
        on = turns > turn
        before, turns, ended = before.take(on), turns[on], ended[on]
        if ended.all():
            return
        n = len(turns)
        new = kind.prompt_tokens.sample(rng("prompt_tokens", stream, turn), n)
        before = before._replace(
            turn=before.turn + 1,
            prompt_tokens=before.prompt_tokens + before.output_tokens + new,
            output_tokens=kind.output_tokens.sample(rng("output_tokens", stream, turn), n),
            think_s=pauses(rng("think", stream, turn), n, asked.think_s, asked.think_cv),
        )
        if asked.max_tokens is not None:
            ended |= before.prompt_tokens + before.output_tokens > asked.max_tokens
        yield before.take(~ended)


def _first_prompts(
    kind: Stream, stream: int, n: int, rng: Substreams, drawn: Ints | None = None
) -> tuple[Ints, Ints, Ints]:
    """Prompts of first turns, their prefix group and its tokens; groups count from 1, 0 is none.

    Lengths are those ``drawn`` already, if any.
    """
    prefix, lengths = kind.prefix, rng("prompt_tokens", stream)
    if prefix is None:
        none = np.zeros(n, dtype=np.int64)
        return kind.prompt_tokens.sample(lengths, n) if drawn is None else drawn, none, none
    if prefix.order == "cycle":
        group = np.arange(n) % prefix.groups
    else:
        group = rng("prefixes", stream).integers(prefix.groups, size=n)
    if prefix.tokens == "all":
        tokens = kind.prompt_tokens.sample(lengths, prefix.groups)[group]
        return tokens, group + 1, tokens
    tokens = kind.prompt_tokens.sample(lengths, n) if drawn is None else drawn
    # A shorter prompt cannot contain the whole prefix; later turns need a token beside it.
    holds = tokens >= prefix.tokens + (kind.session is not None)
    return tokens, np.where(holds, group + 1, 0), np.where(holds, prefix.tokens, 0)
