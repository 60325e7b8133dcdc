"""N-gram lookup whose tau alone is known, on text whose matches are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scipy.optimize import brentq

from models.acceptance import Acceptance, ngram_law
from models.population import logit, sigmoid

FAR = 5.0
DIGITS = 5


def ngram_at(stated: Mapping[str, Any], k: int, tau: float) -> dict[str, Any]:
    """Matches as likely, and as long, as ``tau`` tokens a step take.

    Parameters
    ----------
    stated : mapping
        Acceptance block with ``match_rate``, ``match_stay`` and ``alpha_by_pos``.
    k : int
        Tokens drafted on a match.
    tau : float
        Beyond what the text allows, the nearest it does.

    Returns
    -------
    dict
        The same block, all of its odds multiplied by one factor.
    """

    def off(by: float) -> float:
        return ngram_law(Acceptance.model_validate(_shifted(stated, by)), k, ("",)).tau - tau

    low, high = -FAR, FAR
    if off(low) >= 0:
        return _shifted(stated, low)
    if off(high) <= 0:
        return _shifted(stated, high)
    return _shifted(stated, float(brentq(off, low, high, xtol=1e-5)))


def _shifted(stated: Mapping[str, Any], by: float) -> dict[str, Any]:
    """All odds times ``e**by``."""

    def moved(share: float) -> float:
        return round(float(sigmoid(logit([share]) + by)[0]), DIGITS)

    rates = {name: moved(stated[name]) for name in ("match_rate", "match_stay")}
    return {**stated, **rates, "alpha_by_pos": [moved(share) for share in stated["alpha_by_pos"]]}
