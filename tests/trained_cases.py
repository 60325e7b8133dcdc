"""Text that a tiny random model writes, for tests of what is trained on it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tiny_llama import VOCABULARY, tiny_network

from calibration.decoding.heads.corpus import Corpus, Example, Prompted
from calibration.decoding.network import Network

NEW_TOKENS = 24
STOP = 3
RUN = {"target": "tiny"}


def learnable_network(**config: Any) -> Network:
    """One whose next token is mostly a matter of the last one."""
    return tiny_network(2, **({"initializer_range": 0.2} | config))


def random_prompts(count: int, seed: int = 0) -> list[Prompted]:
    """Prompts of 4 to 12 random tokens, in two domains."""
    draw = random.Random(seed)
    return [
        Prompted(
            "ab"[place % 2],
            place // 2,
            tuple(draw.randrange(STOP + 1, VOCABULARY) for _ in range(draw.randint(4, 12))),
        )
        for place in range(count)
    ]


def written(folder: Path, network: Network, count: int = 80) -> list[Example]:
    """What the network makes of random prompts."""
    corpus = Corpus(folder, RUN)
    corpus.write(network, random_prompts(count), NEW_TOKENS, {STOP})
    return corpus.examples()
