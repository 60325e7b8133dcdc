"""EAGLE: one layer predicts the target's next feature, and so a chain of tokens."""

from __future__ import annotations

from typing import Any

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.heads.modules import Eagle as EagleLayer
from calibration.decoding.network import Network
from calibration.decoding.stream import Stream, StreamDecoder, chain_step


class Eagle(StreamDecoder):
    """A chain of ``k`` drafts from an EAGLE layer, verified greedily.

    The first draft pass takes the tokens of the step before with their true features, the others
    one token each with the feature guessed before; the KV of guessed features is dropped.

    Parameters
    ----------
    target : Network
    layer : torch.nn.Module
        Of `eagle_layer`.
    k : int
        Draft tokens a step.
    label : str
        Name in tables.
    """

    needs_states = True

    def __init__(self, target: Network, layer: Any, k: int = 3, label: str = "eagle") -> None:
        super().__init__(target, label, {"kind": "eagle", "k": k})
        self._layer, self._k = EagleLayer(target, layer), k

    def begin(self, stream: Stream, seed: int, watch: Watch) -> None:
        """See `StreamDecoder.begin`; the layer takes in the prompt, as drafting of the prefill.

        The last feature of the prompt is left to the first step, which then begins as all do.
        """
        super().begin(stream, seed, watch)
        self._cache = self._layer.new_cache(1)
        pairs = len(stream.tokens) - 2
        if pairs:
            with watch.part("draft"):
                states = stream.take_states(pairs)
                self._layer.prefill([stream.tokens[1:-1]], [states], self._cache)

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        with watch.part("draft"):
            drafts = self._draft()
        return [chain_step(self.stream, drafts, watch)]

    def _draft(self) -> list[int]:
        layer, cache = self._layer, self._cache
        states = self.stream.take_states()
        new = states.shape[1]
        feature = layer.features([self.stream.tokens[-new:]], states, cache)[:, -1:]
        cache.commit([range(new)])
        true_length = cache.lengths[0]
        drafts = [int(layer.logits(feature).argmax())]
        while len(drafts) < self._k:
            feature = layer.features([drafts[-1:]], feature, cache)
            cache.commit([[0]])
            drafts.append(int(layer.logits(feature).argmax()))
        cache.cut([true_length])
        return drafts
