"""Batches of the target's own text, padded, and the rows of its LM head that occur in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from calibration.decoding.heads.corpus import Example

BATCH = 8
"""Sequences an optimizer step."""

OTHERS = 2000
"""Tokens the text does not have that losses still look at: a part must not take to them."""


class Batch(NamedTuple):
    """Sequences side by side, padded at their ends.

    Attributes
    ----------
    tokens : torch.Tensor of int, shape (rows, length)
    states : torch.Tensor, shape (rows, length - 1, hidden)
        Of all tokens but the last.
    choices : torch.Tensor of int, shape (rows, length - 1)
        What the target says after each token.
    real : torch.Tensor of bool, shape (rows, length - 1)
        No padding.
    own : torch.Tensor of bool, shape (rows, length - 1)
        The token after it was written by the target.
    """

    tokens: Any
    states: Any
    choices: Any
    real: Any
    own: Any


def batch_of(examples: Sequence[Example]) -> Batch:
    """Put sequences side by side."""
    import torch

    rows, longest = len(examples), max(len(one.choices) for one in examples)
    tokens = torch.zeros(rows, longest + 1, dtype=torch.long)
    states = torch.zeros(rows, longest, examples[0].states.shape[1])
    choices = torch.zeros(rows, longest, dtype=torch.long)
    real, own = (torch.zeros(rows, longest, dtype=torch.bool) for _ in range(2))
    for row, one in enumerate(examples):
        length, prompt = len(one.choices), len(one.written.prompt)
        tokens[row, : length + 1] = torch.tensor(one.written.tokens)
        states[row, :length] = one.states.float()
        choices[row, :length] = one.choices
        real[row, :length] = True
        own[row, prompt - 1 : length] = True
    return Batch(tokens, states, choices, real, own)


def shuffled(examples: Sequence[Example], seed: int) -> list[list[Example]]:
    """Batches of one pass over all sequences."""
    import torch

    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed)).tolist()
    return list(batches([examples[place] for place in order]))


def batches(examples: Sequence[Example]) -> Iterator[list[Example]]:
    """Sequences in their order, `BATCH` at a time."""
    for first in range(0, len(examples), BATCH):
        yield list(examples[first : first + BATCH])


class Vocabulary:
    """Tokens that occur, with their rows of the LM head.

    Parameters
    ----------
    examples : sequence of Example
        All of them.
    head : torch.Tensor, shape (vocabulary, hidden)
        Weights of the LM head.
    """

    def __init__(self, examples: Sequence[Example], head: Any) -> None:
        import torch

        seen = torch.zeros(len(head), dtype=torch.bool)
        for one in examples:
            seen[torch.tensor(one.written.tokens)] = True
            seen[one.choices.long()] = True
        others = torch.randperm(len(head), generator=torch.Generator().manual_seed(0))
        seen[others[:OTHERS]] = True
        self.ids = seen.nonzero()[:, 0]
        self.rows = head[self.ids].float()
        self._place = torch.zeros(len(head), dtype=torch.long)
        self._place[self.ids] = torch.arange(len(self.ids))

    def cross_entropy(self, states: Any, tokens: Any) -> Any:
        """Mean surprise [nat] at tokens, shape (n,), after states, shape (n, hidden)."""
        import torch

        return torch.nn.functional.cross_entropy(states @ self.rows.T, self._place[tokens])
