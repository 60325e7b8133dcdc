"""What a scenario says of a trace: the file, the part of it, how it is scaled."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from sim.scenario.arrival_process import ArrivalProcess


class Trace(ArrivalProcess):
    """Arrivals and lengths as a trace file has them; nothing of them is drawn."""

    stationary: ClassVar[bool] = False

    kind: Literal["trace"] = Field(
        default="trace", description="Arrivals and lengths of a recorded trace."
    )
    file: str = Field(
        min_length=1,
        description="The trace, plain or gzip, as a path relative to this file.",
    )
    format: Literal["auto", "azure", "burstgpt", "mooncake", "csv"] = Field(
        default="auto", description="Which columns it has; by default told from its first line."
    )
    rate_scale: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="Requests replayed for each one in the trace, over the same time.",
    )
    time_scale: float = Field(
        default=1.0, ge=1e-6, le=1e6, description="Factor on all gaps: 2 replays at half the speed."
    )
    from_s: Annotated[float, Field(ge=0, le=1e10)] = Field(
        default=0.0,
        description="Start of the part replayed, in the trace's own time since its first request; "
        "the replay begins there [s].",
    )
    to_s: Annotated[float, Field(gt=0, le=1e10)] | None = Field(
        default=None, description="End of the part replayed, likewise; default its last row [s]."
    )
    bad_lines: Literal["refuse", "skip"] = Field(
        default="refuse", description="Whether lines that are no requests are errors or left out."
    )
    stream_from: Literal["model", "log_type", "stream"] | None = Field(
        default=None,
        description="Column of the trace that names each request's stream; by default streams are "
        "drawn by share.",
    )

    @field_validator("to_s")
    @classmethod
    def _after_start(cls, value: float | None, info: ValidationInfo) -> float | None:
        start = info.data.get("from_s")
        if value is not None and start is not None and value <= start:
            raise ValueError(f"must be after from_s ({start:g})")
        return value
