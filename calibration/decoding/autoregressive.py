"""Plain decoding: one token a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.network import Network
from calibration.decoding.sampling import Sampling, generators

BASELINE = "autoregressive"
"""Label of plain decoding, which everything is compared with."""


class Autoregressive:
    """One pass of the target a token, over any number of sequences."""

    most_rows = 1024
    note = ""

    def __init__(self, target: Network, sampling: Sampling | None = None) -> None:
        self.label = BASELINE
        self.strategy = {"kind": BASELINE}
        self._target, self._sampling = target, sampling or Sampling()

    def prefill(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], watch: Watch
    ) -> list[int]:
        """See `Decoder.prefill`."""
        import torch

        self._cache = self._target.new_cache(len(prompts))
        self._generators = generators(seeds, self._target.device)
        self._index = list(range(len(prompts)))
        with watch.part("verify"):
            states = self._target.prefill(prompts, self._cache)
            logits = self._target.logits(torch.cat([one[:, -1] for one in states]))
        self._last = self._choose(logits, watch)
        return list(self._last)

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        before = self._cache.lengths
        with watch.part("verify"):
            hidden = self._target.hidden([[token] for token in self._last], self._cache)
            logits = self._target.logits(hidden[:, -1])
        self._last = self._choose(logits, watch)
        rows = [
            Row(index, (token,), 0, 0, 1, length + 1)
            for index, token, length in zip(self._index, self._last, before, strict=True)
        ]
        self._cache.commit([[0]] * len(rows))
        return rows

    def retain(self, rows: Sequence[int]) -> None:
        """See `Decoder.retain`."""
        self._cache.retain(rows)
        self._index, self._last, self._generators = (
            [one[row] for row in rows] for one in (self._index, self._last, self._generators)
        )

    def _choose(self, logits: Any, watch: Watch) -> list[int]:
        with watch.part("sample"):
            return self._sampling.choose(logits, self._generators)
