"""Sums over the steps of one replica, as they stand at any moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepTotals:
    """Sums over the steps of one replica.

    Attributes
    ----------
    steps : int
        Steps run.
    decode_s, stalled_s : float
        Time in steps that decode, and in steps that only prefill or swap [s].
    n_s, width_s : float
        Decoding sequences and, where their width varies, their query tokens, integrated over the
        time in steps that decode.
    prefilling_s, waiting_s, blocks_s : float
        Sequences in the batch that do not decode, requests waiting, and KV blocks in use,
        integrated over all steps.
    blocks_peak : int
        Most KV blocks in use during a step.
    n_peak, tokens_peak : int
        Most sequences decoding, and most tokens of a step with a prefill in it, every sequence
        counted at full width.
    unusable_s : float
        KV blocks that are free but in no stretch a sequence's branches fit into, integrated over
        all steps; 0 where blocks need not be adjacent.
    surplus : int
        Tokens accepted beyond the end of a request.
    first_tokens, resumed, preemptions : int
        Tokens emitted at the end of a prefill, how many of them were not the first of their
        request, and preemptions.
    """

    steps: int = 0
    decode_s: float = 0.0
    stalled_s: float = 0.0
    n_s: float = 0.0
    width_s: float = 0.0
    prefilling_s: float = 0.0
    waiting_s: float = 0.0
    blocks_s: float = 0.0
    blocks_peak: int = 0
    n_peak: int = 0
    tokens_peak: int = 0
    unusable_s: float = 0.0
    surplus: int = 0
    first_tokens: int = 0
    resumed: int = 0
    preemptions: int = 0
