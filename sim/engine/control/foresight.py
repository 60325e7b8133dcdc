"""Choices by what the next step would accept: a signal of some power, or an oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.control import Outcome
from sim.engine.control.rate import Rate
from sim.engine.path import Counts

if TYPE_CHECKING:
    from sim.engine.slot_batch import SlotBatch


class _Foreseeing:
    """Chooses in every step what raises the mean rate most: see `Rate`.

    Steps count as they were priced when they were chosen: beside no prefill, whose time no choice
    changes.
    """

    entering = 0

    def __init__(self) -> None:
        self.by_slot: list[NDArray[Any]] = []
        self._rate, self._priced_s = Rate(), 0.0

    def enter(self, slot: int) -> None:
        """See `Control.enter`."""

    def observe(self, batch: SlotBatch, outcome: Outcome, start_s: float, end_s: float) -> None:
        """See `Control.observe`."""
        self._rate.add(float((outcome.accepted + 1).sum()), self._priced_s * batch.n)


class ByProxy(_Foreseeing):
    """K of each sequence by a signal of how many of its draft tokens will be accepted.

    A sequence drafts as many as its signal says, up to a most that is one for all: drafts run in
    passes for the whole batch.
    """

    def __init__(self, largest: int, power: float) -> None:
        super().__init__()
        self.entering = self._largest = largest
        self._power = power

    def choose(self, batch: SlotBatch) -> tuple[Counts, Counts]:
        """See `Control.choose`."""
        reading = batch.reading(self._largest, self._power)
        best, most = 0, -np.inf
        rate = self._rate.per_s * batch.n
        for k in range(self._largest + 1):
            width = 1 + np.minimum(reading, k)
            tokens, step_s = int(width.sum()), batch.priced_s(np.full(batch.n, k), width)
            gain = tokens - rate * step_s if self._rate.known else tokens / step_s
            if gain > most:
                best, most, self._priced_s = k, gain, step_s
        return np.full(batch.n, best), np.minimum(reading, best)


class Clairvoyant(_Foreseeing):
    """Knows what every mode would emit, and puts each sequence where it pays.

    Tried are every mode for all, and each sequence in the mode of its largest gain, a query token
    priced at what it adds to a step of all sequences, or at a part of that.
    """

    _SHARES = (1.0, 0.5, 0.25, 0.0)

    def choose(self, batch: SlotBatch) -> tuple[Counts, None]:
        """See `Control.choose`."""
        modes, n = range(len(batch.modes.modes)), batch.n
        emitted = np.stack([1 + batch.would_accept(mode) for mode in modes])
        alone = [batch.priced_s(np.full(n, mode)) for mode in modes]
        cost_s = (np.array(alone) - min(alone)) / n
        rate = self._rate.per_s * n or max(emitted.sum(axis=1) / np.array(alone))
        tried = [np.full(n, mode) for mode in modes]
        for share in self._SHARES:
            tried.append(np.argmax(emitted - share * rate * cost_s[:, None], axis=0))
        seconds = [batch.priced_s(mode) for mode in tried]
        gains = [
            emitted[mode, np.arange(n)].sum() - rate * step_s
            for mode, step_s in zip(tried, seconds, strict=True)
        ]
        best = int(np.argmax(gains))
        self._priced_s = seconds[best]
        return tried[best], None
