"""Dynamic K: a chain whose number of draft tokens is chosen anew in every step."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from models.schema import Frozen, PositiveInt, Share
from models.strategies.autoregressive import Autoregressive
from models.strategies.base import Strategy
from models.strategies.modes import AnyMode, Switching

Batch = Annotated[int, Field(ge=1, le=100_000)]
DraftTokens = Annotated[int, Field(ge=0, le=64)]


class Goodput(Frozen):
    """The K that emits most tokens in the time of its step, by the acceptance seen lately."""

    kind: Literal["goodput"] = "goodput"
    window_tokens: int = Field(
        default=500,
        ge=1,
        le=1_000_000,
        description="Tokens over which the chance of a draft token is taken [tokens].",
    )
    every_steps: PositiveInt = Field(
        default=64, description="After so many plain steps one token is drafted, to look again."
    )


class Schedule(Frozen):
    """K by the number of running sequences."""

    kind: Literal["schedule"] = "schedule"
    by_batch: tuple[tuple[Batch, DraftTokens], ...] = Field(
        min_length=1, description="Pairs [running sequences from which it holds, K], rising."
    )
    dead_band: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Sequences beyond a bound at which K changes; 0: at the bound itself.",
    )

    @model_validator(mode="after")
    def _rising(self) -> Schedule:
        batches = [batch for batch, _ in self.by_batch]
        if batches[0] != 1:
            raise ValueError(f"by_batch starts at 1 running sequence, got {batches[0]}")
        for lower, upper in pairwise(batches):
            if upper <= lower:
                raise ValueError(f"by_batch must rise, got {upper} after {lower}")
        return self


class ProxyK(Frozen):
    """K of every sequence by a signal of how many of its draft tokens will be accepted."""

    kind: Literal["proxy"] = "proxy"
    power: Share = Field(
        description="Share of readings that are true; the others are of another request. 1: an "
        "oracle, 0: useless."
    )


class DynamicK(Switching):
    """A chain strategy with K from 0 to the number of tokens it drafts."""

    kind: Literal["dynamic_k"] = "dynamic_k"
    primary: AnyMode = Field(description="Chain strategy; its k, or heads, is the largest K.")
    rule: Annotated[Goodput | Schedule | ProxyK, Field(discriminator="kind")] = Field(
        default=Goodput(), description="How K is chosen."
    )
    reserve: Literal["largest", "active"] = Field(
        default="largest", description="KV slots of a sequence: of the largest K, or of its own."
    )

    @model_validator(mode="after")
    def _chain(self) -> DynamicK:
        if self._length is None or self.primary.needs_tree:
            raise ValueError(f"the primary must be a chain of tokens, got '{self.primary.name}'")
        if isinstance(self.rule, Schedule):
            most = max(k for _, k in self.rule.by_batch)
            if most > self.primary.depth:
                raise ValueError(
                    f"rule.by_batch asks for K={most}, the primary drafts {self.primary.depth}"
                )
        return self

    def _default_label(self) -> str:
        return f"dynamic K, {self.rule.kind}: {self.primary.name}"

    @property
    def start(self) -> int:
        """The largest K."""
        return self.primary.depth

    @property
    def modes(self) -> tuple[Strategy, ...]:
        """Plain decoding, then K = 1 to the largest."""
        chains = [self._chain_of(k) for k in range(1, self.primary.depth + 1)]
        return (Autoregressive(label="K=0"), *chains)

    @property
    def _length(self) -> str | None:
        """Key that says how many tokens the primary drafts; heads of Medusa draft one each."""
        fields = type(self.primary).model_fields
        return next((key for key in ("k", "heads") if key in fields), None)

    def _chain_of(self, k: int) -> Strategy:
        return self.primary.model_copy(update={str(self._length): k, "label": f"K={k}"})

    @property
    def loaded(self) -> Mapping[str, Strategy]:
        """The chain at its largest K."""
        return {"primary": self.primary}
