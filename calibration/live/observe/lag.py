"""How far the client itself falls behind: what it cannot keep up with it cannot time."""

from __future__ import annotations

import asyncio
from time import perf_counter

from calibration.live.observe.background import Background

EVERY_S = 0.05
TOLERATED_S = 0.01
"""Mean delay beyond which times are no longer those of the server; assumed."""


class Lag(Background):
    """Wakes up at fixed times, and sees how late it does; an async context manager.

    Attributes
    ----------
    delays_s : list of float
        How late each time [s].
    """

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    async def _watch(self) -> None:
        while True:
            due_s = perf_counter() + EVERY_S
            await asyncio.sleep(EVERY_S)
            self.delays_s.append(perf_counter() - due_s)

    def note(self) -> str:
        """A warning where the client was too slow; else empty."""
        mean_s = sum(self.delays_s) / max(len(self.delays_s), 1)
        if mean_s <= TOLERATED_S:
            return ""
        mean_ms, most_ms = 1e3 * mean_s, 1e3 * max(self.delays_s)
        return (
            f"this client fell behind by {mean_ms:.0f} ms on average and {most_ms:.0f} ms at most: "
            "times are too long; use a faster machine, or less load"
        )
