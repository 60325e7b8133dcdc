"""How clients behave when the service is slow or refuses: time-outs, retries, back-off."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.schema import Frozen

Patience = Annotated[float, Field(gt=0, le=1e6)]


class Client(Frozen):
    """Patience of whoever sends the requests."""

    timeout_s: Patience | None = Field(
        default=None, description="Gives up when the whole answer takes longer [s]."
    )
    first_token_timeout_s: Patience | None = Field(
        default=None, description="Gives up when the first token takes longer [s]."
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Further attempts after a refusal, a time-out or a lost connection.",
    )
    backoff_s: float = Field(
        default=1.0, ge=0, le=1e6, description="Pause before the first retry [s]."
    )
    backoff_factor: float = Field(
        default=2.0, ge=1, le=100, description="Each further pause is this many times longer."
    )
    jitter: float = Field(
        default=0.5, ge=0, le=1, description="Pauses vary at random by up to this share."
    )

    @property
    def deadlines(self) -> tuple[tuple[float, bool], ...]:
        """Seconds after which it gives up, and whether only for want of a first token."""
        limits = ((self.timeout_s, False), (self.first_token_timeout_s, True))
        return tuple((limit, first) for limit, first in limits if limit is not None)
