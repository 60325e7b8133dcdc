"""When requests arrive and how long they are: every distribution a scenario can name."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from models.schema import Frozen

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_TOKENS = 10_000_000

TokenCount = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
MeanTokens = Annotated[float, Field(ge=1, le=MAX_TOKENS)]
Rate = Annotated[float, Field(gt=0, le=1e6)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]


def word_or_number(value: object) -> str:
    """Tell which form a key takes that is either a keyword or a number."""
    return "word" if isinstance(value, str) else "number"


class ArrivalProcess(Frozen):
    """Base of all arrival processes.

    ``stationary``: their rate does not change with time, so a run can settle.
    """

    stationary: ClassVar[bool] = True
    kind: str

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants of ``n`` requests, ascending [s], shape (n,)."""
        raise NotImplementedError


class Poisson(ArrivalProcess):
    """Memoryless arrivals: exponential gaps, never cut."""

    kind: Literal["poisson"] = Field(default="poisson", description="Memoryless arrivals.")
    rate_per_s: Rate = Field(description="Mean arrivals a second [1/s].")

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]; the first comes one gap after zero."""
        return np.cumsum(rng.standard_exponential(n)) / self.rate_per_s


class Constant(ArrivalProcess):
    """Evenly spaced arrivals, the first at zero."""

    kind: Literal["constant"] = Field(
        default="constant", description="Evenly spaced arrivals, the first at zero."
    )
    rate_per_s: Rate = Field(description="Arrivals a second [1/s].")

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]; ``rng`` is not used."""
        return np.arange(n, dtype=np.float64) / self.rate_per_s


class Gamma(ArrivalProcess):
    """Gamma-distributed gaps: burstier than Poisson above cv 1, more even below."""

    kind: Literal["gamma"] = Field(
        default="gamma", description="Gamma gaps: bursty above cv 1, even below."
    )
    rate_per_s: Rate = Field(description="Mean arrivals a second [1/s].")
    cv: float = Field(
        ge=0.01,
        le=100,
        description="Standard deviation of the gaps over their mean; 1 is Poisson.",
    )

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]; the first comes one gap after zero."""
        shape = self.cv**-2
        return np.cumsum(rng.standard_gamma(shape, n)) / (shape * self.rate_per_s)


class ClosedLoop(ArrivalProcess):
    """Users who send the next request only after the answer to the last."""

    kind: Literal["closed_loop"] = Field(
        default="closed_loop", description="A fixed number of users, each waiting for its answer."
    )
    users: int = Field(ge=1, le=1_000_000, description="Concurrent users.")
    think_s: Seconds = Field(
        default=0.0, description="Pause between an answer and the user's next request [s]."
    )
    stagger_s: Seconds = Field(
        default=0.0, description="First requests are spread evenly over this time [s]."
    )

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """First requests of the users [s], then NaN: those instants follow from the answers."""
        times = np.full(n, np.nan)
        first = min(self.users, n)
        times[:first] = np.arange(first) * (self.stagger_s / self.users)
        return times


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
        default=1.0, gt=0, le=1e6, description="Factor on all gaps: 2 replays at half the speed."
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


Arrivals = Annotated[Poisson | Constant | Gamma | ClosedLoop | Trace, Field(discriminator="kind")]


class LengthDistribution(Frozen):
    """Base of all length distributions: whole tokens, at least 1, within ``min`` and ``max``."""

    kind: str
    min: TokenCount | None = Field(
        default=None, description="Shorter draws are raised to this [tokens]."
    )
    max: TokenCount | None = Field(
        default=None, description="Longer draws are cut to this [tokens]; nothing is cut without."
    )

    @field_validator("max")
    @classmethod
    def _ordered(cls, value: int | None, info: ValidationInfo) -> int | None:
        lower = info.data.get("min")
        if value is not None and lower is not None and value < lower:
            raise ValueError(f"must be at least min ({lower})")
        return value

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

    def _draw(self, rng: np.random.Generator, n: int) -> Floats:
        return np.full(n, float(self.value))


class Normal(LengthDistribution):
    """Normal lengths; draws below one token become one, which lifts the mean when sd is wide."""

    kind: Literal["normal"] = Field(default="normal", description="Normal lengths.")
    mean: MeanTokens = Field(description="Mean length [tokens].")
    sd: float = Field(ge=0, le=MAX_TOKENS, description="Standard deviation [tokens].")

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

    def _draw(self, rng: np.random.Generator, n: int) -> Floats:
        weights = np.ones(len(self.values)) if self.weights is None else np.array(self.weights)
        chosen: Floats = rng.choice(
            np.array(self.values, dtype=np.float64), size=n, p=weights / weights.sum()
        )
        return chosen


Length = Annotated[Fixed | Normal | Lognormal | Empirical, Field(discriminator="kind")]
