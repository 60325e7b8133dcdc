"""The serving engine as a plain loop, one sequence and one block at a time: slow, meant to be read.

The fast loop of `sim.engine` must give exactly the same times and counts. Nothing is kept as a
running sum here: what a step costs and which blocks are in use is counted anew at every step.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Cost = Callable[[int, int, int, int, int, int, float, int], float]


class Step(NamedTuple):
    """One engine step: what was in its batch, and the pool while it ran."""

    replica: int
    start_s: float
    duration_s: float
    n_decode: int
    prefill_tokens: int
    verify_tokens: int
    emitted: int
    blocks_used: int
    waiting: int


@dataclass
class Reference:
    """Arrays by request (row), steps by start time, and gaps between emissions."""

    replica: np.ndarray
    status: np.ndarray
    arrival_s: np.ndarray
    schedule_s: np.ndarray
    first_token_s: np.ndarray
    finish_s: np.ndarray
    cached_tokens: np.ndarray
    output_tokens: np.ndarray
    n_steps: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    preemptions: np.ndarray
    steps: list[Step]
    itl: list[tuple[float, int]]


@dataclass(eq=False)
class Block:
    """One KV block. `key` says whose tokens it holds, if anybody could look for them."""

    key: tuple[Any, ...] | None = None
    users: int = 0


class Pool:
    """All blocks of a replica. Free ones wait in the order they were freed, oldest first."""

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self.free = OrderedDict((Block(), None) for _ in range(n_blocks))
        self.by_key: dict[tuple[Any, ...], Block] = {}

    def take(self, key: tuple[Any, ...] | None = None) -> Block:
        """Take the block that has been free the longest; its content is gone."""
        block, _ = self.free.popitem(last=False)
        self.forget(block)
        block.users = 1
        if key is not None:
            self.name(block, key)
        return block

    def share(self, block: Block) -> None:
        """Use a block that holds the right content, whether it is in use or only cached."""
        if block.users == 0:
            del self.free[block]
        block.users += 1

    def release(self, block: Block) -> None:
        """Let go of a block; when nobody uses it, it joins the end of the free list."""
        block.users -= 1
        if block.users == 0:
            self.free[block] = None

    def name(self, block: Block, key: tuple[Any, ...]) -> None:
        """Make a block findable. A copy in use keeps the name; a cached copy loses it."""
        old = self.by_key.get(key)
        if old is not None:
            if old.users:
                return
            self.forget(old)
        block.key = key
        self.by_key[key] = block

    def forget(self, block: Block) -> None:
        if block.key is not None:
            del self.by_key[block.key]
            block.key = None

    def leading(self, keys: Iterable[tuple[Any, ...]]) -> list[Block]:
        """Find the blocks of `keys` from the first on, up to the first that is missing."""
        found = []
        for key in keys:
            if key not in self.by_key:
                break
            found.append(self.by_key[key])
        return found


@dataclass(eq=False)
class Sequence:
    """A request, the path of its decode steps, and where it stands."""

    row: int
    ready_s: float
    prompt: int
    output: int
    group: int
    group_blocks: int  # leading blocks it shares with its group (0: in no group)
    emitted: list[int]
    accepted: list[int]
    widths: list[int]
    drafts: list[int]
    stage: str = "waiting"  # waiting | prefill | decode | swapped | arriving (being swapped in)
    step: int = 0  # index into its path: decode steps run so far
    produced: int = 0
    computed: int = 0
    to_compute: int = 0
    swapped_blocks: int = 0
    blocks: list[Block] = field(default_factory=list)  # the group's first
    last_emission_s: float = float("nan")

    @property
    def context(self) -> int:
        return self.prompt + self.produced

    @property
    def width(self) -> int:
        return self.widths[self.step]


class Plan(NamedTuple):
    """The batch of one step."""

    decoders: list[Sequence]
    chunks: list[tuple[Sequence, int]]
    arriving: list[Sequence]


class Replica:
    """One engine: its waiting queue, its batch and its blocks."""

    def __init__(self, index: int, rules: Any, cost: Cost, out: Reference) -> None:
        self.index, self.rules, self.cost, self.out = index, rules, cost, out
        self.pool = Pool(rules.n_blocks)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.late: list[Sequence] = []
        self.assigned: list[Sequence] = []  # not finished yet, wherever they are
        self.known = float("-inf")
        self.swap_s = 0.0  # transfers the next step has to pay for
        self.plan: Plan | None = None  # the batch now running
        self.start_s = self.duration_s = self.end_s = 0.0
        self.blocks_used = self.queue_length = 0

    # -- time

    def next_time(self, now: float) -> float:
        """Next moment this replica has something to do: end of its step, or work to start."""
        if self.plan is not None:
            return self.end_s
        if self.waiting:
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
            if np.isnan(self.out.schedule_s[sequence.row]):
                self.out.schedule_s[sequence.row] = now

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
                self.end_prefill(sequence, gaps)
                emitted += 1
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
        sequence.produced += tokens
        sequence.step += 1
        self.emit(sequence, gaps)
        return tokens

    def end_prefill(self, sequence: Sequence, gaps: dict[float, int]) -> None:
        sequence.produced += 1
        sequence.stage = "decode"
        if sequence.produced == 1:
            self.out.first_token_s[sequence.row] = self.end_s
            sequence.last_emission_s = self.end_s
        else:
            self.emit(sequence, gaps)

    def emit(self, sequence: Sequence, gaps: dict[float, int]) -> None:
        gap = self.end_s - sequence.last_emission_s
        gaps[gap] = gaps.get(gap, 0) + 1
        sequence.last_emission_s = self.end_s

    def retire(self) -> list[Sequence]:
        """Take finished sequences out of the batch; async engines free their blocks later."""
        done = [s for s in self.running if s.produced == s.output]
        self.running = [s for s in self.running if s.produced < s.output]
        for sequence in done:
            self.out.finish_s[sequence.row] = self.end_s
            self.out.status[sequence.row] = "finished"
            self.out.output_tokens[sequence.row] = sequence.produced
            self.assigned.remove(sequence)
        self.late = done
        if not self.rules.async_scheduling:
            self.release_late()
        return done

    # -- planning

    def choose(self, now: float, known: float) -> Plan:
        """Plan a step from what is known, then let go of what finished in the step before."""
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
        for i in range(len(hits), total):
            in_group = i < sequence.group_blocks
            key = ("group", sequence.group, i) if in_group else None
            sequence.blocks.append(self.pool.take(key))
        sequence.computed = len(hits) * self.rules.block_tokens
        sequence.stage = "prefill"
        if np.isnan(self.out.schedule_s[sequence.row]):
            self.out.cached_tokens[sequence.row] = sequence.computed
        return True

    def find_cached(self, sequence: Sequence) -> list[Block]:
        """Find leading blocks somebody computed: the group's, and on top its own of before."""
        if not self.rules.prefix_cache:
            return []
        drop = self.rules.drop_matched_block
        size = sequence.group_blocks
        group = self.pool.leading(("group", sequence.group, i) for i in range(size))
        if len(group) < size:
            return group[:-1] if drop else group
        limit = (sequence.to_compute - 1) // self.rules.block_tokens - size
        own = self.pool.leading(("own", sequence.row, i) for i in range(limit))
        return group + (own[:-1] if drop else own)

    def forget_own(self, sequence: Sequence) -> None:
        """Blocks left from before its preemption are never looked for again."""
        for key in [k for k in self.pool.by_key if k[:2] == ("own", sequence.row)]:
            self.pool.forget(self.pool.by_key[key])

    def release_late(self) -> None:
        for sequence in self.late:
            for block in reversed(sequence.blocks):
                self.pool.release(block)
            sequence.blocks = []
        self.late = []

    def preempt(self, sequence: Sequence) -> None:
        """Take a sequence's blocks away and put it at the front of the queue."""
        self.out.preemptions[sequence.row] += 1
        self.waiting.appendleft(sequence)
        if self.rules.preemption == "swap" and sequence.stage != "prefill":
            self.swap_out(sequence)
        else:
            self.drop_blocks(sequence)
            sequence.stage = "waiting"
        sequence.blocks = []

    def drop_blocks(self, sequence: Sequence) -> None:
        """Free blocks from the last to the first; full computed ones stay findable."""
        prefilling = sequence.stage == "prefill"
        tokens = sequence.computed if prefilling else sequence.context - 1
        valid = tokens // self.rules.block_tokens
        size = sequence.group_blocks
        for i, block in reversed(list(enumerate(sequence.blocks))):
            self.pool.release(block)
            if i >= valid and block.users == 0:
                self.pool.forget(block)
            elif i >= size and self.rules.prefix_cache:
                self.pool.name(block, ("own", sequence.row, i - size))

    def swap_out(self, sequence: Sequence) -> None:
        sequence.swapped_blocks = len(sequence.blocks)
        self.swap_s += sequence.swapped_blocks * self.rules.swap_s_per_block
        for block in reversed(sequence.blocks):
            self.pool.release(block)
        sequence.group_blocks = 0  # its copy comes back as blocks of its own
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


class Source:
    """Sends requests: at given times, or each user's next one after the last was answered."""

    def __init__(self, requests: Any, rows: int) -> None:
        self.users, self.rows = requests.users, rows
        self.think_s = float(np.ravel(requests.think_s)[0])
        first = rows if self.users is None else min(self.users, rows)
        # Ties: first requests by row, then followers by the row that was answered.
        self.due = [(float(requests.arrival_s[row]), 0, row) for row in range(first)]
        self.following = 0
        heapq.heapify(self.due)

    def answered(self, row: int, now: float) -> None:
        if self.users is not None:
            heapq.heappush(self.due, (now + self.think_s, 1, row))

    def next_time(self) -> float:
        return self.due[0][0] if self.due else float("inf")

    def pop(self) -> tuple[float, int] | None:
        """Return time and row of the next request, None if the rows have run out.

        Rows are taken in the order in which requests are sent.
        """
        time, _, _ = heapq.heappop(self.due)
        if self.following == self.rows:
            return None
        self.following += 1
        return time, self.following - 1


def empty_reference(rows: int) -> Reference:
    def nan() -> np.ndarray:
        return np.full(rows, np.nan)

    def zeros() -> np.ndarray:
        return np.zeros(rows, dtype=np.int64)

    return Reference(
        replica=np.full(rows, -1, dtype=np.int64),
        status=np.full(rows, "unfinished", dtype="<U10"),
        arrival_s=nan(),
        schedule_s=nan(),
        first_token_s=nan(),
        finish_s=nan(),
        cached_tokens=zeros(),
        output_tokens=zeros(),
        n_steps=zeros(),
        drafted=zeros(),
        accepted=zeros(),
        preemptions=zeros(),
        steps=[],
        itl=[],
    )


def is_rejected(prompt: int, output: int, rules: Any) -> bool:
    def blocks(tokens: int) -> int:
        return -(-tokens // rules.block_tokens)

    most = max(blocks(prompt + output - 1 + rules.slots), blocks(prompt))
    return prompt + output > rules.max_model_len or most > rules.n_blocks


def make_sequence(
    row: int, arrival_s: float, requests: Any, paths: Any, rules: Any, drafted_per_step: int
) -> Sequence:
    prompt, output = int(requests.prompt_tokens[row]), int(requests.output_tokens[row])
    path = slice(int(paths.offsets[row]), int(paths.offsets[row + 1]))
    emitted = [int(x) for x in paths.emitted[path]]
    assert sum(emitted) == output - 1
    group_blocks = 0
    if rules.prefix_cache:
        shared = min(int(requests.prefix_tokens[row]), prompt - 1)
        group_blocks = shared // rules.block_tokens
        if rules.drop_matched_block:
            group_blocks = max(group_blocks - 1, 0)

    def per_step(values: Any, constant: int) -> list[int]:
        return [constant] * len(emitted) if values is None else [int(x) for x in values[path]]

    return Sequence(
        row=row,
        ready_s=arrival_s + rules.request_s,
        prompt=prompt,
        output=output,
        group=int(requests.group[row]),
        group_blocks=group_blocks,
        emitted=emitted,
        accepted=per_step(paths.accepted, 0),
        widths=per_step(paths.width, rules.width),
        drafts=per_step(paths.drafted, drafted_per_step),
    )


def simulate(
    requests: Any,
    paths: Any,
    rules: Any,
    cost: Cost,
    replicas: int = 1,
    router: str = "round_robin",
    drafted_per_step: int = 0,
) -> Reference:
    """Serve all requests and return what happened to each, and in each step.

    Events at one instant come in this order: steps end, requests arrive, idle replicas plan.
    `drafted_per_step` counts where `paths.drafted` is None.
    """
    rows = len(requests.prompt_tokens)
    out = empty_reference(rows)
    engines = [Replica(index, rules, cost, out) for index in range(replicas)]
    source = Source(requests, rows)
    arrivals = 0
    now = float("-inf")
    while True:
        now = min(source.next_time(), *(engine.next_time(now) for engine in engines))
        if now == float("inf"):
            break
        for engine in engines:
            if engine.plan is not None and engine.end_s == now:
                for sequence in engine.end():
                    source.answered(sequence.row, now)
        while source.next_time() <= now:
            sent = source.pop()
            if sent is None:
                continue
            arrival_s, row = sent
            engine = engines[arrivals % replicas]
            if router == "least_outstanding":
                engine = min(engines, key=lambda e: (len(e.assigned), e.index))
            arrivals += 1
            out.arrival_s[row], out.replica[row] = arrival_s, engine.index
            prompt, output = int(requests.prompt_tokens[row]), int(requests.output_tokens[row])
            if is_rejected(prompt, output, rules):
                out.status[row] = "rejected"
                source.answered(row, now)
                continue
            sequence = make_sequence(row, arrival_s, requests, paths, rules, drafted_per_step)
            engine.assigned.append(sequence)
            engine.waiting.append(sequence)
        for engine in engines:
            if engine.plan is None:
                engine.start(now)
    assert not any(engine.assigned for engine in engines)
    assert all(len(engine.pool.free) == rules.n_blocks for engine in engines)
    out.steps.sort(key=lambda step: (step.start_s, step.replica))
    return out
