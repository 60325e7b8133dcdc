"""Acceptance drawn from the simulator's own laws for requests like the recorded ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibration.acceptance.fit import Stated
from calibration.acceptance.statistics import Counts
from calibration.acceptance.trace import Trace
from models import catalog
from models.acceptance_block import Acceptance
from models.population import logit, sigmoid
from models.strategies import Strategy

ENGINE = "transformers"
"""Laws ask an engine only how wide it verifies, which accepted counts do not depend on."""
_RATES = ("match_rate", "match_stay", "alpha_by_pos")


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


def moved(stated: Stated, relative: float, rng: np.random.Generator, count: int) -> list[Stated]:
    """Blocks whose tau is off by a relative standard error, every logit shifted alike."""
    step = 0.01
    tau = _tau(stated)
    slope = (_tau(_shifted(stated, step)) - _tau(_shifted(stated, -step))) / (2 * step)
    sd = relative * tau / max(slope, 1e-9)
    return [_shifted(stated, by) for by in sd * rng.standard_normal(count)]


def _shifted(stated: Stated, by: float) -> Stated:
    rates = {
        key: sigmoid(logit(np.atleast_1d(stated[key])) + by) for key in _RATES if key in stated
    }
    rates = {key: np.clip(value, 1e-4, 1 - 1e-4) for key, value in rates.items()}
    return {
        **stated,
        **{
            key: value.tolist() if isinstance(stated[key], list) else float(value[0])
            for key, value in rates.items()
        },
    }


def _tau(stated: Stated) -> float:
    share = stated.get("match_rate", 1.0)
    return 1.0 + float(share * np.cumprod(stated["alpha_by_pos"]).sum())
