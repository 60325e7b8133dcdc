"""Who runs next: growth and preemption first, then prefills, within the engine's limits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from sim.engine.batch import Batch
from sim.engine.kv_blocks import KvBlocks
from sim.engine.request import Request
from sim.engine.rules import Rules


@dataclass(slots=True)
class Prefill:
    """Prefill chunks of one step."""

    tokens: int = 0
    ctx: int = 0
    pairs: float = 0.0
    started: list[Request] = field(default_factory=list)
    finishing: list[Request] = field(default_factory=list)


class Scheduler:
    """Continuous batching: running requests in admission order, then the waiting queue.

    Attributes
    ----------
    waiting : deque of Request
        Queue; preempted requests are at its front.
    running : dict
        Admitted requests in admission order (decoding or prefilling).
    partial : Request or None
        The one request whose prompt is computed in part; always the last of ``running``.
    late : list of Request
        Finished, but their blocks and places are not usable in this planning (asynchronous).
    swap_s : float
        Time the current step spends moving blocks to or from host memory [s].
    preempted : int
        Victims of the current planning.
    interrupted, returning : list of Request
        Its victims that were decoding; requests whose blocks it brings back from host memory.
    """

    def __init__(self, rules: Rules, batch: Batch, blocks: KvBlocks | None = None) -> None:
        self.rules, self.batch = rules, batch
        self.blocks = KvBlocks(rules) if blocks is None else blocks
        self.pool = self.blocks.pool
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, None] = {}
        self.partial: Request | None = None
        self.late: list[Request] = []
        self.swap_s = 0.0
        self.preempted = 0
        self.interrupted: list[Request] = []
        self.returning: list[Request] = []
        self._blocked = False

    def schedule(self, known_s: float) -> tuple[bool, Prefill | None]:
        """Plan the next step: whether sequences decode in it, and its prefill chunks.

        Parameters
        ----------
        known_s : float
            Requests ready after this instant are not yet seen [s].
        """
        if self.preempted:
            self.preempted, self.interrupted = 0, []
        if not self.rules.exclusive_prefill:
            growth = self.batch.growth
            if growth:
                self._make_room(growth)
            if self.partial is None and not self.waiting:
                return True, None
            return True, self._prefills(known_s)
        prefill = self._prefills(known_s)
        if prefill is None:
            self._make_room(self.batch.growth)
        return prefill is None, prefill

    def _make_room(self, growth: int) -> None:
        """Give the next decode step its blocks, preempting from the tail while they lack.

        Where copies of a block end, or a cache is cut, a step gives blocks back instead.
        """
        pool = self.pool
        while growth > pool.free:
            self._preempt(next(reversed(self.running)))
            growth = self.batch.growth
        if growth < 0:
            pool.release(-growth)
            self._blocked = False
        else:
            pool.take(growth)

    def _prefills(self, known_s: float) -> Prefill | None:
        """Chunks for the next step, admitting requests that are ready at ``known_s``."""
        if self.partial is None and not self._may_admit(known_s):
            return None
        prefill = Prefill()
        decoding = 0 if self.rules.exclusive_prefill else self.batch.query_tokens
        budget = self.rules.max_num_batched_tokens - decoding
        if self.partial is not None and budget > 0:
            budget -= self._chunk(self.partial, budget, prefill)
        while budget > 0 and self.partial is None and self._may_admit(known_s):
            request = self.waiting[0]
            if not self._admit(request):
                self._blocked = True
                break
            self.waiting.popleft()
            self.running[request] = None
            if not request.swapped:
                prefill.started.append(request)
                budget -= self._chunk(request, budget, prefill)
        return prefill if prefill.tokens else None

    def _may_admit(self, known_s: float) -> bool:
        """Whether the head of the queue is ready and has a place."""
        if not self.waiting or self._blocked or self.preempted:
            return False
        if len(self.running) + len(self.late) >= self.rules.max_num_seqs:
            return False
        return self.waiting[0].ready_s <= known_s

    def _chunk(self, request: Request, budget: int, prefill: Prefill) -> int:
        done = request.computed
        chunk = min(request.prefill_tokens - done, budget)
        request.computed = done + chunk
        prefill.tokens += chunk
        prefill.ctx += request.computed
        prefill.pairs += chunk * done + chunk * chunk / 2
        if request.computed == request.prefill_tokens:
            prefill.finishing.append(request)
            self.partial = None
        else:
            self.partial = request
        return chunk

    def _admit(self, request: Request) -> bool:
        """Give a request its blocks; False if they are not there."""
        if request.swapped:
            return self._swap_in(request)
        return self.blocks.take(request, self._kept())

    def _kept(self) -> int:
        return self.rules.watermark_blocks if self.running or self.late else 0

    def _swap_in(self, request: Request) -> bool:
        if not self.blocks.swap_in(request, self._kept()):
            return False
        self.swap_s += request.held * self.rules.swap_s_per_block
        self.returning.append(request)
        return True

    def returned(self) -> list[Request]:
        """Requests whose blocks came back in this step; they decode from the next one on."""
        back, self.returning = self.returning, []
        for request in back:
            request.swapped = False
        return back

    def finish(self, request: Request) -> None:
        """A request has emitted its last token."""
        if request.gone:
            request.keeps = None
        del self.running[request]
        if self.rules.async_scheduling:
            self.late.append(request)
        else:
            self._release(request)

    def give_up(self, request: Request) -> None:
        """Take a request out of the batch between two steps; nobody looks for its blocks."""
        if request is self.partial:
            self.partial = None
        if request.finish_step:
            self.batch.leave(request)
        self.finish(request)

    def withdraw(self, request: Request) -> None:
        """Take a request out of the queue."""
        self.waiting.remove(request)
        self._blocked = False

    def release_late(self) -> None:
        """Free what finished one step ago; asynchronous planning sees it one step later."""
        for request in self.late:
            self._release(request)
        self.late.clear()

    def _release(self, request: Request) -> None:
        self._blocked = False
        self.blocks.release(request)

    def _preempt(self, request: Request) -> None:
        """Back to the front of the queue, blocks freed."""
        self.preempted += 1
        self._blocked = False
        del self.running[request]
        request.preemptions += 1
        decoding = request.finish_step > 0
        if request is self.partial:
            self.partial = None
        if decoding:
            self.batch.leave(request)
            self.interrupted.append(request)
        if request.swapped:
            self.returning.remove(request)
            self._swap_out(request)
        elif decoding and self.rules.preemption == "swap":
            self._swap_out(request)
        else:
            self._forget(request, decoding)
        self.waiting.appendleft(request)

    def _swap_out(self, request: Request) -> None:
        self.swap_s += request.held * self.rules.swap_s_per_block
        request.swapped = True
        self.blocks.swap_out(request)

    def _forget(self, request: Request, decoding: bool) -> None:
        """Free the blocks and lay out the re-prefill."""
        self.blocks.forget(request, request.context - 1 if decoding else request.computed)
        if decoding:
            request.prefill_tokens = request.context
        request.computed = 0

    def check(self) -> None:
        """Assert that no block is lost: free, held and late ones make the total."""
        self.blocks.check(idle=not self.running and not self.late)
        self.batch.check()
