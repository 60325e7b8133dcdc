"""How far a run is: counted over everything it simulates, and shown as a bar on a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

OnProgress = Callable[[str, int, int], None]

SLOW_S = 2.0
"""Writing is announced when it takes longer."""


class Progress:
    """Adds up the requests of all runs.

    Parameters
    ----------
    report : callable or None
        Called with (what runs, requests done, requests in all).
    total : int
        Requests in all.
    """

    def __init__(self, report: OnProgress | None, total: int) -> None:
        self._report, self._total, self._before = report, total, 0

    def of(self, label: str) -> Callable[[int, int], None] | None:
        """Announce the next run; what to call with (requests done, requests of this run)."""
        if self._report is None:
            return None
        report, before = self._report, self._before

        def update(done: int, total: int) -> None:
            report(label, before + done, self._total)

        update(0, 0)
        return update

    def advance(self, requests: int) -> None:
        """A run of so many requests is over."""
        self._before += requests


class Silent:
    """Shows nothing."""

    def update(self, label: str, done: int, total: int) -> None:
        """Do nothing."""

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing around the block."""
        return contextlib.nullcontext()


class Bar(Silent):
    """A bar on stderr with percent, time elapsed and time left; it vanishes at the end."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self.rich = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self.rich.add_task("simulating", total=None)

    def update(self, label: str, done: int, total: int) -> None:
        """Show what runs and how much is done."""
        self.rich.update(self._task, description=label, completed=done, total=total)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Take the bar away; say what goes on once the block turns out slow."""
        self.rich.stop()
        status = self.rich.console.status("writing")
        slow = threading.Timer(SLOW_S, status.start)
        slow.start()
        try:
            yield
        finally:
            slow.cancel()
            slow.join()
            status.stop()


@contextlib.contextmanager
def shown(quiet: bool) -> Iterator[Silent]:
    """Show a bar where a person watches stderr, and nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield Silent()
        return
    bar = Bar()
    with bar.rich:
        yield bar
