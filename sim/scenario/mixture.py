"""Which stream a request is of, and which domain: drawn anew where they change over time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.schema import ModelError
from sim.scenario.changing_domains import ChangingDomain
from sim.scenario.distributions import Floats, Ints
from sim.scenario.over_time import Unit, unit_of, weights_at
from sim.scenario.streams import Stream


class Clock(NamedTuple):
    """Where sessions start, each of shape (sessions,): ``s`` [s], ``share`` of the requests."""

    s: Floats
    share: Floats

    def of(self, unit: Unit) -> Floats:
        """Places in one unit."""
        return self.s if unit == "s" else self.share


class StreamDraws(Protocol):
    """Generators by purpose and stream."""

    def __call__(self, purpose: str, stream: int = 0) -> np.random.Generator:
        """Make the generator of one purpose."""
        ...


def choose_streams(streams: Sequence[Stream], draws: Floats, x: Floats | None) -> Ints:
    """Stream of each session by share.

    Parameters
    ----------
    streams : sequence of Stream
    draws : array, shape (n,)
        Uniform from 0 to 1.
    x : array, shape (n,), or None
        Where sessions start, in the unit of the shares; None where no share changes.
    """
    shares = [kind.share for kind in streams]
    if x is None:
        constant = np.array(shares)
        return np.searchsorted(np.cumsum(constant / constant.sum())[:-1], draws, side="right")
    weights = weights_at(shares, x)
    due, reached = draws * sum(weights), np.zeros(len(x))
    stream = np.zeros(len(x), dtype=np.int64)
    for weight in weights[:-1]:
        reached += weight
        stream += due >= reached
    return stream


def mean_shares(streams: Sequence[Stream], duration_s: float | None) -> Floats:
    """Share of each stream on average over the run, 1 in sum; shape (streams,).

    Without a duration shares in seconds are averaged up to their last point: an estimate.
    """
    shares = [kind.share for kind in streams]
    unit = unit_of(shares)
    if unit is None:
        constant: Floats = np.array(shares, dtype=np.float64)
        return constant / float(constant.sum())
    last = max(share.at[-1][0] for share in shares if not isinstance(share, float))
    end = 1.0 if unit == "share" else duration_s or last
    x = (np.arange(1000) + 0.5) / 1000 * end
    weights = np.array([np.broadcast_to(weight, len(x)) for weight in weights_at(shares, x)])
    mean: Floats = (weights / weights.sum(axis=0)).mean(axis=1)
    return mean


def domains_change(streams: Sequence[Stream]) -> bool:
    """Whether the domain of any stream does."""
    return any(isinstance(kind.domain, ChangingDomain) for kind in streams)


def draw_domains(
    streams: Sequence[Stream],
    names: Sequence[str],
    stream: NDArray[np.integer[Any]],
    clock: Clock,
    draws: StreamDraws,
) -> Ints:
    """Domain of each session, as an index into ``names``; shape (sessions,).

    Raises
    ------
    ModelError
        If a domain changes too often to draw.
    """
    domain: Ints = np.array([names.index(kind.domains[0]) for kind in streams])[stream]
    for index, kind in enumerate(streams):
        changing = kind.domain
        if isinstance(changing, ChangingDomain):
            (mine,) = np.nonzero(stream == index)
            place = np.array([names.index(name) for name in changing.names])
            try:
                drawn = changing.drawn(clock.of(changing.unit)[mine], partial(draws, stream=index))
            except ModelError as error:
                where = f"workload.streams[{index}].domain.{error.key}"
                raise ModelError(str(error), where) from None
            domain[mine] = place[drawn]
    return domain
