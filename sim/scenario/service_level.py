"""What the service must hold: bounds on percentiles, a share of requests, classes of streams."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from models.schema import Fraction, Frozen, ModelError
from models.strict_yaml import Label

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
Bound = Annotated[float, Field(gt=0, le=1e6)]


class Bounds(Frozen):
    """Upper bounds on percentiles of one latency."""

    p50: Bound | None = Field(default=None, description="Bound on the median [s].")
    p90: Bound | None = Field(default=None, description="Bound on the 90th percentile [s].")
    p95: Bound | None = Field(default=None, description="Bound on the 95th percentile [s].")
    p99: Bound | None = Field(default=None, description="Bound on the 99th percentile [s].")

    @model_validator(mode="after")
    def _rising(self) -> Bounds:
        every = {name: getattr(self, name) for name in Bounds.model_fields}
        stated = [(name, bound) for name, bound in every.items() if bound is not None]
        if not stated:
            raise ValueError("needs at least one of p50, p90, p95, p99")
        for (lower, least), (name, bound) in itertools.pairwise(stated):
            if bound < least:
                raise ModelError(f"must be at least {lower} ({least:g}), got {bound:g}", name)
        return self


class LatencyBounds(Frozen):
    """Bounds on what a request waits for."""

    ttft_s: Bounds | None = Field(default=None, description="Time to first token.")
    tpot_s: Bounds | None = Field(default=None, description="Time per output token.")
    e2e_s: Bounds | None = Field(default=None, description="Arrival to last token.")

    @property
    def stated(self) -> tuple[str, ...]:
        """The latencies that have bounds."""
        return tuple(name for name in LatencyBounds.model_fields if getattr(self, name) is not None)


class SloClass(LatencyBounds):
    """What the streams of one class must hold."""

    attainment: Fraction | None = Field(
        default=None,
        description="Share of the class's requests that must meet every bound; default the SLO's "
        "where that is stated, else its strictest percentile.",
    )

    @model_validator(mode="after")
    def _some(self) -> SloClass:
        if not self.stated:
            raise ValueError("needs at least one of ttft_s, tpot_s, e2e_s")
        return self


class Slo(LatencyBounds):
    """What the service must hold; bounds outside the classes are for streams without one."""

    attainment: Fraction = Field(
        default=0.99,
        description="Share of requests that must meet every bound; default the strictest "
        "percentile stated: 0.95 beside p95.",
    )
    classes: dict[Label, SloClass] = Field(
        default={}, max_length=1000, description="Bounds by class, as streams name it."
    )

    @model_validator(mode="before")
    @classmethod
    def _as_strict_as_its_percentiles(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("attainment") is not None:
            return data
        filled, classes = _filled(data), data.get("classes")
        if isinstance(classes, Mapping):
            filled["classes"] = {
                name: _filled(own) if isinstance(own, Mapping) else own
                for name, own in classes.items()
            }
        return filled


def _filled(level: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds with the attainment of their strictest percentile, where none is stated."""
    bounds = [level.get(name) for name in LatencyBounds.model_fields]
    stated = {p for bound in bounds if isinstance(bound, Mapping) for p in bound}
    asked = [share for name, share in PERCENTILES.items() if name in stated]
    missing = asked and level.get("attainment") is None
    return {**level, "attainment": max(asked)} if missing else dict(level)
