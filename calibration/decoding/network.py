"""A causal language model with its own KV cache, as decoders use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.decoding.cache import STEP_TOKENS, KvCache


class Network:
    """Forward passes of a causal language model of transformers.

    Parameters
    ----------
    model : torch.nn.Module
        Such as ``LlamaForCausalLM``; its attention must take four-dimensional masks (``sdpa``).
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._body, self._head = model.get_decoder(), model.get_output_embeddings()
        config = model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None)
        self._cache_sizes = (
            config.num_hidden_layers,
            heads,
            size or config.hidden_size // config.num_attention_heads,
        )

    @property
    def device(self) -> Any:
        """Where its weights are."""
        return self.model.device

    def new_cache(self, rows: int) -> KvCache:
        """An empty cache of so many sequences."""
        import torch

        layers, heads, size = self._cache_sizes
        shape = (layers, rows, heads, STEP_TOKENS, size)
        keys, values = (
            torch.zeros(shape, dtype=self.model.dtype, device=self.device) for _ in range(2)
        )
        return KvCache(keys, values, [0] * rows)

    def hidden(
        self,
        tokens: Sequence[Sequence[int]],
        cache: KvCache,
        depths: Sequence[int] | None = None,
        seen: Any = None,
    ) -> Any:
        """Run the layers over new tokens of every row, which the cache then waits to `commit`.

        Parameters
        ----------
        tokens : sequence of sequences of int, shape (rows, new)
        cache : KvCache
        depths : sequence of int, optional
            Position of each new token behind its row; by default 0, 1, ...
        seen : torch.Tensor of bool, shape (new, new), optional
            Which new tokens each new token attends to; by default those up to itself. All attend
            to the whole row before them.

        Returns
        -------
        torch.Tensor, shape (rows, new, hidden)
            After the last norm.
        """
        rows, how = laid_out(tokens, cache, self.device, depths, seen)
        out = self._body(input_ids=rows, use_cache=True, **how)
        return out.last_hidden_state

    def logits(self, hidden: Any) -> Any:
        """LM head over hidden states."""
        return self._head(hidden)

    def prefill(self, prompts: Sequence[Sequence[int]], cache: KvCache) -> list[Any]:
        """Run each prompt into its row of an empty cache.

        Returns
        -------
        list of torch.Tensor
            Hidden states of each prompt, shape (1, tokens, hidden).
        """
        longest = max(map(len, prompts))
        cache.expect(longest)
        states = []
        for row, prompt in enumerate(prompts):
            alone = cache.row(row)
            states.append(self.hidden([prompt], alone))
            cache.lengths[row] = len(prompt)
        cache.new = 0
        return states


def laid_out(
    tokens: Sequence[Sequence[int]],
    cache: KvCache,
    device: Any,
    depths: Sequence[int] | None = None,
    seen: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """New tokens as a tensor, and what a body wants to know of them; the cache makes room.

    Parameters
    ----------
    tokens, cache, depths, seen
        As in `Network.hidden`.
    device : torch.device

    Returns
    -------
    tokens : torch.Tensor, shape (rows, new)
    how : dict
        ``position_ids``, ``attention_mask`` and ``cache``.
    """
    import torch

    rows = torch.tensor(list(map(list, tokens)), device=device)
    new = rows.shape[1]
    cache.expect(new)
    after = torch.arange(new) if depths is None else torch.tensor(list(depths))
    places = (torch.tensor(cache.lengths)[:, None] + after[None, :]).to(device)
    mask = attention_mask(cache, new, seen)
    placed = None if mask is None else mask.to(device)
    return rows, {"position_ids": places, "attention_mask": placed, "cache": cache}


def attention_mask(cache: KvCache, new: int, seen: Any = None) -> Any:
    """Which keys each new token sees, shape (rows, 1, new, keys); None where causal order says it.

    Parameters
    ----------
    cache : KvCache
    new : int
        New tokens of each row.
    seen : torch.Tensor of bool, shape (new, new), optional
        Which new tokens each of them attends to.
    """
    import torch

    lengths, longest = cache.lengths, cache.longest
    if seen is None and cache.level and (new == 1 or longest == 0):
        return None
    among = torch.ones(new, new, dtype=torch.bool).tril() if seen is None else seen
    mask = torch.zeros(len(lengths), 1, new, longest + new, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, 0, :, :length] = True
        mask[row, 0, :, length : length + new] = among
    return mask
