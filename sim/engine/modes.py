"""Modes sequences switch between, and what is drawn for a request in each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.acceptance import Law
from models.mixed_modes import MixedModes
from models.strategies import Strategy
from sim.engine.path import Counts


class Mode(NamedTuple):
    """One mode of a strategy.

    Attributes
    ----------
    name : str
    law : int
        Which of the laws draws its steps.
    levels : int
        Most draft tokens a step accepts.
    drafted, width : int
        Draft tokens and query tokens of a step, where its law leaves them constant.
    slots : int
        KV slots a sequence reserves past its verified tokens.
    refill_steps : int
        Steps that accept nothing after a sequence has switched to it.
    network : int or None
        Which draft network with a KV cache of its own it runs.
    """

    name: str
    law: int
    levels: int
    drafted: int
    width: int
    slots: int
    refill_steps: int
    network: int | None


@dataclass(frozen=True)
class Modes:
    """Everything the engine needs of a strategy whose sequences switch.

    Attributes
    ----------
    strategy : Strategy
        Says how modes are chosen.
    modes : tuple of Mode
    laws : tuple of Law
    time : MixedModes
    start : int
        Mode a sequence starts in.
    reads_others : bool
        Signals may read what another request would accept.
    """

    strategy: Strategy
    modes: tuple[Mode, ...]
    laws: tuple[Law, ...]
    time: MixedModes
    start: int
    reads_others: bool = False

    def arrays(self) -> ModeArrays:
        """The numbers of all modes."""
        rows = [(*m[1:-1], -1 if m.network is None else m.network) for m in self.modes]
        return ModeArrays(*np.array(rows, dtype=np.int64).T)

    @property
    def networks(self) -> int:
        """Draft networks with a KV cache of their own."""
        return 1 + max((m.network for m in self.modes if m.network is not None), default=-1)


class ModeArrays(NamedTuple):
    """Fields of `Mode` by mode, shape (modes,); ``network`` is -1 where there is none."""

    law: Counts
    levels: Counts
    drafted: Counts
    width: Counts
    slots: Counts
    refill_steps: Counts
    network: Counts


class Latent(NamedTuple):
    """Steps of one request as one law draws them, as many as it could ever need.

    Attributes
    ----------
    accepted : int64, shape (steps,)
        Draft tokens the target would accept.
    drafted, width : int64, shape (steps,), or None
        Draft tokens and query tokens; None where they are the same every step.
    """

    accepted: Counts
    drafted: Counts | None
    width: Counts | None


class Drawn(NamedTuple):
    """What is drawn for one request, by law; and the same of an unrelated request.

    Attributes
    ----------
    own : tuple of Latent
    other : tuple of Latent
        What a signal without power reads.
    """

    own: tuple[Latent, ...]
    other: tuple[Latent, ...]


def drawn(
    laws: tuple[Law, ...],
    seed: int,
    ids: Counts,
    tokens: Counts,
    domains: Counts,
    prompts: Counts,
) -> list[tuple[Latent, ...]]:
    """Latent steps of requests, by law: request ``r`` gets ``tokens[r]`` steps of each.

    Parameters
    ----------
    laws : tuple of Law
    seed : int
    ids, tokens, domains, prompts : int64, shape (n,)
        As `models.laws.Law.sampler` takes them.
    """
    each: list[list[Latent]] = []
    cuts = np.cumsum(tokens)[:-1]

    def parts(flat: Counts | None) -> list[Counts] | list[None]:
        return [None] * len(ids) if flat is None else np.split(flat, cuts)

    for law in laws:
        sample = law.sampler(seed, ids, tokens, domains, prompts).sample(tokens)
        rows = zip(*map(parts, sample), strict=True)
        each.append([Latent(*row) for row in rows])
    return [tuple(latents) for latents in zip(*each, strict=True)]
