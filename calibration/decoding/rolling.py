"""What was accepted lately, over a stream of texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from calibration.decoding.decoder import Decoder, Row


class Limited(Decoder, Protocol):
    """A decoder that can draft less in its next steps, down to a plain step.

    Attributes
    ----------
    limit : int or None
        Most tokens to draft in the next steps: 0 is plain decoding, None as many as it would.
    """

    limit: int | None


class Rolling:
    """Acceptance over the last tokens that steps with drafts emitted.

    A step that drafted nothing tells nothing of acceptance and is left out, whether it was plain
    by choice or a lookup found nothing. Every sequence of a batch counts.

    Parameters
    ----------
    window_tokens : int
        The fewest latest such steps that emitted at least so many tokens.
    """

    def __init__(self, window_tokens: int) -> None:
        self._window_tokens = window_tokens
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._steps: deque[tuple[int, bool]] = deque()
        self._accepted = self._refused = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Take in what a step did."""
        for row in rows:
            if row.drafted:
                self._count(row.accepted, row.accepted < row.drafted, 1)
                self._steps.append((row.accepted, row.accepted < row.drafted))
        while self._steps and self._tokens - self._steps[0][0] - 1 >= self._window_tokens:
            self._count(*self._steps.popleft(), -1)

    def state(self) -> list[tuple[int, bool]]:
        """What `restore` takes up: accepted tokens of each step, and whether one was refused."""
        return list(self._steps)

    def restore(self, steps: Iterable[Sequence[int]]) -> None:
        """Forget everything but these steps."""
        self.clear()
        for accepted, refused in steps:
            self._count(accepted, bool(refused), 1)
            self._steps.append((accepted, bool(refused)))

    @property
    def full(self) -> bool:
        """Whether it holds a whole window."""
        return self._tokens >= self._window_tokens

    @property
    def tau(self) -> float | None:
        """Mean tokens a step emitted, accepted and one more; None before any step."""
        return self._tokens / len(self._steps) if self._steps else None

    @property
    def alpha(self) -> float | None:
        """Share of the draft tokens reached that were accepted; None before any step.

        A step reaches its accepted tokens and the first refused one: the most likely chance of a
        token when all have the same.
        """
        reached = self._accepted + self._refused
        return self._accepted / reached if reached else None

    @property
    def _tokens(self) -> int:
        return self._accepted + len(self._steps)

    def _count(self, accepted: int, refused: bool, sign: int) -> None:
        self._accepted += sign * accepted
        self._refused += sign * refused
