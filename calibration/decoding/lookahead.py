"""Lookahead decoding (Fu et al., arXiv 2402.02057): guesses come from the target's own passes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.network import Network
from calibration.decoding.stream import Stream, StreamDecoder
from calibration.decoding.verify import accepted_chain

Gram = tuple[int, ...]


class Pool:
    """N-grams by their first token, the most recent ones of each.

    Parameters
    ----------
    most : int
        N-grams kept a first token.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._grams: dict[int, dict[Gram, None]] = {}

    def add(self, gram: Gram) -> None:
        """Keep an n-gram; one already there becomes the most recent."""
        same_start = self._grams.setdefault(gram[0], {})
        rest = gram[1:]
        same_start.pop(rest, None)
        same_start[rest] = None
        if len(same_start) > self._most:
            del same_start[next(iter(same_start))]

    def guesses(self, token: int) -> list[Gram]:
        """What may follow a token, oldest first."""
        return list(self._grams.get(token, ()))


@lru_cache(maxsize=256)
def layout(w: int, n: int, found: int) -> tuple[tuple[int, ...], Any]:
    """Where the tokens of a pass stand, and which of them each attends to.

    The window comes first, level by level, its first token being the current one; then the
    guesses one after another.

    Parameters
    ----------
    w, n, found : int
        Window, tokens of an n-gram, guesses in this pass.

    Returns
    -------
    depths : tuple of int
        Position of each token behind those with KV.
    seen : torch.Tensor of bool, shape (tokens, tokens)
        A token of the window sees the first level up to its own column, and its column down to
        itself; a token of a guess sees the current token and its guess up to itself.
    """
    import torch

    window, length = w * (n - 1), n - 1
    tokens = window + found * length
    seen = torch.zeros(tokens, tokens, dtype=torch.bool)
    depths = [level + column for level in range(length) for column in range(w)]
    for place in range(window):
        column = place % w
        seen[place, : column + 1] = True
        seen[place, column : place + 1 : w] = True
    seen[window:, 0] = True
    for start in range(window, tokens, length):
        seen[start : start + length, start : start + length] = torch.ones(length, length).tril() > 0
        depths += range(1, n)
    return tuple(depths), seen


class Lookahead(StreamDecoder):
    """A window of Jacobi iterations and the verification of n-grams from earlier ones, in one pass.

    The window starts with tokens drawn from the prompt, by the prompt's seed, and moves on by one
    token a step whatever was accepted, as in the authors' code. N-grams are collected once all of
    its levels were generated; pool and window start anew with each prompt.

    Parameters
    ----------
    target : Network
    w, n, g : int
        Window W, n-gram size N (from 2 on) and most guesses a step G.
    label : str
        Name in tables.
    """

    def __init__(
        self, target: Network, w: int = 15, n: int = 5, g: int = 15, label: str = "lookahead"
    ) -> None:
        super().__init__(target, label, {"kind": "lookahead", "w": w, "n": n, "g": g})
        self._w, self._n, self._g = w, n, g

    def begin(self, stream: Stream, seed: int, watch: Watch) -> None:
        """See `StreamDecoder.begin`."""
        super().begin(stream, seed, watch)
        draw = random.Random(seed)
        self._window = [draw.choices(stream.tokens, k=self._w) for _ in range(self._n - 1)]
        self._drawn = self._n - 2
        self._pool = Pool(self._g)

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        stream = self.stream
        current = self._window[0][0] = stream.tokens[-1]
        guesses = self._pool.guesses(current)
        tokens = [token for part in (*self._window, *guesses) for token in part]
        chosen = stream.verify(tokens, watch, *layout(self._w, self._n, len(guesses)))
        with watch.part("sample"):
            places, emitted = self._accept(guesses, chosen)
        context = stream.advance(places, emitted)
        self._move(chosen[self._w * (self._n - 2) : self._w * (self._n - 1)])
        width = len(tokens)
        return [Row(0, tuple(emitted), width - 1, len(places) - 1, width, context)]

    def _accept(
        self, guesses: Sequence[Gram], chosen: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        places, emitted = [0], [chosen[0]]
        length = self._n - 1
        for number, guess in enumerate(guesses):
            start = self._w * length + number * length
            after = [chosen[0], *chosen[start : start + length]]
            accepted = accepted_chain(guess, after)
            if accepted >= len(emitted):
                places = [0, *range(start, start + accepted)]
                emitted = after[: accepted + 1]
        return places, emitted

    def _move(self, new: list[int]) -> None:
        if self._drawn:
            self._drawn -= 1
        else:
            for gram in zip(*self._window, new, strict=True):
                self._pool.add(gram)
        self._window = [*self._window[1:], new]
