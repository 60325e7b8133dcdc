"""One sequence on the target: what a decoder of single sequences drafts from and verifies on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.network import Network
from calibration.decoding.verify import accepted_chain


class Stream:
    """Tokens of one sequence, their KV in the target and, if asked for, their hidden states.

    Several decoders can take turns on one stream: each only looks at what is new in it.

    Parameters
    ----------
    target : Network
    keep_states : bool
        Whether to keep the hidden states of tokens until `take_states`.

    Attributes
    ----------
    tokens : list of int
        Prompt and emitted tokens; all but the last have their KV in ``cache``.
    cache : KvCache
    """

    def __init__(self, target: Network, keep_states: bool = False) -> None:
        self.target, self.cache = target, target.new_cache(1)
        self.tokens: list[int] = []
        self._keep, self._states = keep_states, list[Any]()
        self._pass: Any = None

    def prefill(self, prompt: Sequence[int], watch: Watch) -> int:
        """Run the prompt; the first token."""
        with watch.part("verify"):
            (hidden,) = self.target.prefill([prompt], self.cache)
            logits = self.target.logits(hidden[0, -1:])
        with watch.part("sample"):
            first = int(logits.argmax())
        self.tokens = [*prompt, first]
        if self._keep:
            self._states = [hidden]
        return first

    def verify(
        self,
        tokens: Sequence[int],
        watch: Watch,
        depths: Sequence[int] | None = None,
        seen: Any = None,
    ) -> list[int]:
        """Run new tokens, the last of the sequence first; what the target chooses after each.

        See `Network.hidden` for ``depths`` and ``seen``. Nothing stays without `advance`.
        """
        with watch.part("verify"):
            self._pass = self.target.hidden([tokens], self.cache, depths, seen)
            logits = self.target.logits(self._pass[0])
        with watch.part("sample"):
            chosen: list[int] = logits.argmax(dim=-1).tolist()
        return chosen

    def advance(self, places: Sequence[int], emitted: Sequence[int]) -> int:
        """Keep these places of the last pass and append what the step emits.

        Returns
        -------
        int
            Tokens of the sequence before.
        """
        before = len(self.tokens)
        self.cache.commit([places])
        self.tokens += emitted
        if self._keep:
            self._states.append(self._pass[:, list(places)])
        return before

    def take_states(self, count: int | None = None) -> Any:
        """Hidden states not taken yet, oldest first, shape (1, tokens, hidden).

        Parameters
        ----------
        count : int, optional
            How many; by default all up to the last token with KV.
        """
        import torch

        states = self._states[0] if len(self._states) == 1 else torch.cat(self._states, dim=1)
        self._states = [] if count is None else [states[:, count:]]
        return states[:, :count]


def chain_step(stream: Stream, drafts: Sequence[int], watch: Watch) -> Row:
    """Verify a chain of drafts greedily and keep what is accepted.

    Parameters
    ----------
    stream : Stream
    drafts : sequence of int
        May be empty.
    watch : Watch
    """
    chosen = stream.verify([stream.tokens[-1], *drafts], watch)
    accepted = accepted_chain(drafts, chosen)
    emitted = chosen[: accepted + 1]
    context = stream.advance(range(accepted + 1), emitted)
    return Row(0, tuple(emitted), len(drafts), accepted, 1 + len(drafts), context)


class StreamDecoder:
    """What decoders of one sequence share: a stream, and state that starts anew with each prompt.

    Attributes
    ----------
    stream : Stream
        The sequence being decoded.
    """

    most_rows = 1
    note = ""
    needs_states = False

    def __init__(self, target: Network, label: str, strategy: dict[str, Any]) -> None:
        self.label, self.strategy, self._target = label, strategy, target
        self.stream = Stream(target)

    def prefill(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], watch: Watch
    ) -> list[int]:
        """See `Decoder.prefill`.

        Raises
        ------
        ValueError
            Unless there is exactly one prompt.
        """
        (prompt,), (seed,) = prompts, seeds
        stream = Stream(self._target, self.needs_states)
        first = stream.prefill(prompt, watch)
        self.begin(stream, seed, watch)
        return [first]

    def begin(self, stream: Stream, seed: int, watch: Watch) -> None:
        """Take up a stream whose prompt has just been run; other decoders may share it."""
        self.stream = stream

    def retain(self, rows: Sequence[int]) -> None:
        """See `Decoder.retain`: a single sequence stays or the batch has ended."""
