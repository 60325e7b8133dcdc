"""What requests see of a replica in a steady state, and how likely each of them is late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from sim.scenario.distributions import Floats, Ints


class Spread(NamedTuple):
    """A sum of many small delays, by its first two moments: mean [s] and variance [s^2]."""

    mean: Floats | float
    variance: Floats | float

    def beyond(self, limit: Floats) -> Floats:
        """P(above ``limit``), of a gamma law with these moments (Wilson and Hilferty 1931)."""
        mean = np.maximum(self.mean, 1e-12)
        shape = mean**2 / np.maximum(self.variance, 1e-6 * mean**2)
        root = np.cbrt(np.maximum(limit, 0.0) / mean)
        above: Floats = ndtr(-(root - 1 + 1 / (9 * shape)) * 3 * np.sqrt(shape))
        return np.where(limit <= 0, 1.0, above)


@dataclass(frozen=True, eq=False)
class State:
    """One batch, and what requests see there; arrays have shape (requests,).

    Attributes
    ----------
    n : float
        Mean sequences decoding.
    rate_req_s : float
        Arrivals that keep so many decoding [1/s].
    load : float
        Share of time that prefills hold decoding up.
    fits : bool
        Prefills find room in the steps.
    work_s : float64
        Decode steps of each request [s].
    own_s : float64
        Its prefill.
    held : Spread
        Others' prefills, and steps longer or shorter than on average, while each decodes.
    wait : Spread
        From arrival to its first step.
    queued, queue_s : float
        P(no sequence may be added), and the mean wait for it where none may [s].
    """

    n: float
    rate_req_s: float
    load: float
    fits: bool
    work_s: Floats
    own_s: Floats
    held: Spread
    wait: Spread
    queued: float
    queue_s: float

    def late_first(self, bound_s: float) -> Floats:
        """P(time to first token above a bound), of each request."""
        spare = bound_s - self.own_s
        late = self.wait.beyond(spare)
        if not self.queued:
            return late
        after = np.exp(-np.maximum(spare - self.wait.mean, 0.0) / self.queue_s)
        return late + self.queued * (1 - late) * after

    def late_tokens(self, bound_s: float, tokens: Ints) -> Floats:
        """P(time per output token after the first above a bound), of each request."""
        return self.held.beyond(bound_s * (tokens - 1) - self.work_s)

    def late_end(self, bound_s: float) -> Floats:
        """P(arrival to last token above a bound), of each request."""
        both = Spread(
            self.held.mean + self.wait.mean + self.queued * self.queue_s,
            self.held.variance + self.wait.variance + self.queued * self.queue_s**2,
        )
        return both.beyond(bound_s - self.own_s - self.work_s)
