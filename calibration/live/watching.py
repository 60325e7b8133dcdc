"""What the server tells of itself while a stage runs; nothing, where it has no metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Told(NamedTuple):
    """What one part of a stage left at the server.

    Attributes
    ----------
    counters : mapping
        Increase of each counter, by one name for every server.
    samples : sequence of (float, str, float)
        Time since the start of the part [s], name, value of each gauge.
    texts : mapping
        ``before`` and ``after``: all the server said.
    notes : sequence of str
        What could not be read.
    """

    counters: Mapping[str, float] = {}  # noqa: RUF012
    samples: Sequence[tuple[float, str, float]] = ()
    texts: Mapping[str, str] = {}  # noqa: RUF012
    notes: Sequence[str] = ()


class Watcher(Protocol):
    """Reads what a server says of itself; an async context manager."""

    @property
    def server(self) -> dict[str, Any]:
        """Engine and version, as far as they are known."""
        ...

    async def __aenter__(self) -> Watcher: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def begin(self) -> None:
        """A part of a stage begins."""
        ...

    async def end(self) -> Told:
        """It is over."""
        ...


class Blind:
    """Reads nothing."""

    server: dict[str, Any] = {}  # noqa: RUF012

    async def __aenter__(self) -> Blind:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    async def begin(self) -> None:
        """Do nothing."""

    async def end(self) -> Told:
        """Tell nothing."""
        return Told()
