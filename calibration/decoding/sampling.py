"""Choosing tokens from logits, and accepting drafts of another distribution.

Speculative sampling keeps the target's distribution: Leviathan et al. 2023 (arXiv:2211.17192,
algorithm 1) and Chen et al. 2023 (arXiv:2302.01318, algorithm 2).
"""

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
        return draw(self.probabilities(logits), generators)


def draw(shares: Any, generators: Sequence[Any]) -> list[int]:
    """One token a row of a distribution, shape (rows, vocabulary), by the row's own generator."""
    import torch

    return [
        int(torch.multinomial(row, 1, generator=generator))
        for row, generator in zip(shares, generators, strict=True)
    ]


def accept(target: Any, draft: Any, drafted: Sequence[int], generator: Any) -> tuple[int, int]:
    """Draft tokens to accept, and the token after them, distributed as the target's own.

    Parameters
    ----------
    target : torch.Tensor, shape (K + 1, vocabulary)
        The target's distribution after the current token and after each draft token.
    draft : torch.Tensor, shape (K, vocabulary)
        Distribution each draft token was drawn from.
    drafted : sequence of int
        K draft tokens; none is plain sampling.
    generator : torch.Generator
        Draws K uniform numbers, then one token, whatever is accepted.

    Returns
    -------
    tuple of int
        How many are accepted, and the next token: of what the target has left over at the first
        refused one, of the target alone after the last.
    """
    import torch

    level, last = 0, len(drafted)
    if last:
        kept = kept_shares(target[:last], draft, drafted)
        uniform = torch.rand(last, dtype=kept.dtype, device=kept.device, generator=generator)
        level = int((uniform < kept).long().cumprod(0).sum())
    shares = target[last] if level == last else left_over(target[level], draft[level])
    return level, int(torch.multinomial(shares, 1, generator=generator))


def kept_shares(target: Any, draft: Any, drafted: Sequence[int]) -> Any:
    """Probability that each draft token is accepted once reached: min(1, p / q), in float64.

    Parameters
    ----------
    target, draft : torch.Tensor, shape (K, vocabulary)
        p and q.
    drafted : sequence of int
        K tokens.
    """
    import torch

    tokens = torch.tensor(list(drafted), device=target.device)[:, None]
    wanted, offered = (one.gather(-1, tokens)[:, 0].double() for one in (target, draft))
    # A token of no probability on both sides (0 / 0) is refused.
    return (wanted / offered).nan_to_num(0.0, posinf=1.0).clamp(max=1.0)


def left_over(target: Any, draft: Any) -> Any:
    """What a refused token is replaced from: max(0, p - q), normalised, in float64.

    Parameters
    ----------
    target, draft : torch.Tensor, shape (..., vocabulary)
        p and q; where they are equal nothing is left over, and p is returned.
    """
    import torch

    wanted = target.double()
    rest = (wanted - draft.double()).clamp(min=0.0)
    total = rest.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, rest / total, wanted)


def generators(seeds: Sequence[int], device: Any) -> list[Any]:
    """Random numbers of each sequence, its own whatever else is in the batch."""
    import torch

    return [torch.Generator(device).manual_seed(seed) for seed in seeds]
