"""Entries of the acceptance file from fits, intervals and recorded steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from calibration.acceptance.chains import fit_levels
from calibration.acceptance.fit import Fit, Stated
from calibration.acceptance.heads import HeadRates, head_rates
from calibration.acceptance.interval import Interval, tau_interval
from calibration.acceptance.lookup import fit_lookup
from calibration.acceptance.trace import Trace
from models.acceptance_block import Acceptance
from models.acceptance_file import Entry, Recorded, Shape, Tau
from models.schema import ModelError
from models.strategies import Strategy
from models.strategies.lookahead import Lookahead
from models.strategies.medusa import Medusa
from models.strategies.ngram import Ngram

DIGITS = 4
HEADS = "_heads"
"""Of the entry with rates by head and rank, behind the label of the strategy."""


class Measured(NamedTuple):
    """One strategy in one domain."""

    label: str
    domain: str
    trace: Trace
    interval: Interval
    fit: Fit


def measure(label: str, domain: str, strategy: Strategy, trace: Trace) -> Measured:
    """Interval of tau, and the fit of a strategy's law.

    Raises
    ------
    ModelError
        If a step accepted more tokens than the strategy can draft.
    """
    if trace.accepted.max() > strategy.depth:
        raise ModelError(
            f"accepts at most {strategy.depth} tokens a step, got {trace.accepted.max()}", label
        )
    return Measured(
        label, domain, trace, tau_interval(trace, strategy.depth), fit_of(strategy, trace)
    )


def fit_of(strategy: Strategy, trace: Trace) -> Fit:
    """Fit of a strategy's law to a trace."""
    if isinstance(strategy, Ngram):
        return fit_lookup(trace, strategy.depth)
    chain = strategy.drafted == strategy.depth
    return fit_levels(trace, strategy.depth, chain)


def block_of(stated: Stated, strategy: Strategy, trace: Trace) -> dict[str, Any]:
    """An acceptance block that states these numbers of a trace, without its uncertainty."""
    block: dict[str, Any] = dict(stated)
    if isinstance(strategy, Ngram):
        block["at_k"] = strategy.k
    if "context_slope" in stated:
        block["context_reference"] = float(np.median(trace.context))
        block["context_range"] = [int(trace.context.min()), int(trace.context.max())]
    return block


def entries_of(
    label: str, block: dict[str, Any], strategy: Strategy, domains: list[Measured]
) -> dict[str, Entry]:
    """Entries of one strategy: its fit, and for Medusa the rates of its heads by rank.

    Parameters
    ----------
    label : str
    block : dict
        As in a scenario, without the acceptance.
    strategy : Strategy
    domains : list of Measured
    """
    block = {key: value for key, value in block.items() if key != "acceptance"}
    if isinstance(strategy, Lookahead):
        block["found_share"] = found_share(strategy, [one.trace for one in domains])
    branching = strategy.drafted > strategy.depth
    shape = {"shape": Shape(drafted=strategy.drafted, depth=strategy.depth)} if branching else {}
    entry = Entry(
        strategy=block,
        **shape,
        tau={one.domain: _tau(one.interval) for one in domains},
        standard_errors={one.domain: _errors(one.fit) for one in domains},
        acceptance=Acceptance(
            by_domain={one.domain: _acceptance(one, strategy) for one in domains}
        ),
        replay={one.domain: _recorded(one.trace, strategy) for one in domains},
    )
    entries = {label: entry}
    heads = {one.domain: head_rates(one.trace) for one in domains}
    found = {domain: rates for domain, rates in heads.items() if rates is not None}
    if isinstance(strategy, Medusa) and len(found) == len(heads):
        uncertain = {one.domain: one.interval.relative for one in domains}
        entries[f"{label}{HEADS}"] = _head_entry(block, found, uncertain)
    return entries


def found_share(strategy: Lookahead, traces: list[Trace]) -> float:
    """Mean share of the ``g`` guesses that the pool held, from the tokens verified.

    Raises
    ------
    ModelError
        If the tokens drafted do not belong to this window and these guesses.
    """
    drafted = np.concatenate([trace.drafted for trace in traces])
    found = (drafted + 1) / (strategy.n - 1) - strategy.w
    if found.min() < 0 or found.max() > strategy.g:
        raise ModelError(
            f"verifies {strategy.w * (strategy.n - 1) - 1} to {strategy.drafted} tokens beyond "
            f"the current one, got {drafted.min()} to {drafted.max()}",
            "lookahead",
        )
    return max(round(float(found.mean()) / strategy.g, DIGITS), 10.0**-DIGITS)


def _acceptance(one: Measured, strategy: Strategy) -> Acceptance:
    block = _rounded(block_of(one.fit.stated, strategy, one.trace))
    if one.interval.relative is not None:
        block["uncertainty"] = _rounded(one.interval.relative)
    block["basis"] = "extrapolated" if one.fit.assumed else "validated"
    return Acceptance.model_validate(block)


def _tau(interval: Interval) -> Tau:
    value, lo, hi = (_rounded(number) for number in interval[:3])
    return Tau(value=value, lo=lo, hi=hi, steps=interval.steps, requests=interval.requests)


def _errors(fit: Fit) -> dict[str, Any]:
    errors: dict[str, Any] = {**fit.errors()}
    if fit.slope is not None:
        errors["context_slope"] = fit.slope[1]
        errors["context_slope_fitted"] = fit.slope[0]
    return {key: _rounded(value) for key, value in errors.items()}


def _recorded(trace: Trace, strategy: Strategy) -> Recorded:
    spans = list(zip(trace.offsets[:-1], trace.offsets[1:], strict=True))

    def texts(values: Any) -> tuple[str, ...]:
        return tuple(" ".join(map(str, values[start:end])) for start, end in spans)

    if (trace.drafted == strategy.drafted).all():
        return Recorded(accepted=texts(trace.accepted))
    return Recorded(accepted=texts(trace.accepted), drafted=texts(trace.drafted))


def _head_entry(
    block: dict[str, Any], found: dict[str, HeadRates], uncertain: dict[str, float | None]
) -> Entry:
    by_domain = {}
    for domain, (rates, _) in found.items():
        # Cut, not rounded: the ranks of a head must not add up to more than 1.
        heads = [[int(rate * 10**DIGITS) / 10**DIGITS for rate in head] for head in rates]
        stated = {"heads": heads, "conditional": True, "basis": "extrapolated"}
        known = uncertain[domain]
        if known is not None:
            stated["uncertainty"] = _rounded(known)
        by_domain[domain] = Acceptance.model_validate(stated)
    errors = {domain: {"heads": _rounded(rates.errors)} for domain, rates in found.items()}
    return Entry(strategy=block, standard_errors=errors, acceptance=Acceptance(by_domain=by_domain))


def _rounded(value: Any) -> Any:
    """Numbers to four decimals: a hundredth of what any of them is known to."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return round(value, DIGITS) if isinstance(value, float) else value
