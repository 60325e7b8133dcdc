"""What is due when: the stages of an observation, each a number of requests.

In a closed loop a user sends the next request on the answer to the last one. In an open loop and
in the replay of a trace a request is due at its time, whatever became of those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from models.strict_yaml import InputError
from sim.tables import text_of

Mode = Literal["closed_loop", "open_loop", "trace"]

FEWEST = 16
"""Requests of a stage, unless the user says."""
ROUNDS = 3
"""Requests each user sends, at least."""
OPEN_S = 30.0
"""An open-loop stage sends for about so long, at least [s]."""
OPEN_WARM_UP = 4
MOST_REQUESTS = 1000
"""More are sent only when the user agrees: they may cost money, or other users their answers."""


class Planned(NamedTuple):
    """One stage to be measured.

    Attributes
    ----------
    point : dict
        What sets it, under one key.
    replication : int
        0, 1, ...: repeat.
    requests : int
    warm_up : int
        Requests before it, which are not measured.
    users : int or None
        Of a closed loop; None where requests are due at times.
    due_s : array of float or None
        When each request is due, since the start of the stage [s].
    """

    point: dict[str, Any]
    replication: int
    requests: int
    warm_up: int
    users: int | None = None
    due_s: npt.NDArray[np.float64] | None = None

    @property
    def name(self) -> str:
        """Its point as one word, as ``concurrency=8``."""
        return " ".join(f"{key}={text_of(value)}" for key, value in self.point.items())

    @property
    def key(self) -> tuple[str, int]:
        """What no other stage has."""
        return self.name, self.replication


class Asked(NamedTuple):
    """The load a user asks for: one of the first three is given.

    Attributes
    ----------
    concurrency : sequence of int
    rates_per_s : sequence of float
    replay_s : array of float or None
        Times of a trace, from 0 [s].
    rate_scale : float
        How many times faster than it was recorded a trace is sent.
    requests, warm_up : int or None
        Of every stage; None for what suits it.
    repeats : int
    seed : int
        Of open-loop times.
    """

    concurrency: Sequence[int] = ()
    rates_per_s: Sequence[float] = ()
    replay_s: npt.NDArray[np.float64] | None = None
    rate_scale: float = 1.0
    requests: int | None = None
    warm_up: int | None = None
    repeats: int = 1
    seed: int = 0

    @property
    def mode(self) -> Mode:
        """How requests are set off."""
        if self.replay_s is not None:
            return "trace"
        return "open_loop" if self.rates_per_s else "closed_loop"


def stages(asked: Asked) -> list[Planned]:
    """All stages in the order they are measured: repeat by repeat, so that drift hits all alike."""
    return [one for repeat in range(asked.repeats) for one in _ladder(asked, repeat)]


def check_size(total: int, agreed: bool) -> None:
    """Refuse to send more requests than a user is likely to mean.

    Raises
    ------
    InputError
        That says how many there are.
    """
    if total > MOST_REQUESTS and not agreed:
        message = f"{total} requests, warm-up included, are to be sent; give --yes to do so"
        raise InputError("", None, "--requests", f"{message}, or ask for at most {MOST_REQUESTS}")


def _ladder(asked: Asked, repeat: int) -> list[Planned]:
    if asked.replay_s is not None:
        due = asked.replay_s[: asked.requests] / asked.rate_scale
        warm_up = OPEN_WARM_UP if asked.warm_up is None else asked.warm_up
        point = {"rate_scale": asked.rate_scale}
        return [Planned(point, repeat, len(due), warm_up, due_s=due)]
    closed = [_closed(users, asked, repeat) for users in asked.concurrency]
    return closed + [_open(rate, asked, repeat) for rate in asked.rates_per_s]


def _closed(users: int, asked: Asked, repeat: int) -> Planned:
    requests = asked.requests or max(FEWEST, ROUNDS * users)
    warm_up = users if asked.warm_up is None else asked.warm_up
    return Planned({"concurrency": users}, repeat, requests, warm_up, users)


def _open(rate_per_s: float, asked: Asked, repeat: int) -> Planned:
    """Poisson arrivals: the same draws at every rate, others in every repeat."""
    requests = asked.requests or max(FEWEST, ceil(OPEN_S * rate_per_s))
    gaps = np.random.default_rng((asked.seed, repeat)).standard_exponential(requests)
    warm_up = OPEN_WARM_UP if asked.warm_up is None else asked.warm_up
    due = np.cumsum(gaps) / rate_per_s
    return Planned({"rate_per_s": rate_per_s}, repeat, requests, warm_up, due_s=due)
