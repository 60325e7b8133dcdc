"""Tokens a second so far: what a step has to beat."""

from __future__ import annotations


class Rate:
    """Tokens decode steps emitted over their time.

    A step that emits ``e`` tokens in ``t`` seconds raises the mean rate where ``e - rate t`` is
    above zero; choosing the largest of these in every step leads to the largest mean rate
    (Dinkelbach 1967, Management Science 13).
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        """Count a step."""
        self._tokens += tokens
        self._seconds += seconds

    @property
    def known(self) -> bool:
        """Whether a step was counted."""
        return self._seconds > 0.0

    @property
    def per_s(self) -> float:
        """Tokens a second; 0 before any step."""
        return self._tokens / self._seconds if self._seconds else 0.0
