"""Traffic that rises and falls: bursts, days and ramps."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from models.schema import ModelError
from sim.scenario.arrival_process import ArrivalProcess, AtRate, elapsed
from sim.scenario.distributions import Floats, Rate, Spread

DAY_S = 86_400.0
DAY_CELLS = 65_536
"""Cells of a day within which its rate is taken as constant."""

RampRate = Annotated[float, Field(ge=0, le=1e6)]
Hour = Annotated[float, Field(ge=0, lt=24)]
Period = Annotated[float, Field(ge=1, le=1e9)]
Duration = Annotated[float, Field(gt=0, le=1e6)]


class OnOff(AtRate):
    """Bursts: Poisson arrivals whose rate switches between two values.

    Periods are exponential, and a run starts as if it had always gone on.

    Notes
    -----
    A Markov-modulated Poisson process of two states; W. Fischer, K. Meier-Hellstern, Performance
    Evaluation 18 (1993).
    """

    kind: Literal["on_off"] = Field(
        default="on_off", description="Bursts: the rate switches between two values."
    )
    on_s: Duration = Field(description="Mean length of a burst, exponential [s].")
    off_s: Duration = Field(description="Mean length of a lull between bursts, exponential [s].")
    off_share: float = Field(
        default=0.0, ge=0, le=1, description="Rate in a lull over the rate in a burst."
    )

    @model_validator(mode="after")
    def _burst(self) -> OnOff:
        sent = self.rates_per_s[0] * self.on_s
        if sent < 1:
            raise ModelError(
                f"is too short for a burst: it sends {sent:.2g} requests on average, "
                f"fewer than one, got {self.on_s:g}",
                "on_s",
            )
        return self

    @property
    def rates_per_s(self) -> tuple[float, float]:
        """Rate in a burst and in a lull [1/s]; their mean over time is ``rate_per_s``."""
        share = self.off_share
        burst = self.rate_per_s * (self.on_s + self.off_s) / (self.on_s + share * self.off_s)
        return burst, share * burst

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]: the cumulative rate, inverted at sums of exponential gaps."""
        gaps, states = rng.spawn(2)
        due = np.cumsum(gaps.standard_exponential(n))
        starts_in_lull = int(states.random() * (self.on_s + self.off_s) >= self.on_s)
        mean_s = np.roll([self.on_s, self.off_s], starts_in_lull)
        rates = np.roll(self.rates_per_s, starts_in_lull)
        lengths_s, counts = np.zeros((0, 2)), np.zeros(1)
        while n and counts[-1] < due[-1]:
            cycles = math.ceil((due[-1] - counts[-1]) / float(mean_s @ rates)) + 1
            more_s = mean_s * states.standard_exponential((cycles, 2))
            lengths_s = np.concatenate([lengths_s, more_s])
            counts = np.cumsum(lengths_s * rates)
        period, ends_s = np.searchsorted(counts, due), np.cumsum(lengths_s)
        times: Floats = ends_s[period] - (counts[period] - due) / rates[period % 2]
        return times


class Diurnal(ArrivalProcess):
    """A day: the rate rises smoothly to a peak once a day and falls to a trough opposite.

    Notes
    -----
    The rate is ``mean exp(kappa cos x) / I0(kappa)``, x the hour from the peak as an angle: it is
    never negative, and kappa solves ``exp(kappa) / I0(kappa) = peak_factor`` for any value from 1.
    Arrivals invert the cumulative rate at sums of gaps of mean 1, so none are thinned away.
    """

    stationary: ClassVar[bool] = False
    kind: Literal["diurnal"] = Field(
        default="diurnal", description="The rate rises and falls once a day."
    )
    mean_rate_per_s: Rate = Field(
        description="Arrivals a second over a whole day: requests, or sessions [1/s]."
    )
    peak_factor: float = Field(ge=1, le=100, description="Rate at the peak over the mean rate.")
    peak_hour: Hour = Field(default=14.0, description="Hour of the peak, 0 to 24.")
    start_hour: Hour = Field(default=0.0, description="Hour at which the run starts, 0 to 24.")
    period_s: Period = Field(
        default=DAY_S, description="Length of the day: its hours are 24ths of this [s]."
    )
    cv: Spread = Field(
        default=1.0,
        description="Burstiness of the gaps beside the change of rate; 1 is Poisson.",
    )

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]."""
        days = elapsed(rng, n, self.cv) / (self.mean_rate_per_s * self.period_s)
        whole = np.floor(days)
        into = np.interp(days - whole, self._expected(), np.linspace(0, 1, DAY_CELLS + 1))
        times: Floats = self.period_s * (whole + into)
        return times

    def mean_count(self, until_s: float) -> float:
        """Arrivals to expect up to an instant."""
        whole, into = divmod(until_s / self.period_s, 1.0)
        part = np.interp(into, np.linspace(0, 1, DAY_CELLS + 1), self._expected())
        return self.mean_rate_per_s * self.period_s * (whole + float(part))

    @property
    def busy_rate_per_s(self) -> float:
        """Rate at the peak [1/s]."""
        return self.mean_rate_per_s * self.peak_factor

    def _expected(self) -> Floats:
        """Share of a day's arrivals up to the end of each cell, the run's start first."""
        day = (np.arange(DAY_CELLS) + 0.5) / DAY_CELLS + (self.start_hour - self.peak_hour) / 24
        rate = np.exp(_concentration(self.peak_factor) * (np.cos(2 * np.pi * day) - 1))
        share = np.concatenate([[0.0], np.cumsum(rate)])
        expected: Floats = share / share[-1]
        return expected


class Ramp(ArrivalProcess):
    """A rate that moves in a straight line from one value to another, and stays there."""

    stationary: ClassVar[bool] = False
    kind: Literal["ramp"] = Field(
        default="ramp", description="The rate moves from one value to another, and stays there."
    )
    from_per_s: RampRate = Field(
        description="Arrivals a second at the start: requests, or sessions [1/s]."
    )
    to_per_s: RampRate = Field(description="Arrivals a second from the end of the ramp on [1/s].")
    over_s: Duration = Field(description="Length of the ramp [s].")

    @model_validator(mode="after")
    def _some(self) -> Ramp:
        if not self.from_per_s and not self.to_per_s:
            raise ModelError("must not be 0 like from_per_s: nothing arrives, got 0", "to_per_s")
        return self

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants [s]: the cumulative rate, inverted at sums of exponential gaps."""
        due = np.cumsum(rng.standard_exponential(n))
        on_ramp = self.mean_count(self.over_s)
        within = np.minimum(due, on_ramp)
        slope = (self.to_per_s - self.from_per_s) / self.over_s
        speed = np.sqrt(np.maximum(self.from_per_s**2 + 2 * slope * within, 0.0))
        after = np.full(n, np.inf) if not self.to_per_s else (due - on_ramp) / self.to_per_s
        return np.where(due > on_ramp, self.over_s + after, 2 * within / (self.from_per_s + speed))

    def mean_count(self, until_s: float) -> float:
        """Arrivals to expect up to an instant."""
        on_ramp = min(until_s, self.over_s)
        gained = (self.to_per_s - self.from_per_s) * on_ramp / self.over_s
        ramped = on_ramp * (self.from_per_s + gained / 2)
        return ramped + (until_s - on_ramp) * self.to_per_s

    @property
    def busy_rate_per_s(self) -> float:
        """Rate at the busier end [1/s]."""
        return max(self.from_per_s, self.to_per_s)


def _concentration(peak_factor: float) -> float:
    """Kappa at which ``exp(kappa) / I0(kappa)`` is the peak over the mean."""
    from scipy import optimize, special

    def excess(kappa: float) -> float:
        return float(special.i0e(kappa)) - 1 / peak_factor

    return float(optimize.brentq(excess, 0.0, peak_factor**2, xtol=1e-15, rtol=1e-14))
