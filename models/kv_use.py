"""KV blocks of one sequence in every state: while its prompt is computed, and before each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.engine import Engine
from models.kv_layout import KvLayout, TreeKv
from models.kv_memory import kv_slots
from models.kv_policy import NO_FETCH, AnyPolicy, Fetch
from models.strategies import Strategy

Counts = NDArray[np.int64]
_CONTEXTS = np.arange(1024, 2048)


@dataclass(frozen=True)
class KvUse:
    """What a sequence holds, reads and fetches.

    ``prompt`` below is what its latest prefill computed: after a preemption that computes again,
    all tokens there were.

    Attributes
    ----------
    layout : KvLayout
    policy : AnyPolicy or None
        None keeps everything on the GPU.
    fetch : Fetch
        Time of what is fetched.
    """

    layout: KvLayout
    policy: AnyPolicy | None = None
    fetch: Fetch = NO_FETCH

    @property
    def plain(self) -> bool:
        """Whether a step reads the whole context from the GPU, so that sums of contexts tell all.

        Blocks are laid out ahead for every layout, so none of them needs more.
        """
        return self.policy is None

    @property
    def inline(self) -> bool:
        """Whether blocks follow from context and slots alone."""
        return self.policy is None and self.layout.tree_kv == "inline"

    @property
    def run(self) -> int:
        """Adjacent blocks among those held, for branches; 0 where any will do."""
        return self.layout.run

    def prefilled(self, prompt: Counts) -> Counts:
        """Blocks held while a prompt of so many tokens is computed, all of it whatever is kept."""
        return -(-prompt // self.layout.block_tokens) + self.run

    def blocks(self, prompt: Counts, context: Counts, slots: Counts | None = None) -> Counts:
        """Blocks held by a decoding sequence before its next step.

        Parameters
        ----------
        prompt, context : int64, shape (n,)
            Tokens of the prefill; tokens so far, the one not yet computed included.
        slots : int64, shape (n,), optional
            Slots past the verified tokens, where each has its own; all as in the layout otherwise.
            They count where they are inline.
        """
        block, policy = self.layout.block_tokens, self.policy
        kept = context if policy is None else policy.packed(prompt, context)
        if slots is not None and self.layout.tree_kv == "inline":
            held = -(-(kept + slots - 1) // block)
        else:
            held = self.layout.held(kept)
        return held if policy is None else held - policy.dropped(context, block)

    def attended(self, prompt: Counts, context: Counts) -> Counts:
        """Tokens its attention reads in the next step."""
        return context if self.policy is None else self.policy.attended(prompt, context)

    def cold(self, prompt: Counts, context: Counts) -> Counts:
        """Tokens fetched from outside the GPU in the next step."""
        return np.zeros_like(context) if self.policy is None else self.policy.cold(context)

    def most(self, prompt: Counts, last: Counts) -> Counts:
        """Most blocks it can hold from its admission up to the context ``last``.

        One block of tokens further on it never holds less, so the last block's worth of contexts
        says it all.
        """
        most = np.maximum(self.prefilled(prompt), self.blocks(prompt, last))
        if self.plain and self.layout.tree_kv != "copy_on_write":
            return most
        for back in range(1, self.layout.block_tokens):
            context = np.maximum(last - back, prompt + 1)
            most = np.maximum(most, self.blocks(prompt, context))
        return most

    def with_fetches_s(self, step_s: float, prompt: Counts, context: Counts) -> float:
        """Time of a step of sequences with these prompts and contexts [s]."""
        if self.plain:
            return step_s
        return self.fetch_s(step_s, int(self.cold(prompt, context).sum()))

    def fetch_s(self, step_s: float, cold_tokens: float) -> float:
        """Time of a step with its fetches; see `models.kv_policy.Fetch.fetch_s` [s]."""
        return self.fetch.fetch_s(step_s, cold_tokens)


def kv_use(
    engine: Engine,
    strategy: Strategy,
    tree_kv: TreeKv = "inline",
    policy: AnyPolicy | None = None,
    bytes_per_token: float = 0.0,
) -> KvUse:
    """KV use of a strategy on an engine.

    Parameters
    ----------
    engine : Engine
    strategy : Strategy
    tree_kv : str
        Layout of its tree; nothing to a chain.
    policy : AnyPolicy or None
    bytes_per_token : float
        KV of one token on one GPU, that of a draft included [byte].

    Notes
    -----
    Sequences that switch between strategies hold what the one holds that takes most.
    """
    if strategy.switches:
        # As `kv_slots`: the engine runs ahead of all modes or of none.
        engine = engine if strategy.scheduled_ahead(engine) else engine.synchronous()
        uses = [kv_use(engine, mode, tree_kv, policy, bytes_per_token) for mode in strategy.modes]
        return max(uses, key=lambda use: int(use.layout.held(_CONTEXTS).sum()))
    slots, width = kv_slots(engine, strategy), strategy.verify_tokens
    layout = KvLayout.of(engine.block_tokens, slots, width, tree_kv, strategy.branches)
    return KvUse(layout, policy, Fetch.of(policy, bytes_per_token))
