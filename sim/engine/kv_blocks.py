"""Which KV blocks requests hold, share and leave behind."""

from __future__ import annotations

from sim.engine.kv_cache import BlockPool
from sim.engine.request import Node, Request
from sim.engine.rules import Rules


class KvBlocks:
    """Blocks of one replica: taken at admission, shared by prefix, freed at the end.

    Attributes
    ----------
    pool : BlockPool
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.pool = BlockPool(rules.n_blocks)
        self._users: dict[Node, int] = {}

    def take(self, request: Request, kept: int) -> bool:
        """Take the blocks of a request's prompt; False if not ``kept`` ones would be left."""
        blocks, pool = self.needed(request), self.pool
        if blocks - self.in_use(request) > pool.free - kept:
            return False
        hits = self._hit_prefix(request) if request.nodes else 0
        if request.preemptions:
            hits += self._hit_own(request, hits)
        pool.take(blocks - hits)
        request.held = blocks
        request.computed = hits * self._rules.block_tokens
        if not request.preemptions:
            request.cached_tokens = request.computed
        return True

    def needed(self, request: Request) -> int:
        """Ordinary blocks it holds from its admission on, those in use by others included."""
        prompt = request.prompt_tokens
        last = prompt + request.output_tokens
        return self._rules.admitted(request.prefill_tokens, prompt, last)

    def in_use(self, request: Request) -> int:
        """Blocks of its prefix that others hold."""
        users = self._users
        return sum(node.blocks for node in request.nodes if node in users)

    def _hit_prefix(self, request: Request) -> int:
        """Join the request's prefix nodes; leading blocks of them that need no computing."""
        hits, whole = 0, True
        for node in request.nodes:
            users = self._users.get(node, 0)
            self._users[node] = users + 1
            if users:
                hits += node.blocks
            elif whole:
                valid = self.pool.lookup(node)
                whole = valid == node.blocks
                if not whole:
                    valid = max(valid - self._rules.drop_matched_block, 0)
                if valid:
                    self.pool.claim(node, valid)
                    hits += valid
        return hits

    def _hit_own(self, request: Request, shared_hits: int) -> int:
        """Blocks of a preempted request's own run that are still cached."""
        if shared_hits < request.shared:
            return 0
        valid = self.pool.lookup(request.id)
        most = (request.prefill_tokens - 1) // self._rules.block_tokens - request.shared
        valid = min(valid, most)
        if valid > 0 and self._rules.drop_matched_block:
            valid -= 1
        if valid > 0:
            self.pool.claim(request.id, valid)
            return valid
        return 0

    def release(self, request: Request) -> None:
        """Free what a request holds; the next turn of its session finds what it looks for."""
        private, keeps = request.held - request.shared, request.keeps
        if keeps is not None:
            self.pool.release(private - keeps.blocks)
            private = keeps.blocks
        self.pool.release(private, keeps)
        if request.nodes:
            self._leave_prefix(request, request.computed // self._rules.block_tokens)

    def _leave_prefix(self, request: Request, computed: int) -> None:
        """Drop the references on its nodes, the last first.

        The last user of a node frees it, uncomputed blocks first.
        """
        before = request.shared
        for node in reversed(request.nodes):
            before -= node.blocks
            self._users[node] -= 1
            if self._users[node]:
                continue
            del self._users[node]
            valid = min(max(computed - before, 0), node.blocks)
            self.pool.release(node.blocks - valid)
            if valid:
                self.pool.release(valid, node)

    def swap_in(self, request: Request, kept: int) -> bool:
        """Take back what a request held; False if not ``kept`` blocks would be left."""
        if request.held > self.pool.free - kept:
            return False
        self.pool.take(request.held)
        return True

    def swap_out(self, request: Request) -> None:
        """Free what a request holds; its content is in host memory, and no longer shared."""
        self.pool.release(request.held - request.shared)
        self._leave_prefix(request, request.shared)
        request.nodes, request.shared, request.keeps = (), 0, None

    def forget(self, request: Request, computed: int) -> None:
        """Free what a request holds, but remember which blocks hold ``computed`` tokens."""
        full = computed // self._rules.block_tokens
        private = request.held - request.shared
        valid = min(max(full - request.shared, 0), private)
        if not self._rules.prefix_cache:
            valid = 0
        self.pool.release(private - valid)
        if valid:
            self.pool.release(valid, request.id)
        self._leave_prefix(request, full)

    def check(self, idle: bool) -> None:
        """Assert that no block is lost; all are free when nothing runs."""
        self.pool.check()
        if idle and not self._users:
            assert self.pool.free == self.pool.total, (self.pool.free, self.pool.total)
