"""What is decoded, by which strategy, and in which order."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

STEADY = "prose"
"""Domain a stream goes over to, where it is among those asked for: drafts are worst at it."""

Key = tuple[str, str, int]
"""Strategy, domain, number of the prompt within it."""


class Encoded(NamedTuple):
    """A prompt as tokens: its domain, and its number within that."""

    domain: str
    number: int
    tokens: tuple[int, ...]

    @property
    def digest(self) -> str:
        """Tells whether it is the same prompt as in an earlier run."""
        return hashlib.sha256(repr(self.tokens).encode()).hexdigest()[:16]

    def seed(self, seed: int) -> int:
        """Of what is sampled for it, the same whatever else is decoded."""
        words = (seed, zlib.crc32(self.domain.encode()), self.number)
        return int(np.random.SeedSequence(words).generate_state(1)[0])


class Batch(NamedTuple):
    """Prompts of one domain that a strategy decodes side by side."""

    label: str
    prompts: tuple[Encoded, ...]

    @property
    def domain(self) -> str:
        """Of all its prompts."""
        return self.prompts[0].domain


def stream_of(domains: Sequence[str]) -> tuple[str, ...]:
    """Domains of a prompt stream, one after the other: the last asked for, then prose.

    Without prose among the others the first follows; a single domain is a stream of its own.
    """
    *others, last = domains
    if not others:
        return (last,)
    return last, STEADY if STEADY in others else others[0]


def plan(
    prompts: Mapping[str, Sequence[Encoded]],
    labels: Sequence[str],
    streaming: Collection[str] = (),
    rows: int = 1,
    done: Collection[Key] = (),
) -> list[Batch]:
    """Order of work: every strategy is at it all the time, so a slow minute touches all alike.

    Parameters
    ----------
    prompts : mapping
        Of each domain.
    labels : sequence of str
        Strategies.
    streaming : collection of str
        Those of them that take the prompts of `stream_of` in order; the others take the first
        prompts of all domains, then the second ones, and so on.
    rows : int
        Prompts side by side.
    done : collection of Key
        What an earlier run has done.
    """
    placed = []
    for order, label in enumerate(labels):
        left = {
            domain: [one for one in own if (label, domain, one.number) not in done]
            for domain, own in prompts.items()
        }
        chunks = {domain: list(_chunks(own, rows)) for domain, own in left.items()}
        if label in streaming:
            queue = [chunk for domain in stream_of(list(prompts)) for chunk in chunks[domain]]
        else:
            queue = list(_in_turn(list(chunks.values())))
        placed += [
            (place / len(queue), order, Batch(label, chunk)) for place, chunk in enumerate(queue)
        ]
    return [batch for _, _, batch in sorted(placed, key=lambda one: one[:2])]


def _chunks(prompts: Sequence[Encoded], rows: int) -> Iterator[tuple[Encoded, ...]]:
    return (tuple(prompts[start : start + rows]) for start in range(0, len(prompts), rows))


def _in_turn(
    queues: Sequence[Sequence[tuple[Encoded, ...]]],
) -> Iterator[tuple[Encoded, ...]]:
    for turn in range(max(map(len, queues), default=0)):
        yield from (queue[turn] for queue in queues if turn < len(queue))
