"""The rules one replica follows, as numbers: limits, KV blocks, scheduling policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.kv_use import KvUse


@dataclass(frozen=True)
class Rules:
    """What the scheduler and the block pool of every replica obey.

    Attributes
    ----------
    max_num_seqs, max_num_batched_tokens, max_model_len : int
        Limits a step and a request must respect.
    block_tokens, n_blocks : int
        Unit of KV allocation, and how many there are.
    slots : int
        KV slots a decoding sequence reserves past its verified tokens.
    kv : KvUse
        Blocks a sequence holds in every state.
    width : int
        Query tokens of a sequence in a decode step (the largest, where the width varies).
    async_scheduling : bool
        The batch of the next step is chosen when the current step starts.
    prefix_cache, drop_matched_block : bool
        Freed blocks stay findable; the last matched block is recomputed.
    preemption : str
        ``recompute`` or ``swap``; ``never`` reserves prompt and output at admission.
    exclusive_prefill : bool
        Prefills run in steps of their own and stall decoding (no chunked prefill).
    watermark_blocks : int
        Blocks kept free at admission while something is running.
    request_s : float
        Time a request spends outside the engine before it is queued [s].
    swap_s_per_block : float
        Time to move one block between GPU and host memory [s].
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_tokens: int
    n_blocks: int
    slots: int
    kv: KvUse
    width: int
    async_scheduling: bool
    prefix_cache: bool
    drop_matched_block: bool
    preemption: Literal["recompute", "swap", "never"]
    exclusive_prefill: bool
    watermark_blocks: int
    request_s: float
    swap_s_per_block: float

    def admitted(self, prefill: int, prompt: int, last: int) -> int:
        """Blocks a request holds from its admission on, adjacent ones for branches aside.

        Parameters
        ----------
        prefill : int
            Tokens its next prefill computes: all so far after a preemption.
        prompt, last : int
            Tokens of its prompt, and of its context at the end. Where nothing is ever preempted
            it is given all it can come to hold until then.
        """
        blocks = -(-prefill // self.block_tokens)
        if self.preemption == "never":
            most = self.kv.most(np.array([prompt]), np.array([last])) - self.kv.run
            blocks = max(blocks, int(most[0]))
        return blocks
