"""What a tiny random model says to tokens run all over again, in float64."""

from __future__ import annotations

from typing import Any

from tiny_llama import tiny_network

VOCABULARY = 23


def tiny_llama() -> Any:
    """Queries share keys and values, and the weights are wide enough for opinions."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24}
    long = {"num_hidden_layers": 2, "max_position_embeddings": 2048, "initializer_range": 0.4}
    return tiny_network(0, **sizes, **long).model.double()


def afresh(model: Any, tokens: list[int]) -> Any:
    """Hidden states of every token, shape (tokens, hidden): one pass, no cache, causal order."""
    import torch

    out = model.get_decoder()(input_ids=torch.tensor([tokens]), use_cache=False)
    return out.last_hidden_state[0]


def next_shares(model: Any, tokens: list[int], temperature: float) -> Any:
    """Distribution of the token after these."""
    import torch

    logits = model.get_output_embeddings()(afresh(model, tokens)[-1])
    return torch.softmax(logits / temperature, dim=-1)
