"""What goes on beside the load: begun with a block, ended with it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Background:
    """An async context manager that runs ``_watch`` as a task of its own meanwhile."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        raise NotImplementedError
