"""When requests are sent: every arrival process a scenario can name."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.scenario.arrival_process import ArrivalProcess, AtRate, elapsed
from sim.scenario.distributions import Floats, Seconds, Spread, ThinkSpread, pauses
from sim.scenario.shapes import Diurnal, OnOff, Ramp
from sim.scenario.trace.schema import Trace


class Poisson(AtRate):
    """Memoryless arrivals: exponential gaps, never cut."""

    kind: Literal["poisson"] = Field(default="poisson", description="Memoryless arrivals.")
    exact_rate: bool = Field(
        default=False,
        description="Scale all gaps alike, so that the requests come at just the mean rate stated, "
        "as load generators do that fill a stage.",
    )

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]; the first comes one gap after zero."""
        due = np.cumsum(rng.standard_exponential(n))
        if self.exact_rate and n:
            due *= n / due[-1]
        return due / self.rate_per_s


class Constant(AtRate):
    """Evenly spaced arrivals, the first at zero."""

    kind: Literal["constant"] = Field(
        default="constant", description="Evenly spaced arrivals, the first at zero."
    )

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]; ``rng`` is not used."""
        return np.arange(n, dtype=np.float64) / self.rate_per_s


class Gamma(AtRate):
    """Gamma-distributed gaps: burstier than Poisson above cv 1, more even below."""

    kind: Literal["gamma"] = Field(
        default="gamma", description="Gamma gaps: bursty above cv 1, even below."
    )
    cv: Spread = Field(
        description="Standard deviation of the gaps over their mean; 1 is Poisson.",
    )

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]; the first comes one gap after zero."""
        return elapsed(rng, n, self.cv) / self.rate_per_s


class ClosedLoop(ArrivalProcess):
    """Users who send the next request, or begin the next session, after the answer to the last."""

    kind: Literal["closed_loop"] = Field(
        default="closed_loop", description="A fixed number of users, each waiting for its answer."
    )
    users: int = Field(ge=1, le=1_000_000, description="Concurrent users.")
    think_s: Seconds = Field(
        default=0.0,
        description="Mean pause between an answer and the user's next request or session [s].",
    )
    think_cv: ThinkSpread = Field(
        default=0.0, description="Spread of that pause over its mean; 0 constant, 1 exponential."
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

    def pauses(self, rng: np.random.Generator, n: int) -> Floats:
        """Pause before each of ``n`` requests or sessions [s]."""
        return pauses(rng, n, self.think_s, self.think_cv)


Arrivals = Annotated[
    Poisson | Constant | Gamma | Diurnal | OnOff | Ramp | ClosedLoop | Trace,
    Field(discriminator="kind"),
]
