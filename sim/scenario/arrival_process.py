"""What every arrival process answers: when requests come, and how many are to be expected."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from models.schema import Frozen
from sim.scenario.distributions import Floats, Rate


class ArrivalProcess(Frozen):
    """Base of all arrival processes; where a stream has sessions, what arrives are sessions.

    ``stationary``: the rate does not change with time, so a run can settle.
    """

    stationary: ClassVar[bool] = True
    kind: str

    def times(self, rng: np.random.Generator, n: int) -> Floats:
        """Arrival instants of ``n`` requests, ascending [s], shape (n,).

        More of them begin with the same ones. Infinite where arrivals end before.
        """
        raise NotImplementedError

    def mean_count(self, until_s: float) -> float:
        """Arrivals to expect up to an instant."""
        raise NotImplementedError

    @property
    def busy_rate_per_s(self) -> float:
        """Mean rate where it is highest [1/s]; bursts shorter than a run count with their lulls."""
        raise NotImplementedError


class AtRate(ArrivalProcess):
    """Base of those whose mean rate stays."""

    rate_per_s: Rate = Field(description="Mean arrivals a second: requests, or sessions [1/s].")

    def mean_count(self, until_s: float) -> float:
        """Arrivals to expect up to an instant."""
        return self.rate_per_s * until_s

    @property
    def busy_rate_per_s(self) -> float:
        """Mean rate [1/s]."""
        return self.rate_per_s


def elapsed(rng: np.random.Generator, n: int, cv: float) -> Floats:
    """Sums of ``n`` gamma gaps of mean 1, shape (n,)."""
    shape = cv**-2
    return np.cumsum(rng.standard_gamma(shape, n)) / shape
