"""Where the KV of a token tree is kept: in slots behind the context, or branch by branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
TreeKv = Literal["inline", "copy_on_write", "contiguous"]


class Branches(NamedTuple):
    """Branches of a verified tree that are equally long.

    Attributes
    ----------
    number : int
        How many.
    tokens : int
        Tokens of each from the root on, the root included.
    """

    number: int
    tokens: int


@dataclass(frozen=True)
class KvLayout:
    """Blocks one decoding sequence holds, and how they lie.

    Attributes
    ----------
    block_tokens : int
    slots : int
        KV slots past the verified tokens, where all lie in one row.
    tree_kv : str
        ``inline``: all slots follow the context. ``copy_on_write``: full blocks of the context
        are shared, and every branch has a copy of the last partial block and goes on in it.
        ``contiguous``: the context with room for what may be accepted, which is copied there,
        and one stretch of adjacent blocks with all branches.
    branches : tuple of Branches
        The first are those that can be accepted. One branch alone is a chain, which has nothing
        to copy: it is always laid out inline.
    """

    block_tokens: int
    slots: int
    tree_kv: TreeKv = "inline"
    branches: tuple[Branches, ...] = ()

    @classmethod
    def of(
        cls,
        block_tokens: int,
        slots: int,
        width: int,
        tree_kv: TreeKv,
        branches: tuple[Branches, ...],
    ) -> KvLayout:
        """Layout of a strategy; an engine that reserves twice does so for every branch.

        Parameters
        ----------
        block_tokens : int
        slots : int
            As ``models.kv_memory.kv_slots`` has them.
        width : int
            Query tokens of a verify pass, for which there are that many slots.
        tree_kv : str
        branches : tuple of Branches
            Those of the verified tree.
        """
        if tree_kv == "inline" or sum(each.number for each in branches) < 2:
            return cls(block_tokens, slots)
        reserved = tuple(Branches(n, -(-tokens * slots // width)) for n, tokens in branches)
        return cls(block_tokens, slots, tree_kv, reserved)

    @property
    def run(self) -> int:
        """Adjacent blocks a sequence needs for its branches; 0 where any will do."""
        if self.tree_kv != "contiguous":
            return 0
        return sum(n * -(-tokens // self.block_tokens) for n, tokens in self.branches)

    def held(self, context: Counts) -> Counts:
        """Blocks held before a step at ``context`` tokens, the one not yet computed included."""
        block = self.block_tokens
        if self.tree_kv == "inline":
            return (context + (self.slots - 1 + block - 1)) // block
        if self.tree_kv == "contiguous":
            return (context - 1 + (self.branches[0].tokens + block - 1)) // block + self.run
        partial = (context - 1) % block
        held = (context - 1) // block
        for count, tokens in self.branches:
            held += count * ((partial + (tokens + block - 1)) // block)
        return held
