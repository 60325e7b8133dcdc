"""What surrounds the engines: router, patience of clients, failures of replicas."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from models.schema import Frozen, ModelError

RouterPolicy = Literal[
    "round_robin", "least_outstanding", "power_of_two", "prefix_affinity", "shared_queue"
]

ROUTER_SIGNALS: dict[str, str] = {
    "round_robin": "none: replicas in turn",
    "least_outstanding": "requests assigned and not finished",
    "power_of_two": "requests assigned and not finished, of two replicas drawn at random",
    "prefix_affinity": "where the prefix was last sent, then requests assigned and not finished",
    "shared_queue": "free places, exact: replicas take from one queue",
}
"""What each router knows when it chooses."""

LONGEST_PAUSE_S = 1e6
"""A pause no client makes: beyond it a clock in seconds loses the length of a step."""

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

    @model_validator(mode="after")
    def _ordered(self) -> Client:
        first, whole = self.first_token_timeout_s, self.timeout_s
        if first is not None and whole is not None and first >= whole:
            raise ModelError(
                f"must be below timeout_s ({whole:g}), got {first:g}", "first_token_timeout_s"
            )
        last_s = self.backoff_s * self.backoff_factor ** max(self.retries - 1, 0)
        if last_s > LONGEST_PAUSE_S:
            raise ModelError(
                f"make the last pause {last_s:.1g} s with backoff_factor {self.backoff_factor:g}; "
                f"at most {LONGEST_PAUSE_S:g} s, got {self.retries}",
                "retries",
            )
        return self

    @property
    def deadlines(self) -> tuple[tuple[float, bool], ...]:
        """Seconds after which it gives up, and whether only for want of a first token."""
        limits = ((self.timeout_s, False), (self.first_token_timeout_s, True))
        return tuple((limit, first) for limit, first in limits if limit is not None)


class Restart(Frozen):
    """How a replica comes back."""

    load_bytes_per_s: float = Field(
        ge=1e6,
        le=1e15,
        description="Rate a replica reads its weights at, all GPUs together [byte/s].",
    )
    boot_s: float = Field(
        default=0.0,
        ge=0,
        le=1e6,
        description="Time besides: process start, compilation, graph capture [s].",
    )


class Failure(Frozen):
    """A replica dies at a time."""

    replica: int = Field(ge=0, le=10_000, description="Which one, counted from 0.")
    at_s: float = Field(ge=0, le=1e9, description="When, from the start of the run [s].")
    restart: Restart | None = Field(
        default=None, description="How it comes back; without it stays down."
    )
    in_flight: Literal["resend", "lose"] = Field(
        default="resend",
        description="Requests it had: the router sends them again, or clients see an error.",
    )
