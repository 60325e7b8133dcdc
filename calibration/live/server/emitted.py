"""Tokens a step, from a server's counters and gauges alone.

One meaning, that of the simulator: tokens a decode step emits on average, over all decode steps,
those without a draft included, and before the cut at the end of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from calibration.live.server.by_position import drafts_of, row
from models.strategies import fixed_types

Gauges = Mapping[str, Mapping[str, float]]

MAY_FIND_NONE = ("ngram",)
"""Kinds that look a draft up, and go without one where there is no match."""


def drafts_always(kind: str | None) -> bool:
    """Whether every decode step of a strategy has a draft; not where its kind is not known."""
    return kind in fixed_types() and kind not in MAY_FIND_NONE


def tau(
    counters: Mapping[str, float], gauges: Gauges | None = None, kind: str | None = None
) -> float | None:
    """Mean tokens a decode step emits.

    The first token of each request is of its prefill, and each step emits one more than it accepts:
    so the tokens generated, the requests and the tokens accepted tell the steps, and those with a
    draft, where counted, are the least they can be. Where the tokens or the requests are not
    counted, steps with a draft stand for all, but only of a kind that has a draft in each. SGLang
    counts no accepted tokens: there it is the tokens after the first of each request over its
    verifications, after the cut, and so a little low. With none of these, the mean of the server's
    gauge.

    Parameters
    ----------
    counters : mapping
        Increase over a stage, or the sum of several, by neutral name.
    gauges : mapping, optional
        Mean and max by neutral name.
    kind : str, optional
        Of the strategy the server ran.

    Returns
    -------
    float or None
        None where nothing was drafted or told.
    """
    counted = _counted(counters, kind)
    if counted is not None:
        return counted
    gauge = (gauges or {}).get("tau_gauge", {}).get("mean")
    return gauge if gauge else None


def tau_of_stages(
    counters: Sequence[Mapping[str, float]], gauges: Sequence[Gauges], kind: str | None = None
) -> tuple[float | None, str | None]:
    """Mean tokens a decode step emits over several stages, and what tells it.

    Parameters
    ----------
    counters, gauges : sequence of mapping
        Of each stage; one without speculation in its counters is left aside.
    kind : str, optional
        Of the strategy the server ran.

    Returns
    -------
    tau : float or None
    source : str or None
        counters | gauge; None where nothing tells it.
    """
    told = [one for one in counters if drafts_of(one) is not None or "spec_accepted" in one]
    names = set.intersection(*map(set, told)) if told else set()
    counted = _counted({name: sum(one[name] for one in told) for name in names}, kind)
    if counted is not None:
        return counted, "counters"
    means = [mean for one in gauges if (mean := one.get("tau_gauge", {}).get("mean"))]
    return (fmean(means), "gauge") if means else (None, None)


def _counted(counters: Mapping[str, float], kind: str | None) -> float | None:
    drafts, accepted = drafts_of(counters), counters.get("spec_accepted")
    if accepted is None and (by_position := row(counters, "spec_accepted_at_")):
        accepted = sum(by_position)
    tokens, requests = counters.get("generation_tokens"), counters.get("requests")
    after_first = None if tokens is None or requests is None else max(tokens - requests, 0.0)
    if accepted is None:
        return after_first / drafts if drafts and after_first else None
    if after_first is not None:
        steps = max(after_first - accepted, drafts or 0.0)
    else:
        steps = drafts or 0.0 if drafts_always(kind) else 0.0
    return 1.0 + accepted / steps if steps else None
