"""Puts one stage of load on a server: who sends what when, and what is stopped half way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibration.live.observe.asking import Ready
from calibration.live.observe.client import Outcome
from calibration.live.observe.schedule import Planned

DEAD_AFTER = 3
"""Connection errors in a row after which a server is taken for gone."""

Make = Callable[[int], Ready]
"""Makes the request of a number."""
Send = Callable[[Ready], Awaitable[Outcome]]


class Sent(NamedTuple):
    """A request and what became of it.

    Attributes
    ----------
    number : int
        Within its stage, from 0.
    arrival_s : float
        When it was due; in a closed loop, when it was sent [s since the start].
    ready : Ready
    outcome : Outcome or None
        None for what was stopped in flight.
    """

    number: int
    arrival_s: float
    ready: Ready
    outcome: Outcome | None = None


class Part(NamedTuple):
    """What was sent without a break; all of a stage, unless it was interrupted.

    Attributes
    ----------
    zero_s : float
        Start of the stage on the clock of ``time.perf_counter``; before that of the part where
        earlier parts took time.
    duration_s : float
        Of this part [s].
    in_flight : tuple of Sent
        Stopped before they were answered.
    whole : bool
        Everything was answered.
    dead : str
        The last connection error, where the server is gone; else empty.
    """

    zero_s: float
    duration_s: float
    in_flight: tuple[Sent, ...]
    whole: bool
    dead: str = ""


class Loader:
    """Sends the requests of one stage that are left; each is made before it is due.

    Parameters
    ----------
    make, send : callable
        Make the request of a number, and send it.
    on_sent : callable
        Called with (request, start of the stage) as each is answered.
    stopping : asyncio.Event
        Set when nothing more is to be sent, and what is in flight is to be given up.
    """

    def __init__(
        self,
        make: Make,
        send: Send,
        on_sent: Callable[[Sent, float], None],
        stopping: asyncio.Event,
    ) -> None:
        self._make, self._send, self._on_sent, self._stopping = make, send, on_sent, stopping
        self._in_flight: dict[int, Sent] = {}
        self._answered = self._errors = 0
        self._dead, self._zero_s = "", 0.0

    async def run(self, planned: Planned, numbers: Sequence[int], after_s: float = 0.0) -> Part:
        """Send requests ``numbers`` of a stage of which ``after_s`` seconds are over."""
        first = None if planned.due_s is None else self._make(numbers[0])
        begun_s = perf_counter()
        self._zero_s = begun_s - after_s
        if planned.due_s is None or first is None:
            left = iter(numbers)
            users = min(planned.users or 1, len(numbers))
            work: asyncio.Future[Any] = asyncio.gather(*(self._user(left) for _ in range(users)))
        else:
            due_s = planned.due_s[list(numbers)]
            # What was lost in flight is due again; the gaps between arrivals stay as they were.
            shift_s = after_s - float(due_s[0]) if after_s else 0.0
            work = asyncio.ensure_future(self._on_time(numbers, due_s + shift_s, first))
        await until_stopped(work, self._stopping)
        return Part(
            self._zero_s,
            perf_counter() - begun_s,
            tuple(self._in_flight.values()),
            self._answered == len(numbers) and not self._dead,
            self._dead,
        )

    async def _user(self, left: Iterable[int]) -> None:
        for number in left:
            ready = self._make(number)
            await self._one(Sent(number, perf_counter() - self._zero_s, ready))

    async def _on_time(
        self, numbers: Sequence[int], due_s: npt.NDArray[np.float64], first: Ready
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for number, due in zip(numbers, due_s.tolist(), strict=True):
                # Making a request blocks all others: the one before is let out first.
                await self._until(due, 0.5)
                ready = first if number == numbers[0] else self._make(number)
                await self._until(due)
                group.create_task(self._one(Sent(number, due, ready)))

    async def _until(self, due_s: float, share: float = 1.0) -> None:
        wait_s = due_s + self._zero_s - perf_counter()
        await asyncio.sleep(max(share * wait_s, 0.0))

    async def _one(self, sent: Sent) -> None:
        self._in_flight[sent.number] = sent
        outcome = await self._send(sent.ready)
        self._answered += 1
        self._errors = self._errors + 1 if outcome.unreachable else 0
        self._on_sent(sent._replace(outcome=outcome), self._zero_s)
        del self._in_flight[sent.number]
        if self._errors >= DEAD_AFTER:
            self._dead = outcome.message
            self._stopping.set()


async def until_stopped(work: asyncio.Future[Any], stopping: asyncio.Event) -> bool:
    """Wait for work, and give it up as soon as ``stopping`` is set; whether it was done."""
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        await work
        return True
    except asyncio.CancelledError:
        return False
    finally:
        stop.cancel()


__all__ = ["DEAD_AFTER", "Loader", "Part", "Sent", "until_stopped"]
