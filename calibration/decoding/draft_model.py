"""A small model drafts a chain of tokens, the target verifies them in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.decoding.decoder import Row, Watch
from calibration.decoding.network import Network
from calibration.decoding.sampling import Sampling, accept, draw, generators
from calibration.decoding.verify import accepted_chain
from models.schema import ModelError


class DraftModel:
    """``k`` passes of a draft model a step, over any number of sequences.

    Greedy, or by speculative sampling at the temperature of ``sampling``, the draft's own as well.
    The draft keeps a KV cache and catches up with what it lacks in its first pass.

    Parameters
    ----------
    target, draft : Network
    k : int
        Draft tokens a step.
    name : str
        What ``draft`` of a scenario says: catalogue name or config.json.
    sampling : Sampling, optional
        By default greedy.

    Attributes
    ----------
    limit : int or None
        Most tokens to draft in the next steps; 0 is plain decoding.

    Raises
    ------
    ModelError
        If the vocabularies differ; key ``--draft``.
    """

    most_rows = 1024
    note = ""

    def __init__(
        self, target: Network, draft: Network, k: int, name: str, sampling: Sampling | None = None
    ) -> None:
        own, other = (one.model.config.vocab_size for one in (target, draft))
        if own != other:
            raise ModelError(
                f"a vocabulary of {other}, the target has {own}: drafts would not be the target's "
                f"tokens, got '{name}'",
                "--draft",
            )
        self._target, self._draft, self._k = target, draft, k
        self._sampling = sampling or Sampling()
        self.label = "draft_model_sampled" if self._sampling.temperature else "draft_model"
        self.strategy = {"kind": "draft_model", "draft": name, "k": k}
        self.limit: int | None = None

    def prefill(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], watch: Watch
    ) -> list[int]:
        """See `Decoder.prefill`."""
        import torch

        rows = len(prompts)
        self._cache, self._draft_cache = self._target.new_cache(rows), self._draft.new_cache(rows)
        self._generators = generators(seeds, self._target.device)
        self._index = list(range(rows))
        with watch.part("verify"):
            states = self._target.prefill(prompts, self._cache)
            logits = self._target.logits(torch.cat([one[:, -1] for one in states]))
        with watch.part("draft"):
            self._draft.prefill(prompts, self._draft_cache)
        with watch.part("sample"):
            first = self._sampling.choose(logits, self._generators)
        self._texts = [[*prompt, token] for prompt, token in zip(prompts, first, strict=True)]
        return first

    def step(self, watch: Watch) -> list[Row]:
        """See `Decoder.step`."""
        k = self._k if self.limit is None else min(self._k, self.limit)
        with watch.part("draft"):
            drafts, shares = self._propose(k)
        with watch.part("verify"):
            new = [[text[-1], *draft] for text, draft in zip(self._texts, drafts, strict=True)]
            logits = self._target.logits(self._target.hidden(new, self._cache))
        with watch.part("sample"):
            found = self._accept(logits, drafts, shares)
        rows = []
        for index, text, draft, (accepted, token) in zip(
            self._index, self._texts, drafts, found, strict=True
        ):
            tokens = (*draft[:accepted], token)
            rows.append(Row(index, tokens, k, accepted, k + 1, len(text)))
            text += tokens
        self._cache.commit([range(accepted + 1) for accepted, _ in found])
        self._draft_cache.cut([len(text) - 1 for text in self._texts])
        return rows

    def retain(self, rows: Sequence[int]) -> None:
        """See `Decoder.retain`."""
        self._cache.retain(rows)
        self._draft_cache.retain(rows)
        self._index = [self._index[row] for row in rows]
        self._texts = [self._texts[row] for row in rows]
        self._generators = [self._generators[row] for row in rows]

    def _propose(self, k: int) -> tuple[list[list[int]], list[Any]]:
        """Draft tokens of each row, and by level the distributions they are drawn from."""
        drafts: list[list[int]] = [[] for _ in self._texts]
        shares: list[Any] = []
        if not k:
            return drafts, shares
        new = self._unread()
        for _ in range(k):
            hidden = self._draft.hidden(new, self._draft_cache)
            self._draft_cache.commit([range(len(row)) for row in new])
            logits = self._draft.logits(hidden[:, -1])
            if self._sampling.temperature:
                shares.append(self._sampling.probabilities(logits))
                tokens = draw(shares[-1], self._generators)
            else:
                tokens = logits.argmax(dim=-1).tolist()
            for draft, token in zip(drafts, tokens, strict=True):
                draft.append(token)
            new = [[token] for token in tokens]
        return drafts, shares

    def _unread(self) -> list[list[int]]:
        """Tokens the draft's cache lacks, of every row as many as the one that lacks most."""
        cache = self._draft_cache
        most = max(
            len(text) - length for text, length in zip(self._texts, cache.lengths, strict=True)
        )
        # No row is too short for that: every step has given each of them a token.
        cache.cut([len(text) - most for text in self._texts])
        return [text[-most:] for text in self._texts]

    def _accept(
        self, logits: Any, drafts: list[list[int]], shares: list[Any]
    ) -> list[tuple[int, int]]:
        """Accepted drafts of each row, and the target's token after them."""
        if not self._sampling.temperature:
            found = []
            for draft, targets in zip(drafts, logits.argmax(dim=-1).tolist(), strict=True):
                accepted = accepted_chain(draft, targets)
                found.append((accepted, targets[accepted]))
            return found
        import torch

        wanted = self._sampling.probabilities(logits)
        offered = torch.stack(shares, dim=1) if shares else [None] * len(drafts)
        return [accept(*one) for one in zip(wanted, offered, drafts, self._generators, strict=True)]
