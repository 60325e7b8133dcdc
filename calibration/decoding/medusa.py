"""Medusa: heads on the last hidden state guess a tree of tokens, verified in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.decoding.decoder import RANKS, Row, Watch
from calibration.decoding.network import Network
from calibration.decoding.stream import StreamDecoder
from models.trees import Path, Tree, tree_depth, tree_ranks

_LIKELIEST = "0 00 1 000 01 10 2 02 001 010 11 3 03 20 100 0000 04 002 011 020 12 4"

DEFAULT_TREE: Tree = tuple(tuple(map(int, path)) for path in _LIKELIEST.split())
"""The 22 likeliest nodes by the head accuracies of Medusa-1 on Vicuna-7B, path exponent 1/2."""


class DraftTree:
    """A tree as one pass verifies it: the current token, then its nodes, parents first.

    Parameters
    ----------
    paths : Tree

    Attributes
    ----------
    paths : Tree
        Nodes by depth; place i + 1 of the pass is node i.
    depths : tuple of int
        Position of each token of the pass behind those with KV.
    seen : torch.Tensor of bool, shape (nodes + 1, nodes + 1)
        Each token attends to its ancestors and itself.
    """

    def __init__(self, paths: Tree) -> None:
        import torch

        self.paths = tuple(sorted(paths, key=lambda path: (len(path), path)))
        self._places = {path: place for place, path in enumerate(((), *self.paths))}
        self.depths = tuple(map(len, self._places))
        self.seen = torch.zeros(len(self.depths), len(self.depths), dtype=torch.bool)
        for path, place in self._places.items():
            self.seen[place, [self._places[path[:end]] for end in range(len(path) + 1)]] = True

    def tokens(self, current: int, guesses: Sequence[Sequence[int]]) -> list[int]:
        """Tokens of the pass, given the guesses by depth and rank."""
        return [current, *(guesses[len(path) - 1][path[-1]] for path in self.paths)]

    def accept(
        self, guesses: Sequence[Sequence[int]], chosen: Sequence[int]
    ) -> tuple[list[int], list[int | None]]:
        """Follow the target's choices down the tree.

        Parameters
        ----------
        guesses : sequence of sequences of int
            Tokens by depth and rank.
        chosen : sequence of int
            The target's choice after each token of the pass.

        Returns
        -------
        places : list of int
            Of the current token and the accepted nodes.
        ranks : list of int or None
            See `Row.ranks`; the level that failed counts even if the tree has no node there.
        """
        path: Path = ()
        places, ranks = [0], list[int | None]()
        for level in guesses:
            token = chosen[places[-1]]
            rank = level.index(token) if token in level else None
            ranks.append(rank if rank is not None and rank < RANKS else None)
            if rank is None or (*path, rank) not in self._places:
                break
            path = (*path, rank)
            places.append(self._places[path])
        return places, ranks


class Medusa(StreamDecoder):
    """Greedy tree verification of what Medusa heads guess, the LM head shared with the target.

    Parameters
    ----------
    target : Network
    heads : torch.nn.Module
        Of `medusa_heads`; they run on the hidden state of the last token with KV, one row.
    tree : Tree
        Its depth must not exceed the number of heads.
    label : str
        Name in tables.

    Raises
    ------
    ValueError
        If there are too few heads, or tokens to guess.
    """

    needs_states = True

    def __init__(
        self, target: Network, heads: Any, tree: Tree = DEFAULT_TREE, label: str = "medusa"
    ) -> None:
        count = len(heads.blocks)
        if tree_depth(tree) > count:
            raise ValueError(f"a tree of depth {tree_depth(tree)} needs as many heads, got {count}")
        widest, words = max(tree_ranks(tree)), target.model.config.vocab_size
        if widest > words:
            raise ValueError(f"a tree of {widest} guesses a head, got a vocabulary of {words}")
        paths = [list(path) for path in tree]
        block = {"kind": "medusa", "heads": count, "tree": paths, "shared_lm_head": True}
        super().__init__(target, label, block)
        self._heads, self._tree = heads, DraftTree(tree)
        self._widest = max(RANKS, widest)

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        stream, tree = self.stream, self._tree
        with watch.part("draft"):
            guesses = self._guess(stream.take_states()[:, -1])
            tokens = tree.tokens(stream.tokens[-1], guesses)
        chosen = stream.verify(tokens, watch, tree.depths, tree.seen)
        with watch.part("sample"):
            places, ranks = tree.accept(guesses, chosen)
            emitted = [chosen[place] for place in places]
        context = stream.advance(places, emitted)
        width, accepted = len(tokens), len(places) - 1
        return [Row(0, tuple(emitted), width - 1, accepted, width, context, tuple(ranks))]

    def _guess(self, state: Any) -> list[list[int]]:
        """Tokens by head and rank; each head reads the LM head for itself, as vLLM does."""
        import torch

        best = []
        for one in self._heads(state):
            logits = self._target.logits(one)
            best.append(logits.topk(min(self._widest, logits.shape[-1])).indices)
        tokens: list[list[int]] = torch.cat(best).tolist()
        return tokens
