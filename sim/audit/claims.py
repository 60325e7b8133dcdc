"""The claims file: what was claimed, and the scenario, measures and sensitivity that test it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from models.schema import Frozen, ModelError
from models.strict_yaml import Label
from sim.audit.measures import MEASURES, suggestion

Number = Annotated[float, Field(ge=-1e18, le=1e18)]
Words = Annotated[str, Field(min_length=1, max_length=2000)]
Tolerance = Annotated[float, Field(ge=0, le=1)]
Settings = dict[str, Any]

TOLERANCE = 0.05
"""Relative; published figures have two or three digits and no error bars."""

_LONE_NUMBER = re.compile(r"(?<![\w{.-])\d")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Claimed(Frozen):
    """The range a claim gives; with one end only, everything beyond it is as claimed."""

    min: Number | None = Field(default=None, description="Least, in the unit of the measure.")
    max: Number | None = Field(default=None, description="Most, in the unit of the measure.")
    tolerance: Tolerance = Field(
        default=TOLERANCE, description="How far outside still counts, relative to the end."
    )

    @model_validator(mode="after")
    def _some_range(self) -> Claimed:
        if self.min is None and self.max is None:
            raise ValueError("needs at least one of min, max")
        if self.min is not None and self.max is not None and self.max < self.min:
            raise ModelError(f"must be at least min ({self.min:g}), got {self.max:g}", "max")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends with the tolerance, infinite where there is none."""
        lo, hi = self.min, self.max
        return (
            -float("inf") if lo is None else lo - self.tolerance * abs(lo),
            float("inf") if hi is None else hi + self.tolerance * abs(hi),
        )


class Quantity(Frozen):
    """One figure the model is asked for."""

    measure: str = Field(description="What is measured: `speccast audit --measures` lists them.")
    name: Label | None = Field(default=None, description="Name in tables; default the measure.")
    strategy: Label | None = Field(
        default=None, description="Of which strategy; default the last of the scenario."
    )
    over: Label | None = Field(
        default=None, description="Divide by the same measure of this strategy."
    )
    stream: Label | None = Field(
        default=None,
        description="Only of the requests of this stream, without a band; default all requests.",
    )
    at: Settings = Field(
        default={}, description="Only at the points of `vary` with these values; default all."
    )
    batch: int | None = Field(
        default=None, ge=1, description="Sequences decoding, where no run is needed; default users."
    )
    context: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of context each; default half way through, and the "
        "last one for KV that an engine without preemption reserves.",
    )

    @field_validator("measure")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in MEASURES:
            raise ValueError(f"unknown measure{suggestion(name)}")
        return name

    @model_validator(mode="after")
    def _of_a_stream(self) -> Quantity:
        if self.stream is not None and not MEASURES[self.measure].by_stream:
            able = ", ".join(name for name, one in MEASURES.items() if one.by_stream)
            raise ModelError(f"'{self.measure}' is of all requests only; not so: {able}", "stream")
        return self

    @property
    def title(self) -> str:
        """Name in tables."""
        return self.name or self.measure.replace("_", " ")


class Tested(Quantity):
    """A figure the claim gives a range for."""

    claimed: Claimed = Field(description="The range claimed.")


class Curve(Quantity):
    """A figure drawn over the batch, a line a case."""

    batches: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=2, max_length=100, description="Sequences decoding, rising."
    )
    cases: tuple[Label, ...] = Field(
        default=(), max_length=50, description="Cases of the sensitivity drawn; default all."
    )

    @model_validator(mode="after")
    def _drawable(self) -> Curve:
        if MEASURES[self.measure].simulated:
            raise ModelError(f"'{self.measure}' needs a run: vary users instead", "measure")
        if list(self.batches) != sorted(set(self.batches)):
            raise ModelError("must rise", "batches")
        return self


class Sensitivity(Frozen):
    """The input that decides a claim, and the values tried."""

    key: str | None = Field(default=None, description="Dotted key of the scenario that is varied.")
    values: tuple[Any, ...] = Field(default=(), max_length=50, description="Its values.")
    name: Words | None = Field(
        default=None, description="What is varied, in place of `key`, where several keys change."
    )
    cases: dict[Label, Settings] = Field(
        default={}, max_length=50, description="Dotted keys and values by name of the case."
    )
    stated: Any = Field(
        default=None,
        description="Value, or name of the case, the prediction is made with; default the first.",
    )
    plausible: tuple[Any, ...] | None = Field(
        default=None, description="Values, or names of cases, that may hold; default all."
    )
    why: Words | None = Field(default=None, description="Why the others are not plausible.")

    @model_validator(mode="after")
    def _one_way(self) -> Sensitivity:
        if (self.key is None) == (self.name is None):
            raise ValueError("needs key with values, or name with cases")
        given, other = (self.values, self.cases) if self.key else (self.cases, self.values)
        if not given or other:
            wanted = "values" if self.key else "cases"
            raise ValueError(f"{'key' if self.key else 'name'} needs {wanted}, and nothing else")
        known = self.values if self.key else tuple(self.cases)
        for value in self.plausible or ():
            if value not in known:
                raise ModelError(f"is none of the values tried, got {value!r}", "plausible")
        if self.stated is not None and self.stated not in known:
            raise ModelError(f"is none of the values tried, got {self.stated!r}", "stated")
        return self

    @property
    def first(self) -> int:
        """Which of the cases makes the prediction."""
        known = self.values if self.key else tuple(self.cases)
        return 0 if self.stated is None else known.index(self.stated)


class Claim(Frozen):
    """A published claim and how the model is asked about it."""

    id: Label = Field(description="Short name.")
    claim: Words = Field(description="What is claimed, in one sentence.")
    setting: Words = Field(description="Under which conditions, as published.")
    source: Words = Field(description="Who claims it.")
    reading: Words | None = Field(
        default=None, description="How the claim is understood where it leaves that open."
    )
    scenario: str | dict[str, Any] = Field(
        description="A scenario: a block, a name under `scenarios`, or a file beside this one."
    )
    set: Settings = Field(default={}, description="Dotted keys of the scenario, replaced.")
    vary: Settings = Field(
        default={}, description="Points of the scenario, as its `vary`; a figure holds at all."
    )
    tested: tuple[Tested, ...] = Field(
        default=(), max_length=20, description="Figures the claim gives; all must agree."
    )
    arithmetic: dict[Label, Quantity] = Field(
        default={}, description="Figures shown beside the verdict, by name."
    )
    sensitivity: Sensitivity | None = Field(
        default=None, description="The input that decides the claim."
    )
    curve: Curve | None = Field(
        default=None, description="A second picture: one figure over the batch."
    )
    because: Words | None = Field(
        default=None,
        description="Why the model says otherwise; `{name}` stands for a figure of `arithmetic`, "
        "and no number is written out.",
    )
    missing: Words | None = Field(
        default=None, description="What a model of speed and memory cannot decide of it."
    )

    @model_validator(mode="after")
    def _whole(self) -> Claim:
        if not self.tested and self.missing is None:
            raise ValueError("needs tested figures, or says what is missing")
        text = self.because or ""
        if _LONE_NUMBER.search(PLACEHOLDER.sub("", text)):
            raise ModelError("writes a number out: name a figure of arithmetic instead", "because")
        for name in PLACEHOLDER.findall(text):
            if name not in self.arithmetic:
                raise ModelError(f"'{name}' is no figure of arithmetic", "because")
        return self


class ClaimsFile(Frozen):
    """A file of claims, and the scenarios several of them share."""

    scenarios: dict[Label, dict[str, Any]] = Field(
        default={}, max_length=200, description="Scenarios by name."
    )
    claims: tuple[Claim, ...] = Field(min_length=1, max_length=500, description="The claims.")

    @field_validator("claims")
    @classmethod
    def _distinct(cls, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        names = [claim.id for claim in claims]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two claims are called '{twice}'")
        return claims
