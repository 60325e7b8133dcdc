"""Recorded steps of one strategy in one domain, request by request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.paths import Floats, Ints

LEAST_REQUESTS = 4
"""Fewer say nothing about the spread between requests."""


@dataclass(frozen=True)
class Trace:
    """Steps of several requests, one request after another.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
        Request ``r`` owns steps ``[offsets[r]:offsets[r + 1]]`` of the flat arrays.
    accepted, drafted, context : int64, shape (steps,)
        Draft tokens accepted (uncut) and verified, tokens of the sequence before the step.
    ranks : tuple of str
        Rank of the target's token at each level reached, joined by spaces, "-" for none; empty
        where it was not recorded.
    """

    offsets: Ints
    accepted: Ints
    drafted: Ints
    context: Ints
    ranks: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Requests recorded."""
        return self.offsets.size - 1

    @property
    def steps(self) -> int:
        """Steps recorded."""
        return self.accepted.size

    @property
    def lengths(self) -> Ints:
        """Steps of each request."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> Ints:
        """Request of each step."""
        return np.repeat(np.arange(self.requests), self.lengths)

    @property
    def few(self) -> bool:
        """Whether the spread between requests must be assumed."""
        return self.requests < LEAST_REQUESTS

    def sums(self, values: Floats | Ints | NDArray[np.bool_]) -> Floats:
        """Sum of a value over the steps of each request, shape (n,)."""
        summed: Floats = np.bincount(self.owner, values, self.requests).astype(np.float64)
        return summed

    def tokens(self) -> Ints:
        """Tokens each request was to emit in these steps, as far as uncut counts tell.

        The last step may have been cut anywhere: half of what it accepted is left out.
        """
        emitted = self.sums(self.accepted + 1).astype(np.int64)
        tokens: Ints = emitted - self.accepted[self.offsets[1:] - 1] // 2
        return tokens

    def prompts(self) -> Ints:
        """Prompt tokens of each request: its first step follows the prefill's token."""
        prompts: Ints = np.maximum(self.context[self.offsets[:-1]] - 1, 1)
        return prompts

    def only(self, requests: Ints) -> Trace:
        """These requests alone, in the order given."""
        spans = [np.arange(self.offsets[r], self.offsets[r + 1]) for r in requests]
        kept = np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)
        offsets = np.concatenate(([0], np.cumsum(self.lengths[requests])))
        ranks = tuple(self.ranks[i] for i in kept) if self.ranks else ()
        return Trace(offsets, self.accepted[kept], self.drafted[kept], self.context[kept], ranks)

    def halves(self) -> tuple[Trace, Trace]:
        """The odd one of each pair of requests and the even one, taking turns at every scale.

        In every second pair they are exchanged, in every second four of these again, and so on
        (Thue-Morse): requests 1, 4, 6, 7, 10, ... and 2, 3, 5, 8, 9, ... Prompts that take turns
        in kind, as two formats or four word problems do, or that become harder, are in both
        halves alike.
        """
        numbers = np.arange(self.requests)
        bits = numbers[:, None] >> np.arange(max(self.requests.bit_length(), 1)) & 1
        first = bits.sum(axis=1) % 2 == 0
        return self.only(numbers[first]), self.only(numbers[~first])
