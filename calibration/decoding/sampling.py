"""Choosing tokens from logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Sampling(NamedTuple):
    """Greedy at temperature 0, else from the whole softmax."""

    temperature: float = 0.0

    def probabilities(self, logits: Any) -> Any:
        """Distribution of each row of logits in float32, shape as ``logits``; not for greedy."""
        import torch

        return torch.softmax(logits.float() / self.temperature, dim=-1)

    def choose(self, logits: Any, generators: Sequence[Any]) -> list[int]:
        """One token a row.

        Parameters
        ----------
        logits : torch.Tensor, shape (rows, vocabulary)
        generators : sequence of torch.Generator
            One a row; not used when greedy.
        """
        if not self.temperature:
            best: list[int] = logits.argmax(dim=-1).tolist()
            return best
        import torch

        shares = self.probabilities(logits)
        return [
            int(torch.multinomial(row, 1, generator=generator))
            for row, generator in zip(shares, generators, strict=True)
        ]


def generators(seeds: Sequence[int], device: Any) -> list[Any]:
    """Random numbers of each sequence, its own whatever else is in the batch."""
    import torch

    return [torch.Generator(device).manual_seed(seed) for seed in seeds]
