"""Recorded requests repeated: acceptance as it was measured, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.acceptance_file import Recorded
from models.laws import Summary
from models.paths import REPLAY, Floats, Ints, Sample, Sampler, request_keys, uniforms_at

_SEGMENTS = 4
"""Recorded requests strung together at first; doubled until they reach."""


class Records(NamedTuple):
    """Recorded requests of every domain, their steps end to end.

    Attributes
    ----------
    accepted, drafted : int64, shape (steps,)
        Draft tokens accepted and verified.
    starts, lengths : int64, shape (requests,)
        First step of each recorded request, and its steps.
    first, number : int64, shape (domains,)
        First recorded request of a domain, and how many it has.
    slowest : float64, shape (domains,)
        Least tokens a step of a recorded request.
    """

    accepted: Ints
    drafted: Ints
    starts: Ints
    lengths: Ints
    first: Ints
    number: Ints
    slowest: Floats


def records_of(domains: Sequence[Recorded], drafted: int) -> Records:
    """Lay the records of all domains end to end; ``drafted`` where a record leaves it out."""
    steps = [recorded.steps() for recorded in domains]
    accepted = [taken for taken, _ in steps]
    verified = [np.full(taken.size, drafted) if some is None else some for taken, some in steps]
    each = [recorded.lengths for recorded in domains]
    number, lengths = np.array([one.size for one in each]), np.concatenate(each)
    slowest = [
        1.0 + float((np.add.reduceat(taken, np.cumsum(one) - one) / one).min())
        for taken, one in zip(accepted, each, strict=True)
    ]
    return Records(
        np.concatenate(accepted),
        np.concatenate(verified),
        np.cumsum(lengths) - lengths,
        lengths,
        np.cumsum(number) - number,
        number,
        np.array(slowest),
    )


@dataclass(frozen=True)
class ReplayLaw(Summary):
    """Each request repeats a recorded one of its domain, and then others until it has its tokens.

    Attributes
    ----------
    varies : bool
        The verified tokens are those of the record; else the same every step.
    """

    records: Records
    varies: bool

    def sampler(
        self, seed: int, ids: Ints, tokens: Ints, domains: Ints, prompts: Ints | None = None
    ) -> Sampler:
        """See `Law.sampler`: request i repeats record i, modulo their number, then hashed ones."""
        records = self.records
        slowest = records.slowest[domains]
        reach = (tokens / slowest).astype(np.int64) + records.lengths.max(initial=0)

        def sample(counts: Ints) -> Sample:
            steps = self._steps(seed, ids, counts, domains)
            accepted = records.accepted[steps]
            if not self.varies:
                return Sample(accepted)
            drafted = records.drafted[steps]
            return Sample(accepted, drafted, 1 + drafted)

        return Sampler(np.minimum(tokens, reach), sample)

    def _steps(self, seed: int, ids: Ints, counts: Ints, domains: Ints) -> Ints:
        """Recorded step that each step repeats, flat: shape (sum(counts),)."""
        records, keys = self.records, request_keys(seed, ids, REPLAY)
        segments = _SEGMENTS
        while True:
            uniforms = uniforms_at(keys[:, None], np.arange(segments))
            pick = (uniforms * records.number[domains][:, None]).astype(np.int64)
            # The recorded prompts in their order repeat just what each of them did.
            pick[:, 0] = ids % records.number[domains]
            pick += records.first[domains][:, None]
            lengths = records.lengths[pick]
            ends = np.cumsum(lengths, axis=1)
            if (ends[:, -1] >= counts).all():
                break
            segments *= 2
        kept = np.clip(counts[:, None] - (ends - lengths), 0, lengths).ravel()
        inside = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
        steps: Ints = np.repeat(records.starts[pick].ravel(), kept) + inside
        return steps
