"""A gate: a strategy while its drafts are accepted, another one while they are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from models.schema import Frozen, ModelError, PositiveInt, Share
from models.strategies.autoregressive import Autoregressive
from models.strategies.base import Strategy
from models.strategies.modes import AnyMode, Switching

Measure = Literal["alpha", "acceptance", "tau"]
WindowTokens = Annotated[int, Field(ge=1, le=100_000)]
Steps = Annotated[int, Field(ge=0, le=1_000_000)]


class Probe(Frozen):
    """Steps of the primary now and then, paid for like any other."""

    kind: Literal["probe"] = "probe"
    every_steps: PositiveInt = Field(
        default=64, description="Steps of the fallback between two probes."
    )
    steps: PositiveInt = Field(default=1, description="Steps of a probe.")
    window_tokens: WindowTokens = Field(
        default=8, description="Tokens of the latest probes that decide [tokens]."
    )


class Dwell(Frozen):
    """Nothing tells: the primary is tried again after the dwell."""

    kind: Literal["dwell"] = "dwell"


class Proxy(Frozen):
    """A free signal of what the primary would accept now, such as the entropy of the target."""

    kind: Literal["proxy"] = "proxy"
    power: Share = Field(
        description="Share of readings that are true; the others are of another request. 1: an "
        "oracle, 0: useless."
    )
    window_tokens: WindowTokens = Field(
        default=8, description="Tokens of the latest readings that decide [tokens]."
    )


class Adaptive(Switching):
    """Leaves ``primary`` for ``fallback`` on its rolling acceptance, and returns on a signal.

    The defaults of ``leave_below`` and ``window_tokens`` are those of a production write-up.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    kind: Literal["adaptive"] = "adaptive"
    primary: AnyMode = Field(description="Strategy while the gate is open.")
    fallback: AnyMode | None = Field(
        default=None, description="Strategy while it is closed; default plain decoding."
    )
    measure: Measure = Field(
        default="alpha",
        description="What is compared, over the steps of the primary that drafted: alpha (accepted "
        "over draft tokens reached, the first refused one included), acceptance (over all levels "
        "offered: K of a chain, depth of a tree), or tau (tokens a step).",
    )
    leave_below: float = Field(
        default=0.35, ge=0, le=1000, description="The gate closes when the window reads less."
    )
    return_above: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="It opens when the signal reads at least this; default leave_below.",
    )
    window_tokens: WindowTokens = Field(
        default=50, description="Tokens the latest steps of the primary emitted [tokens]."
    )
    window_of: Literal["request", "stream", "engine"] = Field(
        default="request", description="Whose steps a window holds; one gate for each."
    )
    dwell_steps: Steps = Field(
        default=16, description="Fewest steps between two switches of a gate."
    )
    return_: Annotated[Probe | Dwell | Proxy, Field(discriminator="kind")] = Field(
        default=Probe(), alias="return", description="What opens a closed gate."
    )

    @model_validator(mode="after")
    def _drafts(self) -> Adaptive:
        if not self.primary.drafted:
            raise ValueError("the primary drafts nothing: there is no acceptance to watch")
        filling = self.primary.refill_steps
        if isinstance(self.return_, Probe) and self.return_.steps <= filling:
            raise ModelError(
                f"the first {filling} steps of the primary only fill its window, "
                f"got {self.return_.steps}",
                "return.steps",
            )
        if self.returns_at < self.leave_below:
            raise ModelError(
                f"must be at least leave_below ({self.leave_below:g}), got {self.returns_at:g}",
                "return_above",
            )
        for key in ("leave_below", "return_above"):
            limit = getattr(self, key)
            if limit is not None and (limit < 1) is (self.measure == "tau"):
                self._check_limit(key, limit)
        return self

    def _check_limit(self, key: str, limit: float) -> None:
        """A share is at most 1, and a step emits at least a token."""
        if self.measure == "tau":
            raise ModelError(f"tau is never below 1, got {limit:g}", key)
        if limit > 1:
            raise ModelError(f"{self.measure} is at most 1, got {limit:g}", key)

    def _default_label(self) -> str:
        return f"gate: {self.primary.name}, else {self.modes[1].name}"

    @property
    def modes(self) -> tuple[Strategy, ...]:
        """Primary and fallback."""
        return self.primary, self.fallback or Autoregressive()

    @property
    def loaded(self) -> Mapping[str, Strategy]:
        """Primary and fallback."""
        return {"primary": self.primary, "fallback": self.modes[1]}

    @property
    def returns_at(self) -> float:
        """Reading at which a closed gate opens."""
        return self.leave_below if self.return_above is None else self.return_above
