"""The block that says how a scenario is simulated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, SerializerFunctionWrapHandler, Tag, model_serializer

from models.schema import Frozen
from sim.scenario.distributions import word_or_number

Warmup = Annotated[
    Annotated[Literal["auto"], Tag("word")] | Annotated[float, Field(ge=0, lt=1), Tag("number")],
    Discriminator(word_or_number),
]


class Run(Frozen):
    """How it is simulated."""

    seed: int = Field(default=1, ge=0, lt=2**63, description="Same seed, same numbers.")
    replications: int = Field(
        default=1, ge=1, le=1000, description="Independent repeats, each with its own workload."
    )
    warmup: Warmup = Field(
        default="auto", description="Share of requests left out at the start, or `auto`."
    )
    window_s: float = Field(
        default=300.0,
        ge=1,
        le=1e6,
        description="Length of the sliding windows the worst stretch is looked for in [s].",
    )
    band: bool = Field(default=True, description="Also run at the low and high end of the band.")
    baseline: bool = Field(
        default=True,
        description="Whether plain decoding runs too where it is not listed. Without it there is "
        "no speedup and no tau below which to switch off.",
    )

    @model_serializer(mode="wrap")
    def _short(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        return {key: value for key, value in data.items() if key != "baseline" or not value}
