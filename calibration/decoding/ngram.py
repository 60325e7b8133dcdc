"""Prompt lookup: what followed the last tokens when they first occurred is the draft."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.network import Network
from calibration.decoding.stream import Stream, StreamDecoder, chain_step


class NgramIndex:
    """Where each n-gram of a growing sequence first occurred.

    The longest n-gram that occurred before decides, and its first occurrence, which may overlap
    the end of the sequence: as in transformers (``PromptLookupCandidateGenerator``), which looks
    down to single tokens. vLLM too takes the first one; there both lengths are options.

    Parameters
    ----------
    longest, shortest : int
        Tokens of the n-grams looked for.
    """

    def __init__(self, longest: int, shortest: int) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._next: dict[tuple[int, ...], int] = {}
        self._seen = 0

    def look_up(self, tokens: Sequence[int], k: int) -> list[int]:
        """Up to ``k`` tokens that followed the end of ``tokens`` before; empty if it is new.

        Parameters
        ----------
        tokens : sequence of int
            The sequence so far: that of the last call and what came since.
        k : int
        """
        for end in range(self._seen + 1, len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._next.setdefault(tuple(tokens[end - size : end]), end)
        self._seen = max(self._seen, len(tokens) - 1)
        for size in self._sizes:
            start = self._next.get(tuple(tokens[-size:]))
            if start is not None:
                return list(tokens[start : start + k])
        return []


class Ngram(StreamDecoder):
    """Up to ``k`` draft tokens a step, none where nothing matches.

    Parameters
    ----------
    target : Network
    k : int
        Most draft tokens.
    longest, shortest : int
        Tokens of the n-grams looked for.
    label : str
        Name in tables.

    Attributes
    ----------
    limit : int or None
        Most tokens to draft in the next steps; 0 is plain decoding.
    """

    def __init__(
        self, target: Network, k: int = 3, longest: int = 3, shortest: int = 1, label: str = "ngram"
    ) -> None:
        super().__init__(target, label, {"kind": "ngram", "k": k})
        self._k, self._sizes = k, (longest, shortest)
        self.limit: int | None = None

    def begin(self, stream: Stream, seed: int, watch: Watch) -> None:
        """See `StreamDecoder.begin`; the prompt is indexed as part of the prefill."""
        super().begin(stream, seed, watch)
        with watch.part("draft"):
            self._index = NgramIndex(*self._sizes)
            self._index.look_up(stream.tokens, self._k)

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        k = self._k if self.limit is None else min(self._k, self.limit)
        with watch.part("draft"):
            drafts = self._index.look_up(self.stream.tokens, k)
        return [chain_step(self.stream, drafts, watch)]
