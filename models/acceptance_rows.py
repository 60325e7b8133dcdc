"""Acceptance of one domain, from what the user states to the numbers its law draws from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.acceptance_block import SPREAD, Acceptance
from models.acceptance_file import Entry
from models.lookup_passages import Means, averaged_matches, matches_solved
from models.passages import averaged, solved
from models.paths import Floats
from models.population import (
    NgramLogits,
    Shape,
    cumulative,
    guess_survival,
    located,
    logit,
    ngram_located,
    population_tau,
)
from models.schema import Basis, ModelError, weakest
from models.trees import Tree, extended_heads, tree_depth, tree_ranks, tree_survival

PATH_EXPONENT = 0.97
"""Of marginal head accuracies: mean of .88, .94, 1.10, which give Medusa-1's tau on Vicuna-7B, 13B
and 33B with the 63-node tree (medusa_acc.csv and mt_bench logs of FasterDecoding/Medusa)."""

NGRAM_STAY = 0.84
_USUAL_NGRAM = Acceptance(
    match_rate=0.217, match_stay=NGRAM_STAY, alpha_by_pos=(0.68, 0.74, 0.771, 0.785, 0.812, 0.826)
)
"""Shape of prompt lookup where only its tau is stated: catalogue entry ``ngram_llama31_8b``."""

_INTERVAL_SD = 1.96
"""Half width of a 95 % interval in standard deviations."""

_MEASURED_SE = 0.01
"""Repeated EAGLE-3 K=7 on MT-Bench: tau 3.57, 3.53, 3.54 (vLLM PR 17504, 26191, issue 20780)."""

_DERIVED_SE = 0.03
"""One alpha solved at K=3 is 0.3-3.4 % off at K=7 (arXiv 2601.11580 traces); independent heads are
2.0-3.9 % off Medusa-1's tau."""


STEADY = (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
"""Fields of `Variation` where nothing varies within a request."""


class _Within(NamedTuple):
    """Levels of a request and of its passages; without ``step_spread`` it was not stated."""

    spread: float
    step_spread: float | None
    step_memory: float


class _Stated(NamedTuple):
    """Conditional acceptance logits by depth as measured, and the tau they must give there."""

    logits: Floats
    tau: float
    derived: bool
    by_position: bool = True


class Row(NamedTuple):
    """One domain of a law; ``variation`` is that of `models.passages`, one number each."""

    logits: Floats
    spread: float
    tau: float
    uncertainty: float
    basis: Basis
    variation: tuple[float, ...] = STEADY


def tree_row(block: Acceptance, tree: Tree) -> Row:
    """Row of a chain or tree.

    Where the block says how steps vary it was fitted, and its rates hold at every position; else
    the rates as given are shifted alike until tau holds.
    """
    depth, spread, within = tree_depth(tree), _spread(block), block.step_spread
    stated = _stated(block, tree)

    def shape(logits: Floats) -> Shape:
        return lambda shift: averaged(logits[None, :], shift, within or 0.0)

    if within is not None and stated.by_position:
        logits = solved(stated.logits, spread, within)
    else:
        logits = stated.logits + located(shape(stated.logits), spread, stated.tau)
    beyond = depth - logits.size
    logits = np.concatenate((logits[:depth], np.repeat(logits[-1], max(0, beyond))))
    tau = population_tau(shape(logits), 0.0, spread)
    row = _row(block, logits, spread, tau, stated.derived or beyond > 0)
    return row._replace(variation=_variation(block))


def _stated(block: Acceptance, tree: Tree) -> _Stated:
    """What the block says about a tree, as conditional logits by depth."""
    depth = tree_depth(tree)
    if block.tau is not None or block.tau_at_k is not None:
        at = block.at_k or depth
        if len(tree) > depth and block.at_k is not None:
            raise ModelError("a chain's tau says nothing about this tree", "acceptance.tau_at_k")
        return _Stated(np.zeros(at), _checked_tau(block, at), at != depth, False)
    if block.heads is not None:
        heads = extended_heads(block.heads, tree_ranks(tree))
        usual = 1.0 if block.conditional else PATH_EXPONENT
        exponent = usual if block.path_exponent is None else block.path_exponent
        return _of_survival(tree_survival(tree, heads, exponent), True)
    if block.match_rate is None:
        measured = len(block.alpha_by_pos or range(depth))
        return _of_survival(np.cumprod(block.rates(measured)), False)
    raise ModelError("match_rate is about n-gram lookup only", "acceptance.match_rate")


def _of_survival(survival: Floats, derived: bool) -> _Stated:
    before = np.concatenate(([1.0], survival[:-1]))
    conditional = np.divide(survival, before, out=np.zeros_like(survival), where=before > 0)
    return _Stated(logit(conditional), 1.0 + float(survival.sum()), derived)


def lookahead_row(block: Acceptance, n: int, g: int, found_share: float) -> Row:
    """Row of lookahead decoding from the acceptance of one guess."""
    _steady(block, "the acceptance of one guess", "step_spread", "context_slope")
    spread, every = _spread(block), block.good_every

    def survival(alpha: Floats) -> Floats:
        return guess_survival(alpha, n - 1, g, every, found_share)

    def shape(shift: Floats) -> Floats:
        return survival(cumulative(np.zeros((1, 1)), shift)[:, 0])

    if block.tau is not None:
        tau = _checked_tau(block, n - 1)
    elif block.alpha is not None and block.match_rate is None:
        tau = 1.0 + float(survival(np.array([block.alpha])).sum())
    else:
        raise ModelError(
            "lookahead takes tau, the alpha of one guess, or alpha_by_pos of all", "acceptance"
        )
    reach = 1.0 + float(survival(np.ones(1)).sum())
    if tau > reach + 1e-9:
        raise ModelError(f"tau can reach {reach:.3g} here, got {tau:g}", "acceptance.tau")
    at = located(shape, spread, tau)
    return _row(block, np.array(at), spread, tau, block.alpha is not None)


def ngram_row(block: Acceptance, k: int) -> tuple[Row, NgramLogits]:
    """Row of prompt lookup, and the logits of its matches.

    Where the block says how steps vary its rates hold at every position, as in `tree_row`.
    """
    _steady(block, "n-gram lookup", "context_slope")
    at_k = block.at_k or k
    within = _Within(_spread(block), block.step_spread, block.step_memory or 0.0)
    if block.match_rate is not None:
        at = _matches(block, at_k, k, within)
    elif block.tau is not None or block.tau_at_k is not None:
        tau = _checked_tau(block, at_k)
        at = _matches(_USUAL_NGRAM, at_k, k, within)
        measured = at._replace(accepted=at.accepted[:, :at_k])
        at = at.shifted(located(_any_step(measured, within), within.spread, tau))
    else:
        raise ModelError("n-gram lookup takes tau, or match_rate with alpha", "acceptance")
    at = at._replace(accepted=at.accepted[:, :k])
    tau = population_tau(_any_step(at, within), 0.0, within.spread)
    row = _row(block, np.zeros(0), within.spread, tau, at_k != k)
    return row._replace(variation=_variation(block)), at


def replayed_row(block: Acceptance, entry: Entry, domain: str) -> Row:
    """Row of requests replayed: their own tau, and its standard error as measured."""
    recorded = entry.replay[domain]
    tau = 1.0 + float(recorded.steps()[0].mean())
    fit = entry.acceptance.by_domain.get(domain, entry.acceptance)
    error = fit.uncertainty
    if error is None and domain in entry.tau:
        measured = entry.tau[domain]
        error = (measured.hi - measured.lo) / (2.0 * _INTERVAL_SD * measured.value)
    notes = {"uncertainty": block.uncertainty if block.uncertainty is not None else error}
    fit = fit.model_copy(update={**notes, "basis": block.basis or fit.basis})
    return _row(fit, np.zeros(0), 0.0, tau, False)


def _matches(block: Acceptance, at_k: int, k: int, within: _Within) -> NgramLogits:
    """Located at ``at_k`` drafted tokens, with rates for ``k``."""
    conditional = np.array(block.rates(max(k, at_k)))
    share = block.match_rate or 0.0
    stay = NGRAM_STAY if block.match_stay is None else block.match_stay
    if within.step_spread is not None:
        stated = Means(share, stay, conditional[:at_k])
        at = matches_solved(stated, within.spread, within.step_spread, within.step_memory)
        last = logit(conditional[at_k - 1 : at_k])
        beyond = logit(conditional[at_k:]) + np.where(np.isfinite(last), at.accepted[0, -1:], 0.0)
        beyond -= np.where(np.isfinite(last), last, 0.0)
        return at._replace(accepted=np.concatenate((at.accepted, beyond[None, :]), axis=1))
    at = ngram_located(share, stay, np.cumprod(conditional[:at_k]), within.spread)
    shift = at.accepted[0, 0] - logit(conditional[:1])
    return at._replace(accepted=(logit(conditional) + shift)[None, :])


def _any_step(at: NgramLogits, within: _Within) -> Shape:
    if not within.step_spread:
        return lambda shift: at.shifted(shift).rates().unconditional
    step = within.step_spread, within.step_memory
    return lambda shift: averaged_matches(at, shift, *step)


def _steady(block: Acceptance, what: str, *keys: str) -> None:
    """Refuse a variation that this law does not know."""
    for key in keys:
        if getattr(block, key) is not None:
            raise ModelError(f"{key} says nothing about {what}", f"acceptance.{key}")


def _variation(block: Acceptance) -> tuple[float, ...]:
    step = (block.step_spread or 0.0, block.step_memory or 0.0)
    if block.context_slope is None or block.context_range is None:
        return (*step, *STEADY[2:])
    reference = block.context_reference or STEADY[3]
    return (*step, block.context_slope, reference, *block.context_range)


def _spread(block: Acceptance) -> float:
    return SPREAD if block.spread is None else block.spread


def _checked_tau(block: Acceptance, k: int) -> float:
    """The stated tau, which ``k`` draft tokens must be able to give."""
    key = "tau" if block.tau is not None else "tau_at_k"
    tau = float(getattr(block, key))
    if tau > k + 1:
        raise ModelError(
            f"{k} draft tokens give at most {k + 1} tokens a step, got {tau:g}", f"acceptance.{key}"
        )
    return tau


def _row(block: Acceptance, logits: Floats, spread: float, tau: float, derived: bool) -> Row:
    usual = _DERIVED_SE if derived else _MEASURED_SE
    stated = block.basis or "validated"
    least: Basis = "extrapolated" if derived else "validated"
    basis = weakest((stated, least))
    error = usual if block.uncertainty is None else block.uncertainty
    return Row(logits, spread, tau, error, basis)
