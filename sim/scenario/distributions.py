"""How long requests are: every distribution of lengths and pauses a scenario can name."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from models.schema import Frozen, ModelError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_TOKENS = 10_000_000
LEAST_SPREAD = 0.01

TokenCount = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
MeanTokens = Annotated[float, Field(ge=1, le=MAX_TOKENS)]
Rate = Annotated[float, Field(gt=0, le=1e6)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]


def word_or_number(value: object) -> str:
    """Tell which form a key takes that is either a keyword or a number."""
    return "word" if isinstance(value, str) else "number"


def _spread(value: float) -> float:
    if 0 < value < LEAST_SPREAD:
        raise ValueError(f"must be 0 or at least {LEAST_SPREAD}")
    return value


Spread = Annotated[float, Field(ge=LEAST_SPREAD, le=100)]
ThinkSpread = Annotated[float, Field(ge=0, le=100), AfterValidator(_spread)]


def pauses(rng: np.random.Generator, n: int, mean_s: float, cv: float) -> Floats:
    """Draw ``n`` gamma pauses of a mean and a spread over it, 0 for constant [s]."""
    if not cv:
        return np.full(n, mean_s)
    shape = cv**-2
    return rng.standard_gamma(shape, n) * (mean_s / shape)


class LengthDistribution(Frozen):
    """Base of all length distributions: whole tokens, at least 1, within ``min`` and ``max``."""

    kind: str
    min: TokenCount | None = Field(
        default=None, description="Shorter draws are raised to this [tokens]."
    )
    max: TokenCount | None = Field(
        default=None, description="Longer draws are cut to this [tokens]; nothing is cut without."
    )

    @model_validator(mode="after")
    def _centred(self) -> Self:
        if self.max is not None and self.min is not None and self.max < self.min:
            raise ModelError(f"must be at least min ({self.min}), got {self.max}", "max")
        if self.min is not None and self.about < self.min:
            raise ModelError(f"is above the mean length ({self.about:g}), got {self.min}", "min")
        if self.max is not None and self.about > self.max:
            raise ModelError(f"is below the mean length ({self.about:g}), got {self.max}", "max")
        return self

    @property
    def about(self) -> float:
        """Mean length before any is cut [tokens]."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """No length is above this [tokens]."""
        return MAX_TOKENS if self.max is None else self.max

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        """Draw ``n`` lengths [tokens], shape (n,)."""
        tokens = np.maximum(np.rint(self._draw(rng, n)), 1 if self.min is None else self.min)
        return np.minimum(tokens, MAX_TOKENS if self.max is None else self.max).astype(np.int64)

    def _draw(self, rng: np.random.Generator, n: int) -> Floats:
        raise NotImplementedError


class Fixed(LengthDistribution):
    """Every length the same."""

    kind: Literal["fixed"] = Field(default="fixed", description="Every length the same.")
    value: TokenCount = Field(description="The length [tokens].")

    @property
    def about(self) -> float:
        """The length [tokens]."""
        return float(self.value)

    @property
    def longest(self) -> int:
        """The length [tokens]."""
        return self.value

    def _draw(self, rng: np.random.Generator, n: int) -> Floats:
        return np.full(n, float(self.value))


class Normal(LengthDistribution):
    """Normal lengths; draws below one token become one, which lifts the mean when sd is wide."""

    kind: Literal["normal"] = Field(default="normal", description="Normal lengths.")
    mean: MeanTokens = Field(description="Mean length [tokens].")
    sd: float = Field(ge=0, le=MAX_TOKENS, description="Standard deviation [tokens].")

    @property
    def about(self) -> float:
        """Mean length before any is cut [tokens]."""
        return self.mean

    def _draw(self, rng: np.random.Generator, n: int) -> Floats:
        return self.mean + self.sd * rng.standard_normal(n)


class Lognormal(LengthDistribution):
    """Lognormal lengths whose arithmetic mean and cv are the ones given.

    Notes
    -----
    sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2/2 of the underlying normal.
    """

    kind: Literal["lognormal"] = Field(default="lognormal", description="Lognormal lengths.")
    mean: MeanTokens = Field(description="Arithmetic mean length [tokens].")
    cv: float = Field(ge=0, le=10, description="Standard deviation over mean.")

    @property
    def about(self) -> float:
        """Mean length before any is cut [tokens]."""
        return self.mean

    def _draw(self, rng: np.random.Generator, n: int) -> Floats:
        variance = math.log1p(self.cv**2)
        mu = math.log(self.mean) - variance / 2
        return np.exp(mu + math.sqrt(variance) * rng.standard_normal(n))


class Empirical(LengthDistribution):
    """Lengths drawn from a list of seen ones."""

    kind: Literal["empirical"] = Field(
        default="empirical", description="Lengths drawn from a list of seen ones."
    )
    values: tuple[TokenCount, ...] = Field(
        min_length=1, max_length=100_000, description="Lengths seen [tokens]."
    )
    weights: tuple[Annotated[float, Field(ge=0, le=1e12)], ...] | None = Field(
        default=None, description="Relative weight of each value; equal when absent."
    )

    @field_validator("weights")
    @classmethod
    def _matching(
        cls, weights: tuple[float, ...] | None, info: ValidationInfo
    ) -> tuple[float, ...] | None:
        values = info.data.get("values", weights)
        if weights is not None and values is not None and len(weights) != len(values):
            raise ValueError(f"must have one weight a value: {len(values)}, not {len(weights)}")
        if weights is not None and sum(weights) <= 0:
            raise ValueError("must not all be zero")
        return weights

    @property
    def about(self) -> float:
        """Mean length before any is cut [tokens]."""
        return float(np.average(self.values, weights=self.weights))

    @property
    def longest(self) -> int:
        """The longest length seen, cut [tokens]."""
        return min(max(self.values), super().longest)

    def _draw(self, rng: np.random.Generator, n: int) -> Floats:
        weights = np.ones(len(self.values)) if self.weights is None else np.array(self.weights)
        chosen: Floats = rng.choice(
            np.array(self.values, dtype=np.float64), size=n, p=weights / weights.sum()
        )
        return chosen


Length = Annotated[Fixed | Normal | Lognormal | Empirical, Field(discriminator="kind")]
