"""Acceptance drawn from the simulator's own laws for requests like the recorded ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibration.acceptance.statistics import Counts
from calibration.acceptance.trace import Trace
from models import catalog
from models.acceptance_block import Acceptance
from models.strategies import Strategy

ENGINE = "transformers"
"""Laws ask an engine only how wide it verifies, which accepted counts do not depend on."""


def draw(
    strategy: Strategy, blocks: list[dict[str, Any]], trace: Trace, replicates: int, seed: int
) -> list[Counts]:
    """Replicates of a trace's requests: their prompts and lengths, steps drawn from a law.

    Parameters
    ----------
    strategy : Strategy
    blocks : list of dict
        Acceptance blocks; the replicates take turns with them.
    trace : Trace
    replicates, seed : int
    """
    names = tuple(f"level {i}" for i in range(len(blocks)))
    by_domain = {n: Acceptance.model_validate(b) for n, b in zip(names, blocks, strict=True)}
    drawn = strategy.model_copy(update={"acceptance": Acceptance(by_domain=by_domain)})
    law = drawn.law(catalog.engine(ENGINE), names)
    n = trace.requests
    ids = np.arange(n * replicates)
    domains = ids // n % len(blocks)
    tokens, prompts = (np.tile(values, replicates) for values in (trace.tokens(), trace.prompts()))
    paths = law.paths(seed, ids, tokens, domains, prompts)
    return [
        _part(paths.accepted, paths.offsets[i * n : (i + 1) * n + 1]) for i in range(replicates)
    ]


def _part(accepted: Any, offsets: Any) -> Counts:
    return Counts(accepted[offsets[0] : offsets[-1]], offsets - offsets[0])
