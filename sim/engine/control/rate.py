"""Tokens a second so far: what a step has to beat."""

from __future__ import annotations


class Rate:
    """Tokens decode steps emitted over the time their sequences spent in them.

    A step of ``n`` sequences that emits ``e`` tokens in ``t`` seconds raises the mean rate where
    ``e - rate n t`` is above zero; choosing the largest of these in every step leads to the largest
    mean rate (Dinkelbach 1967, Management Science 13). Time counts by sequence, so that a second
    of a crowded batch does not set the price of one of a nearly empty batch.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._sequence_s = 0.0

    def add(self, tokens: float, sequence_s: float) -> None:
        """Count a step."""
        self._tokens += tokens
        self._sequence_s += sequence_s

    @property
    def known(self) -> bool:
        """Whether a step was counted."""
        return self._sequence_s > 0.0

    @property
    def per_s(self) -> float:
        """Tokens a second of a sequence; 0 before any step."""
        return self._tokens / self._sequence_s if self._sequence_s else 0.0
