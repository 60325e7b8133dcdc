"""KV blocks of one replica: how many are free, and which freed ones can still be found."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable


class Run:
    """Blocks freed together, the tail of the sequence first; ``key`` None: cannot be found."""

    __slots__ = ("count", "key")

    def __init__(self, key: Hashable | None, count: int) -> None:
        self.key = key
        self.count = count


class BlockPool:
    """Counts of free blocks with a least-recently-freed order of runs.

    Allocation eats from the oldest run, and a run from its tail block, so the blocks left of a
    run are the first of that sequence: their number is how far a prefix hit reaches. Taking
    blocks only counts a debt; it is walked off when somebody looks for a run.

    Attributes
    ----------
    total, free : int
        Blocks there are, and blocks not in use (cached ones included).
    """

    __slots__ = ("_debt", "_found", "_runs", "free", "total")

    def __init__(self, n_blocks: int) -> None:
        self.total = n_blocks
        self.free = n_blocks
        self._debt = 0
        self._runs: deque[Run] = deque([Run(None, n_blocks)])
        self._found: dict[Hashable, Run] = {}

    def take(self, count: int) -> None:
        """Allocate ``count`` blocks, oldest freed first.

        Raises
        ------
        ValueError
            If fewer are free.
        """
        if count > self.free:
            raise ValueError(f"asked for {count} blocks, {self.free} are free")
        self.free -= count
        self._debt += count

    def release(self, count: int, key: Hashable | None = None) -> None:
        """Free ``count`` blocks as the newest run, to be found under ``key``."""
        if not count:
            return
        self.free += count
        if key is None and self._runs and self._runs[-1].key is None:
            self._runs[-1].count += count
            return
        run = Run(key, count)
        self._runs.append(run)
        if key is not None:
            if key in self._found:
                self._found[key].key = None
            self._found[key] = run

    def lookup(self, key: Hashable) -> int:
        """Blocks of the run ``key`` that are still there, from its first block on."""
        if key not in self._found:
            return 0
        self._settle()
        run = self._found.get(key)
        return run.count if run else 0

    def claim(self, key: Hashable, count: int) -> None:
        """Take the first ``count`` blocks of a run out of the free ones; the rest is forgotten."""
        run = self._found.pop(key)
        run.key = None
        run.count -= count
        self.free -= count

    def _settle(self) -> None:
        while self._debt:
            run = self._runs[0]
            if run.count > self._debt:
                run.count -= self._debt
                self._debt = 0
                return
            self._debt -= run.count
            self._runs.popleft()
            if run.key is not None:
                del self._found[run.key]

    def check(self) -> None:
        """Assert that runs and debt account for every free block."""
        held = sum(run.count for run in self._runs) - self._debt
        assert held == self.free <= self.total, (held, self.free, self.total)
