"""Keys and values of a batch whose sequences have their own lengths, and lose what is rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

STEP_TOKENS = 256
"""It grows by so many tokens at a time, or by half of what it has."""


class KvCache:
    """KV cache of a forward pass of transformers, preallocated, with a length a row.

    New tokens are written behind each row's own. They count only once `commit` says which of them
    stay: what is rejected is overwritten.

    Parameters
    ----------
    keys, values : torch.Tensor, shape (layers, rows, KV heads, capacity, head dimension)
    lengths : sequence of int
        Tokens of each row.

    Attributes
    ----------
    new : int
        Tokens of each row written since the last `commit`.
    """

    def __init__(self, keys: Any, values: Any, lengths: Sequence[int]) -> None:
        self.keys, self.values, self.lengths = keys, values, list(lengths)
        self.new = 0

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(self.lengths, default=0)

    @property
    def level(self) -> bool:
        """Whether all rows are equally long."""
        return len(set(self.lengths)) <= 1

    def expect(self, tokens: int) -> None:
        """Make room for so many new tokens of every row."""
        self.new = tokens
        missing = self.longest + tokens - self.keys.shape[3]
        if missing <= 0:
            return
        more = max(STEP_TOKENS, missing, self.keys.shape[3] // 2)
        self.keys, self.values = (_longer(one, more) for one in (self.keys, self.values))

    def update(
        self, keys: Any, values: Any, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[Any, Any]:
        """Write the new tokens of one layer, shape (rows, KV heads, new, head dimension).

        Returns
        -------
        tuple of torch.Tensor
            Keys and values up to the end of the longest row.
        """
        own_keys, own_values = self.keys[layer_idx], self.values[layer_idx]
        if self.level:
            start = self.longest
            own_keys[:, :, start : start + self.new] = keys
            own_values[:, :, start : start + self.new] = values
        else:
            for row, start in enumerate(self.lengths):
                own_keys[row, :, start : start + self.new] = keys[row]
                own_values[row, :, start : start + self.new] = values[row]
        end = self.longest + self.new
        return own_keys[:, :, :end], own_values[:, :, :end]

    def commit(self, kept: Sequence[Sequence[int]]) -> None:
        """Keep new tokens of each row, by their place among them, in ascending order."""
        for row, places in enumerate(kept):
            start = self.lengths[row]
            if list(places) != list(range(len(places))):
                for one in (self.keys, self.values):
                    chosen = one[:, row, :, [start + place for place in places]]
                    one[:, row, :, start : start + len(places)] = chosen
            self.lengths[row] = start + len(places)
        self.new = 0

    def cut(self, lengths: Sequence[int]) -> None:
        """Forget what lies beyond these lengths."""
        self.lengths = [min(pair) for pair in zip(self.lengths, lengths, strict=True)]
        self.new = 0

    def retain(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order."""
        self.keys, self.values = (one[:, list(rows)] for one in (self.keys, self.values))
        self.lengths = [self.lengths[row] for row in rows]

    def row(self, row: int) -> KvCache:
        """One row with the same memory; its length is its own."""
        here = slice(row, row + 1)
        return KvCache(self.keys[:, here], self.values[:, here], self.lengths[here])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens of the longest row: asked by transformers."""
        return self.longest

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Keys a pass of so many tokens sees, and the first of them: asked by transformers."""
        return self.longest + query_length, 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Place of the first new token: asked by transformers."""
        return self.longest


def _longer(values: Any, tokens: int) -> Any:
    sizes = list(values.shape)
    sizes[3] = tokens
    import torch

    return torch.cat((values, values.new_zeros(sizes)), dim=3)
