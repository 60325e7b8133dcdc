"""What each trained part learns: its loss on a batch, and how often its first guess is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from calibration.decoding.heads import modules
from calibration.decoding.heads.data import Batch, Vocabulary
from calibration.decoding.network import Network

PARTS = ("medusa", "eagle", "draft")

HEAD_DECAY = 0.8
"""Weight of a Medusa head against the one before it, as in Medusa-1."""

FEATURE_WEIGHT = 1.0
"""Of the distance of features against the cross entropy of tokens."""

UNROLLED, CHAIN = 2, 4
"""Steps of a chain of guesses that an EAGLE layer is trained on, and scored on."""


class Pace(NamedTuple):
    """How a part is trained: Adam's learning rate, falling to zero over so many passes."""

    rate: float
    passes: int


class Part(Protocol):
    """One part in training, in fp32."""

    module: Any
    pace: Pace

    @property
    def labels(self) -> Sequence[str]:
        """Names of its accuracies."""
        ...

    def weights(self) -> dict[str, Any]:
        """Tensors that are trained and saved, by name."""
        ...

    def loss(self, batch: Batch) -> Any:
        """Of one batch, a scalar."""
        ...

    def right(self, batch: Batch) -> list[tuple[int, int]]:
        """For each label: first guesses that are the target's token, and guesses in all.

        Over all tokens of the vocabulary, only where the target wrote the token.
        """
        ...


class MedusaPart:
    """Medusa heads: head i at a place guesses the token i + 2 places after it."""

    pace = Pace(rate=1e-3, passes=5)

    def __init__(self, network: Network, words: Vocabulary, heads: int) -> None:
        self._network, self._words, self._heads = network, words, heads
        self.module = modules.medusa_heads(network, heads).requires_grad_(True)
        self.labels = [f"head {head + 1}" for head in range(heads)]

    def weights(self) -> dict[str, Any]:
        """See `Part`."""
        return dict(self.module.named_parameters())

    def loss(self, batch: Batch) -> Any:
        """See `Part`."""
        total, share = 0.0, 1.0
        for head, (states, tokens) in enumerate(self._pairs(batch)):
            if len(tokens):
                block = self.module.blocks[head]
                total = total + share * self._words.cross_entropy(_block(block, states), tokens)
            share *= HEAD_DECAY
        return total

    def right(self, batch: Batch) -> list[tuple[int, int]]:
        """See `Part`."""
        found = []
        for head, (states, tokens) in enumerate(self._pairs(batch)):
            out = _block(self.module.blocks[head], states)
            found.append(_right(self._network, out, tokens))
        return found

    def _pairs(self, batch: Batch) -> list[tuple[Any, Any]]:
        """For each head: states within the text that have a token to guess, and those tokens."""
        found = []
        for head in range(self._heads):
            ahead = head + 1
            counted = batch.own[:, : batch.own.shape[1] - ahead] & batch.own[:, ahead:]
            states = batch.states[:, : counted.shape[1]][counted]
            found.append((states, batch.choices[:, ahead:][counted]))
        return found


class EaglePart:
    """An EAGLE layer: from feature i and token i + 1 to feature i + 1."""

    pace = Pace(rate=5e-4, passes=4)
    labels: ClassVar = [f"step {step + 1}" for step in range(CHAIN)]

    def __init__(self, network: Network, words: Vocabulary, seed: int) -> None:
        self._network, self._words = network, words
        self.module = modules.eagle_layer(network, seed).requires_grad_(True)
        self._embed = network.model.get_input_embeddings()

    def weights(self) -> dict[str, Any]:
        """See `Part`."""
        return dict(self.module.named_parameters())

    def loss(self, batch: Batch) -> Any:
        """See `Part`; of the first steps of a chain, as later guesses rest on guessed features."""
        import torch

        total = 0.0
        for step, out in enumerate(self._chain(batch, UNROLLED)):
            there = slice(step + 1, None)
            counted = batch.real[:, there]
            guessed = out[:, : counted.shape[1]][counted]
            distance = torch.nn.functional.smooth_l1_loss(guessed, batch.states[:, there][counted])
            surprise = self._words.cross_entropy(guessed, batch.choices[:, there][counted])
            total = total + (FEATURE_WEIGHT * distance + surprise) / UNROLLED
        return total

    def right(self, batch: Batch) -> list[tuple[int, int]]:
        """See `Part`; later steps go on from features guessed before, tokens being right."""
        found = []
        for step, out in enumerate(self._chain(batch, CHAIN)):
            ahead = step + 1
            counted = batch.own[:, : batch.own.shape[1] - ahead] & batch.own[:, ahead:]
            guessed = out[:, : counted.shape[1]][counted]
            found.append(_right(self._network, guessed, batch.choices[:, ahead:][counted]))
        return found

    def _chain(self, batch: Batch, steps: int) -> Iterator[Any]:
        """Features guessed at each step of the chains that begin at all places, in turn.

        The chains run side by side: each guess sees the true pairs up to its place and its own
        chain. Shape (rows, length - 2, hidden): those of step d at place i are of token i + 1 + d.
        """
        import torch

        places = batch.tokens.shape[1] - 2
        features, tokens = batch.states[:, :-1], self._embed(batch.tokens)
        blocks, inputs = list[Any](), list[Any]()
        for step in range(steps):
            given = tokens[:, 1 + step : 1 + step + places]
            missing = given.new_zeros(len(given), places - given.shape[1], given.shape[2])
            inputs.append(torch.cat((given, missing), dim=1))
            blocks.append(features)
            positions = torch.cat([torch.arange(places) + depth for depth in range(step + 1)])
            out = self.module(
                torch.cat(inputs, dim=1),
                torch.cat(blocks, dim=1),
                position_ids=positions[None],
                attention_mask=_chains(places, step + 1),
            )
            features = out[:, -places:]
            yield features


class DraftPart:
    """The target's first layers, which learn to say what the target says."""

    pace = Pace(rate=1e-3, passes=3)
    labels = ("next token",)

    def __init__(self, network: Network, words: Vocabulary, layers: int) -> None:
        self._network, self._words = network, words
        self.module = modules.truncated(network, layers)
        for one in self.weights().values():
            one.requires_grad_(True)

    def weights(self) -> dict[str, Any]:
        """See `Part`."""
        return modules.own_parameters(self.module)

    def loss(self, batch: Batch) -> Any:
        """See `Part`."""
        import torch

        states, there = self._states(batch)[batch.real], batch.states[batch.real]
        distance = torch.nn.functional.smooth_l1_loss(states, there)
        return FEATURE_WEIGHT * distance + self._words.cross_entropy(
            states, batch.choices[batch.real]
        )

    def right(self, batch: Batch) -> list[tuple[int, int]]:
        """See `Part`."""
        states = self._states(batch)[batch.own]
        return [_right(self._network, states, batch.choices[batch.own])]

    def _states(self, batch: Batch) -> Any:
        out = self.module.get_decoder()(input_ids=batch.tokens[:, :-1], use_cache=False)
        return out.last_hidden_state


def _block(block: Any, states: Any) -> Any:
    import torch

    return states + torch.nn.functional.silu(block(states))


def _right(network: Network, states: Any, tokens: Any) -> tuple[int, int]:
    """How many of the tokens have the highest logit."""
    return int((network.logits(states).argmax(dim=-1) == tokens).sum()), len(tokens)


def _chains(places: int, steps: int) -> Any:
    """Mask of guesses side by side, shape (1, 1, steps x places, steps x places)."""
    import torch

    mask = torch.zeros(steps, places, steps, places, dtype=torch.bool)
    mask[:, :, 0] = torch.ones(places, places, dtype=torch.bool).tril()
    own = torch.eye(places, dtype=torch.bool)
    for step in range(1, steps):
        for before in range(1, step + 1):
            mask[step, :, before] = own
    return mask.view(1, 1, steps * places, steps * places)
