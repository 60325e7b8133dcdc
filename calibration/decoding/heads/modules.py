"""Trained parts of a frozen target: Medusa heads, an EAGLE layer, its first layers as a draft.

All of them share the target's embeddings and LM head.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

from calibration.decoding.cache import KvCache
from calibration.decoding.network import Network, laid_out

DRAFT_SHARE = 1 / 6
"""A draft has about so many of the target's layers, as vendors' pairs of models do."""


def medusa_heads(network: Network, count: int) -> Any:
    """Medusa heads of a target, each at first the identity.

    Parameters
    ----------
    network : Network
        The target.
    count : int
        Heads; head i guesses the token i + 2 places after the one a hidden state stands at.

    Returns
    -------
    torch.nn.Module
        Called with hidden states of the target after its last norm, shape (..., hidden), it gives
        those of each head, shape (heads, ..., hidden), for ``network.logits``. Head i is
        x + SiLU(W x + b); only W and b are its own.

    References
    ----------
    Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
    2024, section 2.1.
    """
    heads_class, _ = _modules()
    return _like(network, heads_class(network.model.config.hidden_size, count))


def eagle_layer(network: Network, seed: int = 0) -> Any:
    """An untrained EAGLE layer of a target: the weights under `Eagle`.

    Returns
    -------
    torch.nn.Module
    """
    import torch

    _, layer_class = _modules()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _like(network, layer_class(network.model.get_decoder()))


class Eagle:
    """An EAGLE layer at work: from the feature at a place and the token after it, the next feature.

    A feature is the target's hidden state after its last norm, as ``Network.hidden`` returns it.

    Parameters
    ----------
    network : Network
        The target, whose embeddings and LM head it shares.
    layer : torch.nn.Module
        Of `eagle_layer`.

    References
    ----------
    Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", 2024,
    section 4.1.
    """

    def __init__(self, network: Network, layer: Any) -> None:
        self.network, self.layer = network, layer
        self._embed = network.model.get_input_embeddings()

    def new_cache(self, rows: int) -> KvCache:
        """An empty cache of its one layer for so many sequences."""
        own = self.network.new_cache(rows)
        return KvCache(own.keys[:1].clone(), own.values[:1].clone(), own.lengths)

    def features(
        self,
        tokens: Sequence[Sequence[int]],
        features: Any,
        cache: KvCache,
        depths: Sequence[int] | None = None,
        seen: Any = None,
    ) -> Any:
        """Next features of new pairs of every row, which the cache then waits to `commit`.

        Parameters
        ----------
        tokens : sequence of sequences of int, shape (rows, new)
            Token i + 1 of each pair.
        features : torch.Tensor, shape (rows, new, hidden)
            Feature i of each pair: the target's, or an earlier guess.
        cache : KvCache
            Of `new_cache`; it counts pairs, one less than the tokens of a row.
        depths, seen
            As in ``Network.hidden``.

        Returns
        -------
        torch.Tensor, shape (rows, new, hidden)
            Feature i + 1 of each pair, for ``network.logits``: what they say of token i + 2.
        """
        rows, how = laid_out(tokens, cache, self.network.device, depths, seen)
        return self.layer(self._embed(rows), features, **how)

    def prefill(
        self, tokens: Sequence[Sequence[int]], features: Sequence[Any], cache: KvCache
    ) -> list[Any]:
        """Run each row's pairs into an empty cache, whatever their number.

        Parameters
        ----------
        tokens : sequence of sequences of int
            For each row the tokens after its first one.
        features : sequence of torch.Tensor, shape (1, pairs, hidden)
            For each row the features of all its tokens but the last.

        Returns
        -------
        list of torch.Tensor, shape (1, pairs, hidden)
        """
        cache.expect(max(map(len, tokens)))
        guesses = []
        for row, (own, states) in enumerate(zip(tokens, features, strict=True)):
            guesses.append(self.features([own], states, cache.row(row)))
            cache.lengths[row] = len(own)
        cache.new = 0
        return guesses

    def logits(self, features: Any) -> Any:
        """LM head of the target over features."""
        return self.network.logits(features)


def draft_layers(layers: int) -> int:
    """How many layers a draft of a target of so many has, if nothing is said."""
    return max(1, int(layers * DRAFT_SHARE - 0.5))


def truncated(network: Network, layers: int) -> Any:
    """The first layers of a target and its last norm, as a model of its own.

    Parameters
    ----------
    network : Network
        The target.
    layers : int
        How many of its layers are copied; embeddings and LM head are shared.

    Returns
    -------
    torch.nn.Module
        A model of the target's class, for ``Network(...)``.
    """
    target, body = network.model, network.model.get_decoder()
    draft = _like(network, type(target)(_shorter(target.config, layers)))
    own = draft.get_decoder()
    for mine, theirs in zip(own.layers, body.layers, strict=False):
        mine.load_state_dict(theirs.state_dict())
    own.norm.load_state_dict(body.norm.state_dict())
    draft.set_input_embeddings(target.get_input_embeddings())
    draft.set_output_embeddings(target.get_output_embeddings())
    return draft


def own_parameters(draft: Any) -> dict[str, Any]:
    """Those weights of a truncated draft that are its own: its layers and its last norm."""
    shared = {id(draft.get_input_embeddings().weight), id(draft.get_output_embeddings().weight)}
    return {name: one for name, one in draft.named_parameters() if id(one) not in shared}


def _like(network: Network, module: Any) -> Any:
    """In the target's type and place, ready to use, not to train."""
    module = module.to(device=network.device, dtype=network.model.dtype).eval()
    return module.requires_grad_(False)


def _shorter(config: Any, layers: int) -> Any:
    shorter = copy.deepcopy(config)
    shorter.num_hidden_layers = layers
    kinds = getattr(shorter, "layer_types", None)
    if kinds:
        shorter.layer_types = kinds[:layers]
    if hasattr(shorter, "quantization_config"):
        del shorter.quantization_config
    return shorter


@cache
def _modules() -> tuple[Any, Any]:
    """Classes of the heads and of the EAGLE layer."""
    import torch

    nn: Any = torch.nn

    class MedusaHeads(nn.Module):  # type: ignore[misc]
        def __init__(self, hidden: int, count: int) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(count))
            for block in self.blocks:
                nn.init.zeros_(block.weight)
                nn.init.zeros_(block.bias)

        def forward(self, states: Any) -> Any:
            blocks = (states + nn.functional.silu(block(states)) for block in self.blocks)
            return torch.stack(list(blocks))

    class EagleLayer(nn.Module):  # type: ignore[misc]
        def __init__(self, body: Any) -> None:
            super().__init__()
            hidden = body.config.hidden_size
            self.fc = nn.Linear(2 * hidden, hidden)
            self.body = type(body)(_shorter(body.config, 1))
            self.body.embed_tokens = nn.Identity()
            self.body.norm = nn.Identity()

        def forward(self, embeddings: Any, features: Any, **how: Any) -> Any:
            """As the body of a model: ``position_ids``, ``attention_mask``, ``cache``."""
            joined = self.fc(torch.cat((embeddings, features), dim=-1))
            out = self.body(inputs_embeds=joined, use_cache=how.get("cache") is not None, **how)
            return out.last_hidden_state

    return MedusaHeads, EagleLayer
