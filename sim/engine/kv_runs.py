"""KV blocks with addresses: a sequence needs a stretch of adjacent ones beside ordinary ones."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from sim.engine.kv_blocks import KvBlocks
from sim.engine.kv_cache import BlockPool
from sim.engine.request import Request
from sim.engine.rules import Rules


class AddressPool(BlockPool):
    """A pool that knows which blocks are free, not only how many.

    Ordinary blocks are taken in the order in which they became free; a run is the first stretch
    of free blocks that is long enough. Blocks taken at admission are known to be their request's.
    Those its decode steps add are taken for the whole batch at once, so when it gives some back
    they are drawn from all of that kind. Which cached prefix a run overwrites is not followed: the
    count of the oldest goes down, as for ordinary blocks.

    Parameters
    ----------
    n_blocks : int
    draws : random.Random
        Chooses which blocks a sequence gives back where nobody knows which it had.

    Attributes
    ----------
    owned : dict
        Blocks of requests, as taken at their admission.
    """

    def __init__(self, n_blocks: int, draws: random.Random) -> None:
        super().__init__(n_blocks)
        self.owned: dict[Request, list[int]] = {}
        self._order = OrderedDict.fromkeys(range(n_blocks))
        self._free = np.ones(n_blocks, dtype=np.bool_)
        self._loose: list[int] = []
        self._leaving: list[int] = []
        self._in_runs = 0
        self._random = draws

    def take(self, count: int) -> None:
        """See `BlockPool.take`: those free for longest."""
        super().take(count)
        self._use(count, last=False)

    def claim(self, key: Hashable, count: int) -> None:
        """See `BlockPool.claim`: those freed last stand for blocks still cached."""
        super().claim(key, count)
        self._use(count, last=True)

    def _use(self, count: int, last: bool) -> None:
        taken = [self._order.popitem(last=last)[0] for _ in range(count)]
        self._free[taken] = False
        self._loose += taken

    def release(self, count: int, key: Hashable | None = None) -> None:
        """See `BlockPool.release`: first those of the request that leaves."""
        super().release(count, key)
        self._give(self._used_block() for _ in range(count))

    def _give(self, addresses: Iterable[int]) -> None:
        back = list(addresses)
        self._free[back] = True
        self._order.update(dict.fromkeys(back))

    def _used_block(self) -> int:
        """A block in use that goes: of who leaves, else any that nobody owns, else anybody's."""
        if self._leaving:
            return self._leaving.pop()
        blocks = self._loose
        if not blocks:
            blocks = self._random.choice([own for own in self.owned.values() if own])
        at = self._random.randrange(len(blocks))
        blocks[at], blocks[-1] = blocks[-1], blocks[at]
        return blocks.pop()

    def loose(self) -> int:
        """Number of blocks in use that nobody owns."""
        return len(self._loose)

    def own(self, request: Request, since: int) -> None:
        """Blocks taken since there were ``since`` that nobody owns are a request's."""
        self.owned[request] = self._loose[since:]
        del self._loose[since:]

    def part(self, request: Request) -> None:
        """What is released from here on is this request's."""
        self._leaving = self.owned.pop(request)

    def parted(self) -> None:
        """A request has left; blocks it had that are still in use are nobody's."""
        self._loose += self._leaving
        self._leaving = []

    def take_run(self, count: int) -> int | None:
        """Address of the first stretch of ``count`` free blocks, now in use; None without one."""
        starts, lengths = self._stretches()
        fit = np.flatnonzero(lengths >= count)
        if not fit.size:
            return None
        start = int(starts[fit[0]])
        super().take(count)
        self._free[start : start + count] = False
        for address in range(start, start + count):
            del self._order[address]
        self._in_runs += count
        return start

    def give_run(self, start: int, count: int) -> None:
        """Free a run."""
        super().release(count)
        self._give(range(start, start + count))
        self._in_runs -= count

    def unusable(self, count: int) -> int:
        """Blocks free in stretches shorter than ``count``."""
        lengths = self._stretches()[1]
        return int(lengths[lengths < count].sum())

    def _stretches(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start and length of every stretch of free blocks, by address."""
        padded = np.zeros(len(self._free) + 2, dtype=np.int8)
        padded[1:-1] = self._free
        edges = np.flatnonzero(np.diff(padded)).reshape(-1, 2)
        return edges[:, 0], edges[:, 1] - edges[:, 0]

    def check(self) -> None:
        """Assert that every block has one place: free, of a request, of nobody, or in a run."""
        super().check()
        assert int(self._free.sum()) == len(self._order) == self.free
        used = len(self._loose) + sum(map(len, self.owned.values())) + self._in_runs
        assert used + self.free == self.total, (used, self.free, self.total)


class RunBlocks(KvBlocks):
    """Blocks of one replica where branches need adjacent ones, taken at admission with the rest.

    Parameters
    ----------
    rules : Rules
    draws : random.Random
        As `AddressPool` takes it.
    """

    pool: AddressPool

    def __init__(self, rules: Rules, draws: random.Random) -> None:
        super().__init__(rules)
        self.pool = AddressPool(rules.n_blocks, draws)
        self._runs: dict[Request, int] = {}

    def take(self, request: Request, kept: int) -> bool:
        """See `KvBlocks.take`; False also where no stretch of free blocks is long enough."""
        if not self._take_run(request, self.needed(request) - self.in_use(request) + kept):
            return False
        before = self.pool.loose()
        taken = super().take(request, kept)
        assert taken
        request.held += self._rules.kv.run
        self.pool.own(request, before)
        return True

    def swap_in(self, request: Request, kept: int) -> bool:
        """See `KvBlocks.swap_in`."""
        ordinary = request.held - self._rules.kv.run
        if not self._take_run(request, ordinary + kept):
            return False
        before = self.pool.loose()
        self.pool.take(ordinary)
        self.pool.own(request, before)
        return True

    def release(self, request: Request) -> None:
        """See `KvBlocks.release`."""
        self._part(request)
        super().release(request)
        self.pool.parted()

    def swap_out(self, request: Request) -> None:
        """See `KvBlocks.swap_out`; its branches are to have room again, but are not moved."""
        self._part(request)
        super().swap_out(request)
        self.pool.parted()
        request.held += self._rules.kv.run

    def forget(self, request: Request, computed: int) -> None:
        """See `KvBlocks.forget`."""
        self._part(request)
        super().forget(request, computed)
        self.pool.parted()

    def _take_run(self, request: Request, others: int) -> bool:
        """Take a run, unless fewer than ``others`` would be left."""
        run = self._rules.kv.run
        start = self.pool.take_run(run) if others <= self.pool.free - run else None
        if start is not None:
            self._runs[request] = start
        return start is not None

    def _give_run(self, request: Request) -> None:
        self.pool.give_run(self._runs.pop(request), self._rules.kv.run)

    def _part(self, request: Request) -> None:
        self._give_run(request)
        request.held -= self._rules.kv.run
        self.pool.part(request)
