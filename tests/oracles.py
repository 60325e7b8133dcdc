"""Heads and an EAGLE layer that know a text, for tests in which drafts must be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from calibration.decoding.network import Network

Ranks = Callable[[int, int], int]


def says(network: Network, ranked: Sequence[int]) -> Any:
    """A hidden state whose logits rank these tokens first; needs hidden >= vocabulary."""
    weight = network.model.get_output_embeddings().weight
    wanted = torch.zeros(weight.shape[0])
    for rank, token in enumerate(ranked):
        wanted[token] = 100.0 - rank
    return torch.linalg.pinv(weight) @ wanted


def right_at(network: Network, token: int, rank: int) -> Any:
    """A hidden state that puts a token at a rank, lower tokens before it."""
    others = [one for one in range(network.model.config.vocab_size) if one != token]
    return says(network, [*others[:rank], token])


class OracleHeads:
    """Finds the place of a hidden state in a text and guesses what follows there.

    ``rank(place, head)`` says at which rank head ``head`` has the token at ``place`` of the text.
    """

    def __init__(self, network: Network, text: Sequence[int], count: int, rank: Ranks) -> None:
        self.blocks = range(count)
        self._network, self._text, self._rank = network, text, rank
        self._states = network.hidden([text], network.new_cache(1))[0]

    def __call__(self, state: Any) -> Any:
        distance = (self._states - state).abs().amax(dim=1)
        place = int(distance.argmin())
        assert float(distance[place]) < 1e-3, "no hidden state of the text"
        heads = []
        for head in self.blocks:
            at = place + 2 + head
            heads.append(right_at(self._network, self._text[at], self._rank(at, head))[None])
        return torch.stack(heads)


class OracleLayer:
    """An EAGLE layer right at every place of a text but the wrong ones given."""

    def __init__(self, network: Network, text: Sequence[int], wrong: Sequence[int] = ()) -> None:
        self._network, self._text, self._wrong = network, text, set(wrong)
        self._embed = network.model.get_input_embeddings()

    def __call__(self, embeddings: Any, features: Any, *, position_ids: Any, **_: Any) -> Any:
        states = []
        for embedding, place in zip(embeddings[0], position_ids[0].tolist(), strict=True):
            token = self._text[place + 1]
            known = self._embed(torch.tensor(token))
            assert place + 1 in self._wrong or torch.equal(embedding, known), "the wrong pair"
            states.append(right_at(self._network, self._text[place + 2], place + 2 in self._wrong))
        return torch.stack(states)[None]
