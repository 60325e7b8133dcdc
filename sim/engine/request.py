"""One request inside an engine: what it is, and how far it has come."""

from __future__ import annotations

from typing import NamedTuple

from sim.engine.path import Path, Totals, rest_of
from sim.engine.rules import Rules


class Node(NamedTuple):
    """KV blocks whose tokens every request with the same node has in common."""

    key: int
    blocks: int


class Request:
    """A request and its progress. Equality is identity.

    Attributes
    ----------
    id : int
        Row of the workload.
    path, totals : Path, Totals
        Its decode steps, and sums over all of them; ``next_step`` is the first not yet run.
    attempt : int
        Which attempt of its client this is, from 1.
    sent_s, ready_s : float
        When it was sent, and when the engine can see it [s].
    replica : int
        Where it was sent.
    gone : bool
        Its client has given up.
    nodes, shared : tuple of Node, int
        Leading blocks it shares with others, and how many that are.
    keeps : Node or None
        Its own blocks beyond those, as the next turn of its session looks for them.
    prefill_tokens, computed : int
        Tokens to compute before it decodes, and how many of them are.
    held : int
        KV blocks it uses, shared ones included.
    produced : int
        Tokens emitted, the first one included.
    start_step, finish_step : int
        Decode steps of the batch between which it decodes; ``finish_step`` is 0 when it does not.
    n_steps, accepted, drafted, decoded, preemptions : int
        Counted over its life; ``decoded`` are the tokens its decode steps emitted.
    last_emit_s : float
        When it started decoding, or last emitted before an interruption [s].
    """

    __slots__ = (
        "accepted",
        "attempt",
        "cached_tokens",
        "computed",
        "decoded",
        "drafted",
        "finish_step",
        "gone",
        "held",
        "id",
        "keeps",
        "last_emit_s",
        "n_steps",
        "next_step",
        "nodes",
        "output_tokens",
        "path",
        "preemptions",
        "prefill_tokens",
        "produced",
        "prompt_tokens",
        "ready_s",
        "replica",
        "sent_s",
        "shared",
        "start_step",
        "swapped",
        "totals",
    )

    def __init__(
        self, number: int, prompt_tokens: int, output_tokens: int, path: Path, totals: Totals
    ) -> None:
        self.id = number
        self.prompt_tokens = self.prefill_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.path, self.totals = path, totals
        self.attempt, self.replica, self.gone = 1, 0, False
        self.sent_s = self.ready_s = self.last_emit_s = 0.0
        self.nodes: tuple[Node, ...] = ()
        self.shared = 0
        self.keeps: Node | None = None
        self.computed = self.cached_tokens = 0
        self.held = self.produced = 0
        self.next_step = self.start_step = self.finish_step = 0
        self.n_steps = self.accepted = self.drafted = self.decoded = self.preemptions = 0
        self.swapped = False

    def __lt__(self, other: Request) -> bool:
        """Order two attempts at the same request."""
        return self.sent_s < other.sent_s

    @property
    def context(self) -> int:
        """Prompt and produced tokens."""
        return self.prompt_tokens + self.produced

    def run_steps(self, steps: int) -> None:
        """Count the next ``steps`` steps as run: tokens and blocks."""
        part = self.path.cut(self.next_step, self.next_step + steps)
        self.next_step += steps
        self.n_steps += steps
        emitted = int(part.emitted.sum())
        self.produced += emitted
        self.decoded += emitted
        self._add(Totals.of(part))

    def run_rest(self) -> None:
        """Count all steps left as run."""
        left = self.path.counts.shape[1] - self.next_step
        if self.next_step:
            self.run_steps(left)
            return
        self.next_step = left
        self.n_steps += left
        self.decoded += self.output_tokens - self.produced
        self.produced = self.output_tokens
        self._add(self.totals)

    def _add(self, totals: Totals) -> None:
        accepted, drafted, growth = totals
        self.accepted += accepted
        self.drafted += drafted
        self.held += growth

    def emit_after_prefill(self, rules: Rules) -> bool:
        """The end of a prefill emits one token; True if it is the request's very first.

        After a re-prefill the rest of the path is cut to the tokens still missing.
        """
        first = self.produced == 0
        self.produced += 1
        if not first:
            rest = self.path.cut(self.next_step)
            missing = self.output_tokens - self.produced
            self.path = rest_of(rest, missing, self.context, self.prefill_tokens, rules)
            self.totals = Totals.of(self.path)
            self.next_step = 0
        return first
