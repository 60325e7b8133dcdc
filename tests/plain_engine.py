"""One replica of the plain loop: its waiting queue, its batch, its blocks, one sequence at a time.

Nothing is kept as a running sum: what a step costs and which blocks are in use is counted anew at
every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.plain_blocks import Block, Name, Pool
from tests.plain_records import Result, Sequence, Step

Cost = Callable[[int, int, int, int, int, int, float, int], float]


class Plan(NamedTuple):
    """The batch of one step."""

    decoders: list[Sequence]
    chunks: list[tuple[Sequence, int]]
    arriving: list[Sequence]


class Replica:
    """One engine, from the queue to the last token."""

    def __init__(self, index: int, rules: Any, cost: Cost, out: Result) -> None:
        self.index, self.rules, self.cost, self.out = index, rules, cost, out
        self.up = True
        self.start_s = self.duration_s = self.end_s = 0.0
        self.blocks_used = self.queue_length = 0
        self.begin_empty()

    def begin_empty(self) -> None:
        self.pool = Pool(self.rules.n_blocks)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.late: list[Sequence] = []  # left with the last step, blocks and place not yet free
        self.alive: list[Sequence] = []  # a client still waits for them, wherever they are
        self.known = float("-inf")
        self.swap_s = 0.0  # transfers the next step has to pay for
        self.plan: Plan | None = None  # the batch now running

    # -- who comes and goes

    def join(self, sequence: Sequence) -> None:
        self.alive.append(sequence)
        self.waiting.append(sequence)

    def give_up(self, sequence: Sequence) -> None:
        """Its client is gone: out of the queue at once, out of the batch when the step ends."""
        self.alive.remove(sequence)
        self.out.discarded_tokens[sequence.row] += sequence.produced
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return
        sequence.gone = True
        self.given_up.append(sequence)
        if self.plan is None:
            self.retire()

    def fail(self) -> list[Sequence]:
        """Go down with all blocks; return whom a client still waits for, in order.

        The step now running has never been.
        """
        lost = [s for s in [*self.running, *self.waiting] if not s.gone]
        assert set(lost) == set(self.alive)
        for sequence in lost:
            self.out.discarded_tokens[sequence.row] += sequence.produced
        self.begin_empty()
        self.up = False
        return lost

    # -- time

    def wakes_s(self, now: float) -> float:
        """Next moment an idle replica has work to start."""
        if self.plan is None and self.waiting:
            return max(now, self.waiting[0].ready_s)
        return float("inf")

    def start(self, now: float) -> None:
        """Choose a batch and run it. With nothing to run, stay idle until something is ready."""
        plan = self.choose(now, self.known)
        while not (plan.decoders or plan.chunks or plan.arriving):
            # An idle engine looks around now, not when its last step began.
            self.known = now
            if not self.waiting or self.waiting[0].ready_s > now:
                return
            plan = self.choose(now, self.known)
        decoders, chunks, _ = plan
        seconds = self.cost(
            len(decoders),
            sum(s.context for s in decoders),
            sum(s.width for s in decoders),
            sum(s.width * s.context for s in decoders),
            sum(chunk for _, chunk in chunks),
            sum(s.computed + chunk for s, chunk in chunks),
            sum(chunk * s.computed + chunk**2 / 2 for s, chunk in chunks),
            sum(s.computed + chunk == s.to_compute for s, chunk in chunks),
        )
        self.duration_s = seconds + self.swap_s
        self.plan, self.start_s, self.end_s = plan, now, now + self.duration_s
        self.swap_s = 0.0
        self.queue_length = len(self.waiting)
        for sequence, _ in chunks:
            if np.isnan(sequence.schedule_s):
                sequence.schedule_s = now

    def end(self) -> list[Sequence]:
        """End the running step and return the sequences that finished, in batch order."""
        assert self.plan is not None
        decoders, chunks, arriving = self.plan
        gaps: dict[float, int] = {}
        emitted = 0
        verify_tokens = sum(s.width for s in decoders)
        for sequence in decoders:
            emitted += self.decode(sequence, gaps)
        for sequence, chunk in chunks:
            sequence.computed += chunk
            if sequence.computed == sequence.to_compute:
                emitted += self.end_prefill(sequence, gaps)
        for sequence in arriving:
            sequence.stage = "decode"
        self.out.itl.extend(gaps.items())
        self.out.steps.append(
            Step(
                self.index,
                self.start_s,
                self.duration_s,
                len(decoders),
                sum(chunk for _, chunk in chunks),
                verify_tokens,
                emitted,
                self.blocks_used,
                self.queue_length,
            )
        )
        self.known = self.start_s if self.rules.async_scheduling else self.end_s
        self.plan = None
        return self.retire()

    def decode(self, sequence: Sequence, gaps: dict[float, int]) -> int:
        """Run one decode step of a sequence: its path says what is accepted and emitted."""
        j, row, out = sequence.step, sequence.row, self.out
        # A resume emits a token outside the path, so the last step may have less left to emit.
        tokens = min(sequence.emitted[j], sequence.output - sequence.produced)
        out.n_steps[row] += 1
        out.drafted[row] += sequence.drafts[j]
        out.accepted[row] += sequence.accepted[j]
        sequence.step += 1
        self.emit(sequence, tokens, gaps)
        return tokens

    def end_prefill(self, sequence: Sequence, gaps: dict[float, int]) -> int:
        sequence.stage = "decode"
        self.emit(sequence, 1, gaps)
        return 1

    def emit(self, sequence: Sequence, tokens: int, gaps: dict[float, int]) -> None:
        """Emit tokens of a step that ended; if nobody is there to read them, they still count."""
        if sequence.produced == 0:
            sequence.first_token_s = self.end_s
        else:
            gap = self.end_s - sequence.last_emission_s
            gaps[gap] = gaps.get(gap, 0) + 1
        sequence.produced += tokens
        sequence.last_emission_s = self.end_s
        if sequence.gone:
            self.out.discarded_tokens[sequence.row] += tokens

    def retire(self) -> list[Sequence]:
        """Take who finished or was given up out of the batch; async engines free blocks later."""
        leaving = [s for s in self.running if s.gone or s.produced == s.output]
        leaving.sort(key=self.order_of_leaving)
        self.running = [s for s in self.running if s not in leaving]
        self.late += leaving
        if not self.rules.async_scheduling:
            self.release_late()
        finished = [s for s in leaving if not s.gone]
        for sequence in finished:
            self.finish(sequence)
        return finished

    def order_of_leaving(self, sequence: Sequence) -> tuple[int, int]:
        """Decoders that finished, by row; prefills that were all; then those given up, in turn."""
        if sequence.produced < sequence.output:
            return 2, self.given_up.index(sequence)
        return (1, 0) if sequence.to_compute == sequence.context - 1 else (0, sequence.row)

    def finish(self, sequence: Sequence) -> None:
        row, out = sequence.row, self.out
        out.status[row] = "finished"
        out.replica[row] = self.index
        out.schedule_s[row] = sequence.schedule_s
        out.first_token_s[row] = sequence.first_token_s
        out.finish_s[row] = self.end_s
        out.cached_tokens[row] = sequence.cached_tokens
        out.output_tokens[row] = sequence.produced

    # -- planning

    def choose(self, now: float, known: float) -> Plan:
        """Plan a step from what is known, then let go of what left with the step before."""
        if self.rules.exclusive_prefill:
            plan = self.choose_exclusive(known)
        else:
            evicted = self.grow()
            decoders = self.decoders()
            budget = self.rules.max_num_batched_tokens - sum(s.width for s in decoders)
            chunks, arriving = self.prefill(budget, known, admit=not evicted)
            plan = Plan(decoders, chunks, arriving)
        self.check_blocks()
        self.blocks_used = self.pool.n_blocks - len(self.pool.free)
        self.release_late()
        return plan

    def choose_exclusive(self, known: float) -> Plan:
        """Prefill if anything can be; only if nothing can, decode."""
        chunks, arriving = self.prefill(self.rules.max_num_batched_tokens, known, admit=True)
        if chunks:
            return Plan([], chunks, arriving)
        self.grow()
        return Plan(self.decoders(), [], [s for s in arriving if s in self.running])

    def decoders(self) -> list[Sequence]:
        return [s for s in self.running if s.stage == "decode"]

    def growth(self, sequence: Sequence) -> int:
        """Blocks this decode step needs beyond those the sequence holds."""
        tokens = sequence.context - 1 + self.rules.slots
        return max(0, self.blocks_for(tokens) - len(sequence.blocks))

    def grow(self) -> bool:
        """Give every decoder its blocks; while they do not suffice, preempt the last sequence."""
        evicted = False
        while sum(self.growth(s) for s in self.decoders()) > len(self.pool.free):
            self.preempt(self.running.pop())
            evicted = True
        for sequence in self.decoders():
            sequence.blocks += [self.pool.take() for _ in range(self.growth(sequence))]
        return evicted

    def prefill(
        self, budget: int, known: float, admit: bool
    ) -> tuple[list[tuple[Sequence, int]], list[Sequence]]:
        """Plan chunks: the unfinished prefill first, then waiting sequences in order."""
        chunks: list[tuple[Sequence, int]] = []
        arriving: list[Sequence] = []
        unfinished = [s for s in self.running if s.stage == "prefill"]
        assert len(unfinished) <= 1 and unfinished == self.running[-1:] * len(unfinished)
        for sequence in unfinished:
            budget -= self.add_chunk(sequence, budget, chunks)
        while admit and budget > 0 and self.may_admit(known) and not self.is_partial(chunks):
            sequence = self.waiting[0]
            if not self.place(sequence):
                break
            self.running.append(self.waiting.popleft())
            if sequence.stage == "prefill":
                budget -= self.add_chunk(sequence, budget, chunks)
            else:
                arriving.append(sequence)
        return chunks, arriving

    def may_admit(self, known: float) -> bool:
        taken = len(self.running) + len(self.late)
        room = taken < self.rules.max_num_seqs
        return room and bool(self.waiting) and self.waiting[0].ready_s <= known

    def add_chunk(self, sequence: Sequence, budget: int, chunks: list[tuple[Sequence, int]]) -> int:
        chunk = min(sequence.to_compute - sequence.computed, budget)
        assert chunk > 0
        chunks.append((sequence, chunk))
        return chunk

    def is_partial(self, chunks: list[tuple[Sequence, int]]) -> bool:
        if not chunks:
            return False
        sequence, chunk = chunks[-1]
        return sequence.computed + chunk < sequence.to_compute

    # -- blocks

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.rules.block_tokens)

    def spare(self) -> int:
        """Blocks an admission may take."""
        watermark = self.rules.watermark_blocks if self.running or self.late else 0
        return len(self.pool.free) - watermark

    def place(self, sequence: Sequence) -> bool:
        """Give a waiting sequence its blocks, if there are enough."""
        if sequence.stage == "swapped":
            return self.swap_in(sequence)
        sequence.to_compute = sequence.prompt + sequence.produced
        hits = self.find_cached(sequence)
        total = self.blocks_for(sequence.to_compute)
        if self.rules.preemption == "never":
            total = self.blocks_for(sequence.prompt + sequence.output - 1 + self.rules.slots)
        if total - sum(block.users > 0 for block in hits) > self.spare():
            return False
        for block in hits:
            self.pool.share(block)
        self.forget_own(sequence)
        sequence.blocks = list(hits)
        # From now on its nodes count as present, computed or not.
        names = dict(enumerate(sequence.node_names()))
        for i in range(len(hits), total):
            sequence.blocks.append(self.pool.take(names.get(i)))
        sequence.computed = len(hits) * self.rules.block_tokens
        sequence.stage = "prefill"
        if np.isnan(sequence.schedule_s):
            sequence.cached_tokens = sequence.computed
        return True

    def find_cached(self, sequence: Sequence) -> list[Block]:
        """Find leading blocks somebody computed: its nodes', and on top its own of before."""
        if not self.rules.prefix_cache:
            return []
        drop = self.rules.drop_matched_block
        found: list[Block] = []
        for node in sequence.nodes:
            there = self.pool.leading(node.names())
            if len(there) < node.blocks:
                assert not any(block.users for block in there)
                return found + (there[:-1] if drop else there)
            found += there
        limit = (sequence.to_compute - 1) // self.rules.block_tokens - len(found)
        own = self.pool.leading(sequence.own_name(i) for i in range(limit))
        return found + (own[:-1] if drop else own)

    def forget_own(self, sequence: Sequence) -> None:
        """Blocks left from before its preemption are never looked for again."""
        mine = sequence.own_name(0)[:-1]
        for name in [name for name in self.pool.by_name if name[:-1] == mine]:
            self.pool.forget(self.pool.by_name[name])

    def release_late(self) -> None:
        for sequence in self.late:
            names = [] if sequence.gone or sequence.keep is None else sequence.keep.names()
            self.let_go(sequence, dict(enumerate(names, sequence.own_from)))
        self.late = []
        self.given_up: list[Sequence] = []

    def let_go(self, sequence: Sequence, names: dict[int, Name]) -> None:
        """Free blocks from the last to the first, full ones under `names` (by place) if any.

        What it did not compute of its nodes is no content, unless others use it.
        """
        full = sequence.verified // self.rules.block_tokens
        for i, block in reversed(list(enumerate(sequence.blocks))):
            self.pool.release(block)
            if i >= full and block.users == 0:
                self.pool.forget(block)
            elif i in names:
                self.pool.name(block, names[i])
        sequence.blocks = []

    def preempt(self, sequence: Sequence) -> None:
        """Take a sequence's blocks away and put it at the front of the queue."""
        self.out.preemptions[sequence.row] += 1
        self.waiting.appendleft(sequence)
        if self.rules.preemption == "swap" and sequence.stage != "prefill":
            self.swap_out(sequence)
            return
        size = len(sequence.node_names())
        own = range(size, len(sequence.blocks)) if self.rules.prefix_cache else ()
        self.let_go(sequence, {i: sequence.own_name(i - size) for i in own})
        sequence.stage = "waiting"

    def swap_out(self, sequence: Sequence) -> None:
        sequence.swapped_blocks = len(sequence.blocks)
        self.swap_s += sequence.swapped_blocks * self.rules.swap_s_per_block
        for block in reversed(sequence.blocks):
            self.pool.release(block)
        sequence.blocks = []
        # Its copy comes back as blocks of its own, which nobody can look for.
        sequence.nodes, sequence.keep = [], None
        sequence.stage = "swapped"

    def swap_in(self, sequence: Sequence) -> bool:
        if sequence.swapped_blocks > self.spare():
            return False
        sequence.blocks = [self.pool.take() for _ in range(sequence.swapped_blocks)]
        self.swap_s += sequence.swapped_blocks * self.rules.swap_s_per_block
        sequence.stage = "arriving"
        return True

    def check_blocks(self) -> None:
        """Every block is free or in use by exactly as many sequences as it counts."""
        users: dict[Block, int] = {}
        for sequence in [*self.running, *self.late]:
            for block in sequence.blocks:
                users[block] = users.get(block, 0) + 1
        assert all(block.users == count for block, count in users.items())
        assert not any(block in users or block.users for block in self.pool.free)
        assert len(users) + len(self.pool.free) == self.pool.n_blocks
