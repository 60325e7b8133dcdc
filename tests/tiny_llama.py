"""A tiny Llama with random weights in float64, and what it says to tokens run all over again."""

from __future__ import annotations

from typing import Any

VOCABULARY = 23


def tiny_llama(layers: int = 2, seed: int = 0) -> Any:
    """Queries share keys and values, and the weights are wide enough for opinions."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        initializer_range=0.4,
    )
    return LlamaForCausalLM(config).double().eval()


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
