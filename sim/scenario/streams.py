"""Streams: kinds of traffic, each with lengths, prefixes, a domain and perhaps sessions."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from models.schema import Frozen, ModelError
from models.strict_yaml import Label as Name
from sim.scenario.changing_domains import ChangingDomain, Domain
from sim.scenario.distributions import Length, Lognormal, TokenCount, word_or_number
from sim.scenario.over_time import Share
from sim.scenario.paired_lengths import TraceLengths
from sim.scenario.sessions import Session

PrefixTokens = Annotated[
    Annotated[Literal["all"], Tag("word")] | Annotated[TokenCount, Tag("number")],
    Discriminator(word_or_number),
]


PAIRED = ("prompt_tokens", "output_tokens")
"""Keys that `lengths` takes the place of."""


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
    share: Share = Field(
        default=1.0,
        description="Share of all that arrive, requests or sessions; the streams sum to 1. Where "
        "one changes (`at: [[place, share], ...]`) they are relative weights at each instant.",
    )
    prompt_tokens: Length = Field(
        default=Lognormal(mean=500, cv=0.8),
        description="Prompt length; in a session the new tokens of each turn [tokens].",
    )
    output_tokens: Length = Field(
        default=Lognormal(mean=250, cv=0.7), description="Output length [tokens]."
    )
    lengths: TraceLengths | None = Field(
        default=None,
        description="In place of both: pairs of prompt and output as rows of a trace have them, "
        "drawn with replacement or one after another. Not for sessions.",
    )
    prefix: Prefix | None = Field(default=None, description="Prompt tokens requests share.")
    domain: Domain = Field(
        default="general",
        description="What the text is about: acceptance may differ by domain. A name, or a block "
        "that says how it changes; a request keeps the domain it arrived with, all turns of a "
        "session that of the first.",
    )
    slo_class: Name | None = Field(
        default=None,
        description="Class of `slo.classes` it must hold; default the bounds outside of them.",
    )
    session: Session | None = Field(
        default=None,
        description="Users who answer back: what arrives are sessions of several requests.",
    )

    @model_validator(mode="after")
    def _fitting(self) -> Stream:
        session, prefix = self.session, self.prefix
        if self.lengths is not None:
            self._check_paired()
            return self
        longest = self.prompt_tokens.longest
        if prefix is not None and prefix.tokens != "all" and prefix.tokens > longest:
            raise ModelError(
                f"no prompt holds it: the longest are {longest} tokens, got {prefix.tokens}",
                "prefix.tokens",
            )
        if session is None:
            return self
        if prefix is not None and prefix.tokens == "all":
            raise ModelError(
                "must be a number: turns of a session differ, got 'all'", "prefix.tokens"
            )
        first = self.prompt_tokens.about + self.output_tokens.about
        if session.max_tokens is not None and session.max_tokens < first:
            raise ModelError(
                f"a first turn has {first:.0f} tokens on average, got {session.max_tokens}",
                "session.max_tokens",
            )
        return self

    def _check_paired(self) -> None:
        for key in (key for key in PAIRED if key in self.model_fields_set):
            raise ModelError("comes from lengths; leave this key out", key)
        if self.session is not None:
            raise ModelError("draws turns of its own; leave lengths out", "session")
        if self.prefix is not None and self.prefix.tokens == "all":
            raise ModelError("must be a number beside lengths, got 'all'", "prefix.tokens")

    @model_serializer(mode="wrap")
    def _without_what_lengths_say(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        unused = PAIRED if self.lengths is not None else ()
        return {key: value for key, value in data.items() if key not in unused}

    @property
    def domains(self) -> tuple[str, ...]:
        """Domains its requests may be of; one that comes back is there again."""
        return self.domain.names if isinstance(self.domain, ChangingDomain) else (self.domain,)

    @property
    def mean_turns(self) -> float:
        """Requests to expect of what arrives: 1 without a session."""
        session = self.session
        if session is None:
            return 1.0
        each = self.prompt_tokens.about + self.output_tokens.about
        return min(session.turns.about, (session.max_tokens or math.inf) / each)
