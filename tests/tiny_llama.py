"""A random model of three layers, for tests of what runs on a real one."""

from __future__ import annotations

from typing import Any

from calibration.decoding.network import Network

VOCABULARY, HIDDEN, LAYERS = 97, 32, 3


def tiny_network(seed: int = 0, **config: Any) -> Network:
    """A ``LlamaForCausalLM`` in fp32, the same for the same seed."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**(sizes | config)))
    return Network(model.eval().requires_grad_(False))
