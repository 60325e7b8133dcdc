"""Ctrl-C and SIGTERM: when they may cut in, and when they have to wait."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNALLED = 128
"""A program ended by signal n has exit status 128 + n."""

Handler = Callable[[int, FrameType | None], Any]


@contextlib.contextmanager
def handled(handler: Handler) -> Iterator[None]:
    """Let ``handler`` answer both signals within the block.

    A signal the program was started to ignore stays ignored, and outside the main thread, which
    alone receives signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    changed = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    try:
        for number in changed:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in changed.items():
            signal.signal(number, old)


def leaving_at_once() -> contextlib.AbstractContextManager[None]:
    """End the program on the spot: for a block, such as imports, that leaves nothing half done."""
    return handled(lambda number, _: os._exit(SIGNALLED + number))


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Keep signals waiting until the block, which must not be torn, is through."""
    waiting: list[int] = []
    try:
        with handled(lambda number, _: waiting.append(number)):
            yield
    finally:
        for number in waiting:
            signal.raise_signal(number)


class Stop:
    """A handler that lets a run end in order, and cuts in when asked again.

    Attributes
    ----------
    asked : int
        Signals so far.
    patience : int
        How many signals are only noted, for ``check`` to act on; the next one cuts in.
    status : int
        Exit status that names the last signal.
    """

    def __init__(self) -> None:
        self.asked = self.patience = 0
        self.status = SIGNALLED + signal.SIGINT

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Answer a signal.

        Raises
        ------
        KeyboardInterrupt
            If patience is at its end.
        """
        self.asked += 1
        self.status = SIGNALLED + number
        if self.asked > self.patience:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came: called where nothing can be torn."""
        if self.asked:
            raise KeyboardInterrupt
