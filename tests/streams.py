"""Prompts of made-up domains, and decoders of single streams held against plain decoding."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from calibration.decoding.autoregressive import Autoregressive
from calibration.decoding.decoder import Decoder, Generation, Watch, decode
from calibration.decoding.network import Network

DOMAINS = ("repetitive", "random", "counting", "short", "long")


def prompt_of(domain: str, number: int, vocabulary: int) -> list[int]:
    rng = np.random.default_rng([DOMAINS.index(domain), number])
    if domain == "repetitive":
        return [int(token) for token in rng.integers(0, vocabulary, 4)] * 6
    if domain == "counting":
        return [(number * 7 + step) % vocabulary for step in range(20)]
    length = {"random": 24, "short": 1 + number % 3, "long": 260}[domain]
    return [int(token) for token in rng.integers(0, vocabulary, length)]


def prompts_of(vocabulary: int) -> list[list[int]]:
    return [prompt_of(domain, number, vocabulary) for domain in DOMAINS for number in range(4)]


def generate(
    decoder: Decoder,
    prompt: Sequence[int],
    tokens: int = 40,
    stop: Collection[int] = (),
    seed: int = 0,
) -> Generation:
    return decode(decoder, [prompt], [seed], tokens, stop, Watch(time.perf_counter))


def plain(
    network: Network, prompt: Sequence[int], tokens: int = 40, stop: Collection[int] = ()
) -> tuple[int, ...]:
    return generate(Autoregressive(network), prompt, tokens, stop).tokens[0]


def accepted(generation: Generation) -> list[int]:
    return [step.rows[0].accepted for step in generation.steps]


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
