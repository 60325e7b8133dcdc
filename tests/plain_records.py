"""What the plain loop keeps of a request that was sent, of a step, and of a whole run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.plain_blocks import Block, Name, Node, chain

NAN = float("nan")


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
class Result:
    """Arrays by request (row), steps by start time, and gaps between emissions.

    Times, `replica` (-1: none) and `cached_tokens` are those of the attempt that finished; counts
    add up over all attempts. `reason` says why a row was not served.
    """

    replica: np.ndarray
    status: np.ndarray
    reason: np.ndarray
    attempts: np.ndarray
    arrival_s: np.ndarray
    schedule_s: np.ndarray
    first_token_s: np.ndarray
    finish_s: np.ndarray
    cached_tokens: np.ndarray
    output_tokens: np.ndarray
    discarded_tokens: np.ndarray
    n_steps: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    preemptions: np.ndarray
    steps: list[Step] = field(default_factory=list)
    itl: list[tuple[float, int]] = field(default_factory=list)

    @classmethod
    def empty(cls, rows: int) -> Result:
        def times() -> np.ndarray:
            return np.full(rows, np.nan)

        def counts() -> np.ndarray:
            return np.zeros(rows, dtype=np.int64)

        return cls(
            replica=np.full(rows, -1, dtype=np.int64),
            status=np.full(rows, "unfinished", dtype="<U10"),
            reason=np.full(rows, "", dtype="<U30"),
            attempts=counts(),
            arrival_s=times(),
            schedule_s=times(),
            first_token_s=times(),
            finish_s=times(),
            cached_tokens=counts(),
            output_tokens=counts(),
            discarded_tokens=counts(),
            n_steps=counts(),
            drafted=counts(),
            accepted=counts(),
            preemptions=counts(),
        )

    def reasons(self) -> dict[str, int]:
        """How many rows were not served, by reason."""
        words, counts = np.unique(self.reason[self.reason != ""], return_counts=True)
        return dict(zip(words.tolist(), counts.tolist(), strict=True))


@dataclass(eq=False)
class Sequence:
    """A request sent once, the path of its decode steps, and where it stands."""

    row: int
    attempt: int  # times its request had been sent by then
    ready_s: float
    prompt: int
    output: int
    nodes: list[Node]  # the leading blocks it shares
    keep: Node | None  # the blocks after those that can be found once it has finished
    emitted: list[int]
    accepted: list[int]
    widths: list[int]
    drafts: list[int]
    stage: str = "waiting"  # waiting | prefill | decode | swapped | arriving (being swapped in)
    gone: bool = False  # its client gave up; it leaves with the step now running
    step: int = 0  # index into its path: decode steps run so far
    produced: int = 0
    computed: int = 0
    to_compute: int = 0
    swapped_blocks: int = 0
    blocks: list[Block] = field(default_factory=list)  # those of its nodes first
    own_from: int = 0  # blocks of its nodes, even after it lost them
    cached_tokens: int = 0
    schedule_s: float = NAN
    first_token_s: float = NAN
    last_emission_s: float = NAN

    @property
    def context(self) -> int:
        return self.prompt + self.produced

    @property
    def width(self) -> int:
        return self.widths[self.step]

    @property
    def verified(self) -> int:
        """Tokens whose KV is there; that of the last one emitted is not."""
        return self.computed if self.stage == "prefill" else self.context - 1

    def node_names(self) -> list[Name]:
        return [name for node in self.nodes for name in node.names()]

    def own_name(self, i: int) -> Name:
        """Name of the i-th block after its nodes, which only this sequence looks for."""
        return ("own", self.row, self.attempt, i)


def make_sequence(
    row: int, attempt: int, ready_s: float, requests: Any, paths: Any, rules: Any, depth: int
) -> Sequence:
    """Make a sequence of a request; `depth` is drafted a step where `paths.drafted` is None."""
    output = int(requests.output_tokens[row])
    path = slice(int(paths.offsets[row]), int(paths.offsets[row + 1]))
    emitted = [int(x) for x in paths.emitted[path]]
    assert sum(emitted) == output - 1

    def per_step(values: Any, constant: int) -> list[int]:
        return [constant] * len(emitted) if values is None else [int(x) for x in values[path]]

    nodes, keep = chain(requests, row, rules)
    return Sequence(
        row=row,
        attempt=attempt,
        ready_s=ready_s,
        prompt=int(requests.prompt_tokens[row]),
        output=output,
        nodes=nodes,
        keep=keep,
        own_from=sum(node.blocks for node in nodes),
        emitted=emitted,
        accepted=per_step(paths.accepted, 0),
        widths=per_step(paths.width, rules.width),
        drafts=per_step(paths.drafted, depth),
    )
