"""The counts a sweep goes over: tokens, sequences, contexts."""

from __future__ import annotations

from typing import NamedTuple


class Grid(NamedTuple):
    """Counts a sweep goes over.

    ``largest`` bounds batch x (context + query) tokens, ``head_rows`` the rows of the LM head.
    """

    m: tuple[int, ...]
    batch: tuple[int, ...]
    context: tuple[int, ...]
    query: tuple[int, ...]
    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    stream_bytes: tuple[int, ...]
    message_bytes: tuple[int, ...]
    largest: int
    head_rows: int


_MB = 1_000_000

CUDA = Grid(
    m=(
        *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 257, 288, 320, 384, 448),
        *(512, 1024, 2048, 4096),
    ),
    batch=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    context=(128, 256, 512, 1024, 2048, 4096, 8192),
    query=(1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64),
    prompt=(128, 256, 512, 1024, 2048, 4096, 8192),
    sampled=(1, 8, 64, 256),
    stream_bytes=(256 * _MB, 1024 * _MB, 4096 * _MB),
    message_bytes=tuple(2**power for power in range(12, 29)),
    largest=524_288,
    head_rows=1024,
)
CPU = Grid(
    # Verification takes a few tokens more than a power of two, where kernels change.
    m=(1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512),
    batch=(1, 2, 4, 8),
    context=(64, 128, 256, 512, 1024),
    query=(1, 2, 4, 5, 8, 16, 24, 32, 64),
    prompt=(64, 128, 256, 512),
    sampled=(1, 8, 64),
    stream_bytes=(256 * _MB, 512 * _MB),
    message_bytes=(),
    largest=9_000,
    head_rows=512,
)


def grid(device: str, *, quick: bool = False) -> Grid:
    """Counts to go over on ``cuda`` or ``cpu``; ``quick`` takes what a fit needs of each."""
    full = CUDA if device == "cuda" else CPU
    if not quick:
        return full
    return full._replace(
        m=full.m[::2],
        batch=tuple(b for b in full.batch if b in (1, 4, 8)),
        context=full.context[::-2][::-1],
        query=tuple(q for q in full.query if q in (1, 8)),
        prompt=full.prompt[1:4],
        sampled=full.sampled[:2],
        stream_bytes=full.stream_bytes[:1],
        message_bytes=full.message_bytes[::8],
        head_rows=64,
    )
