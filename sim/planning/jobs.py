"""The same function on many things, here or in worker processes; the order decides nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    function: Callable[[T], R],
    things: Sequence[T],
    jobs: int = 1,
    on_done: Callable[[int], None] | None = None,
) -> list[R]:
    """Apply a function to all things; results in their order, whatever finishes first.

    Parameters
    ----------
    function : callable
        Of a module, as workers import it.
    things : sequence
    jobs : int
        Processes; 1: this one.
    on_done : callable, optional
        Called with how many are done.

    Raises
    ------
    RuntimeError
        If a worker dies.
    """
    tell = on_done or (lambda done: None)
    tell(0)
    if jobs == 1 or len(things) < 2:
        results = []
        for thing in things:
            results.append(function(thing))
            tell(len(results))
        return results
    found: dict[int, R] = {}
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(things)), context, _start)
    try:
        futures = {pool.submit(function, thing): at for at, thing in enumerate(things)}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            tell(len(found))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    pool.shutdown()
    return [found[at] for at in range(len(things))]


def _start() -> None:
    """Ctrl-C reaches all processes of a terminal; the first alone answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """End this process when the one that started it is gone, even if it was killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
