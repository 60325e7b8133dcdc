"""Whether a server that has gone silent is still there."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import NamedTuple

import httpx

from calibration.live.observe.background import Background
from calibration.live.observe.client import Client


class GoneError(RuntimeError):
    """The server does not answer, or not as it must; the message says what was kept."""


class DeadError(GoneError):
    """The server is no longer there; what it answered before stands."""


class Patience(NamedTuple):
    """How long a silent server is waited for; all assumed.

    Attributes
    ----------
    quiet_s : float
        Without a byte of any answer in flight before the server is looked for [s].
    every_s, timeout_s : float
        Between tries to connect, and longest wait for one [s].
    refusals : int
        In a row after which the server is taken for gone.
    """

    quiet_s: float = 10.0
    every_s: float = 5.0
    timeout_s: float = 2.0
    refusals: int = 3


USUAL = Patience()


class Pulse(Background):
    """Tries to connect while what is in flight is silent; an async context manager.

    A server that is shut down may leave its streams open: they alone tell nothing.

    Parameters
    ----------
    client : Client
    stopping : asyncio.Event
        Set where the server is gone.
    patience : Patience

    Attributes
    ----------
    dead : str
        The last refusal, where the server is gone; else empty.
    """

    def __init__(self, client: Client, stopping: asyncio.Event, patience: Patience) -> None:
        self._client, self._stopping, self._patience = client, stopping, patience
        self.dead = ""

    async def _watch(self) -> None:
        refused, why = 0, ""
        while refused < self._patience.refusals:
            await asyncio.sleep(self._patience.every_s)
            why = await self._refusal() if self._silent() else ""
            refused = refused + 1 if why and self._silent() else 0
        self.dead = f"silent for {self._patience.quiet_s:g} s and more, and {why}"
        self._stopping.set()

    def _silent(self) -> bool:
        quiet_s = perf_counter() - self._client.heard_s
        return self._client.in_flight > 0 and quiet_s > self._patience.quiet_s

    async def _refusal(self) -> str:
        """Why no connection can be made; empty where one can, or the server is slow to take it."""
        url = httpx.URL(self._client.asking.base_url)
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            async with asyncio.timeout(self._patience.timeout_s):
                _, writer = await asyncio.open_connection(url.host, port)
        except TimeoutError:
            return ""
        except OSError as error:
            return f"takes no connection ({type(error).__name__})"
        writer.close()
        return ""
