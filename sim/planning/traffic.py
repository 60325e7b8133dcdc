"""What is asked of a service, request by request: lengths, what a cache holds, decode steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from models.acceptance import Law
from sim.scenario.arrivals import Poisson
from sim.scenario.distributions import Floats, Ints
from sim.scenario.requests import Requests
from sim.scenario.trace.schema import Trace
from sim.scenario.workload import Workload, generate

SAMPLE = 1000
"""Requests a closed form averages over: their p95 rests on 50."""


COSTED = 100_000
"""Requests a mean length is taken over: within 0.3 % where lengths vary as much as their mean."""


class Decoding(NamedTuple):
    """Decode steps of the sampled requests under one law.

    Attributes
    ----------
    steps : float64, shape (n,)
        Steps from the first token to the last; 0 of a request of one token.
    width : float or None
        Mean query tokens of a step; None where the law leaves it constant.
    """

    steps: Floats
    width: float | None


@dataclass(frozen=True, eq=False)
class Traffic:
    """A sample of the requests of a workload; every array has shape (n,).

    Attributes
    ----------
    prompt_tokens, output_tokens : int64
        Lengths [tokens].
    cached_tokens : int64
        Prompt tokens that earlier requests have in common with it: what a prefix cache that
        forgets nothing would find [tokens].
    domain, stream : int
        Index into ``domain_names`` and ``classes``.
    domain_names : tuple of str
    classes : tuple of str or None
        SLO class of each stream.
    per_arrival : float
        Requests of what arrives: turns of a session.
    seed : int
        Seed of the workload, and of acceptance.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    domain: Ints
    stream: Ints
    domain_names: tuple[str, ...]
    classes: tuple[str | None, ...]
    per_arrival: float
    seed: int
    _drawn: dict[str, Decoding] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, seed: int, requests: int = SAMPLE) -> Traffic:
        """Draw a sample of a workload; of a trace, requests evenly spread over it.

        Parameters
        ----------
        workload : Workload
            Its arrivals do not matter, unless it is a trace.
        seed : int
        requests : int
            Size of the sample.
        """
        if not isinstance(workload.arrivals, Trace):
            workload = _alone(workload, requests)
        drawn = generate(workload, seed)
        rows = np.unique(np.linspace(0, len(drawn) - 1, requests).astype(np.int64))
        return cls(
            prompt_tokens=drawn.prompt_tokens[rows],
            output_tokens=drawn.output_tokens[rows],
            cached_tokens=_shared(drawn)[rows],
            domain=drawn.domain[rows].astype(np.int64),
            stream=drawn.stream[rows].astype(np.int64),
            domain_names=drawn.domain_names,
            classes=tuple(stream.slo_class for stream in workload.streams),
            per_arrival=len(drawn) / int((drawn.turn == 0).sum()),
            seed=seed,
        )

    def decoding(self, law: Law, key: str) -> Decoding:
        """Decode steps of every request, drawn once for all that state the same key.

        Parameters
        ----------
        law : Law
        key : str
            What the law follows from.
        """
        if key not in self._drawn:
            ids = np.arange(len(self.prompt_tokens))
            tokens = self.output_tokens - 1
            paths = law.paths(self.seed, ids, tokens, self.domain, self.prompt_tokens)
            width = None if paths.width is None else float(paths.width.mean())
            self._drawn[key] = Decoding(np.diff(paths.offsets).astype(float), width)
        return self._drawn[key]


def mean_output_tokens(workload: Workload, seed: int) -> float:
    """Mean output length of a workload whose arrivals are no trace, that costs are shared by."""
    return float(generate(_alone(workload, COSTED), seed).output_tokens.mean())


def _alone(workload: Workload, requests: int) -> Workload:
    alone = {"arrivals": Poisson(rate_per_s=1.0), "requests": requests, "duration_s": None}
    return workload.model_copy(update=alone)


def _shared(requests: Requests) -> Ints:
    """Prompt tokens up to the last node somebody had before, never the whole prompt."""
    offsets, keys, ends = requests.prefixes
    shared = np.zeros(len(requests), dtype=np.int64)
    if len(keys):
        _, first = np.unique(keys, return_index=True)
        again = np.ones(len(keys), dtype=bool)
        again[first] = False
        # A turn's node is its session's own: the turn before has computed it.
        owner = np.repeat(np.arange(len(requests)), np.diff(offsets))
        again |= (requests.turn[owner] > 0) & (keys > 0)
        np.maximum.at(shared, owner[again], ends[again])
    return np.minimum(shared, requests.prompt_tokens - 1)
