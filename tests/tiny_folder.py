"""A folder of a random model with a tokenizer of bytes, as users have folders of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_llama import tiny_network

BYTES = 256
END = BYTES


def save_tiny(folder: Path, seed: int = 0, **config: Any) -> Path:
    """Write a model of three layers whose tokens are bytes, and an end of text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    network = tiny_network(seed, vocab_size=BYTES + 1, eos_token_id=END, bos_token_id=END, **config)
    network.model.save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)} | {"<end>": END}
    words = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(folder)
    return folder


def write_prompts(path: Path, **texts: list[str]) -> Path:
    """Prompts of one's own, domain by domain."""
    lines = [
        json.dumps({"domain": domain, "text": text})
        for domain, own in texts.items()
        for text in own
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
