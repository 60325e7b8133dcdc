"""From acceptance as stated to the law of emitted tokens of one strategy."""

from __future__ import annotations

import numpy as np

from models.acceptance_block import Acceptance
from models.acceptance_file import Entry, read
from models.acceptance_rows import STEADY, Row, lookahead_row, ngram_row, replayed_row, tree_row
from models.laws import ChainLaw, Law, LookaheadLaw, PlainLaw, Pool
from models.lookup import NgramLaw
from models.lookup_passages import NgramPassageLaw
from models.passages import PassageLaw, Variation
from models.paths import Floats
from models.population import NgramLogits
from models.replay import ReplayLaw, records_of
from models.schema import Basis, ModelError, weakest
from models.trees import Tree, chain, tree_depth

__all__ = [
    "Acceptance",
    "Law",
    "chain_law",
    "drafts_recorded",
    "lookahead_law",
    "ngram_law",
    "plain_law",
    "replay_law",
    "tree_law",
]


def plain_law() -> Law:
    """One token a step."""
    return PlainLaw()


def chain_law(acceptance: Acceptance, k: int, domains: tuple[str, ...]) -> Law:
    """Law of a chain of ``k`` draft tokens, or of a tree known by its depth and tau alone.

    Raises
    ------
    ModelError
        A tau beyond ``k + 1``, or a block that says nothing about chains; key ``acceptance.*``.
    """
    return tree_law(acceptance, chain(k), domains)


def tree_law(acceptance: Acceptance, paths: Tree, domains: tuple[str, ...]) -> Law:
    """Law of a static tree: head accuracies by path, or rates by depth of this very tree.

    Raises
    ------
    ModelError
        A tau beyond the depth + 1, a tau of a chain for a branching tree, or head accuracies that
        do not reach the tree; key ``acceptance.*``.
    """
    rows = [tree_row(acceptance.for_domain(domain), paths) for domain in domains]
    if any(row.variation != STEADY for row in rows):
        return _passage_law(rows, tree_depth(paths))
    logits = np.array([row.logits for row in rows])
    return ChainLaw(*_summary(rows, tree_depth(paths)), logits, _spreads(rows))


def lookahead_law(
    acceptance: Acceptance,
    n: int,
    g: int,
    w: int,
    domains: tuple[str, ...],
    found_share: float = 1.0,
) -> Law:
    """Law of lookahead decoding (Fu et al., arXiv 2402.02057).

    Parameters
    ----------
    acceptance : Acceptance
        ``tau``, or the ``alpha`` of one guess; ``good_every`` is the paper's f. Or
        ``alpha_by_pos`` of all guesses together, as measured with this very pool.
    n, g, w : int
        N-gram size, guesses a step, window.
    domains : tuple of str
        Domain names.
    found_share : float
        Mean share of the ``g`` guesses the pool holds (binomial).

    Notes
    -----
    ``tau = (f - 1 + N - sum_{i<N} (1 - alpha**i)**G) / f``: the bracket is the paper's, the form in
    ``f`` is quoted from memory of it.

    Raises
    ------
    ModelError
        A tau out of reach, or another way of stating acceptance; key ``acceptance.*``.
    """
    blocks = [acceptance.for_domain(domain) for domain in domains]
    pool = Pool(g, w, found_share)
    if any(block.alpha_by_pos is not None and block.match_rate is None for block in blocks):
        return _passage_law([_positions_row(block, n) for block in blocks], n - 1, pool)
    rows = [lookahead_row(block, n, g, found_share) for block in blocks]
    every = {block.good_every for block in blocks}
    if len(every) > 1:
        raise ModelError("good_every must be the same in every domain", "acceptance.good_every")
    logits = np.array([row.logits for row in rows])
    return LookaheadLaw(*_summary(rows, n - 1), logits, _spreads(rows), pool, every.pop())


def _positions_row(block: Acceptance, n: int) -> Row:
    if block.alpha_by_pos is None:
        raise ModelError("give alpha_by_pos in every domain, or in none", "acceptance")
    if block.good_every > 1:
        raise ModelError("good_every says nothing about rates by position", "acceptance.good_every")
    return tree_row(block, chain(n - 1))


def _passage_law(rows: list[Row], depth: int, pool: Pool | None = None) -> Law:
    logits = np.array([row.logits for row in rows])
    variation = Variation(*np.array([row.variation for row in rows]).T)
    return PassageLaw(*_summary(rows, depth), logits, _spreads(rows), variation, pool)


def ngram_law(
    acceptance: Acceptance, k: int, domains: tuple[str, ...], full_width: bool = False
) -> Law:
    """Law of prompt lookup with up to ``k`` copied tokens: bimodal, and matches go on.

    Where the block says how steps vary, matches and their rates come in passages.

    Parameters
    ----------
    acceptance : Acceptance
        ``match_rate`` with rates given a match, or ``tau`` alone (published shape).
    k : int
        Tokens drafted in a step with a match.
    domains : tuple of str
        Domain names.
    full_width : bool
        The engine verifies ``k + 1`` tokens with and without a match.

    Raises
    ------
    ModelError
        A tau beyond ``k + 1``, or another way of stating acceptance; key ``acceptance.*``.
    """
    pairs = [ngram_row(acceptance.for_domain(domain), k) for domain in domains]
    rows = [row for row, _ in pairs]
    parts = zip(*(at for _, at in pairs), strict=True)
    stacked = NgramLogits(*(np.concatenate(part) for part in parts))
    if any(row.variation != STEADY for row in rows):
        spreads, memories = np.array([row.variation[:2] for row in rows]).T
        return NgramPassageLaw(
            *_summary(rows, k), stacked, _spreads(rows), spreads, memories, full_width
        )
    return NgramLaw(*_summary(rows, k), stacked, _spreads(rows), full_width)


def replay_law(
    acceptance: Acceptance, depth: int, drafted: int, domains: tuple[str, ...], varies: bool
) -> Law:
    """Law that repeats the recorded requests of an acceptance file.

    Parameters
    ----------
    acceptance : Acceptance
        With ``file`` and ``entry``.
    depth, drafted : int
        Most tokens a step can accept, and tokens it verifies where the record does not say.
    domains : tuple of str
        Domain names.
    varies : bool
        Whether the verified tokens follow the record.

    Raises
    ------
    ModelError
        A domain nothing was recorded for, or more accepted than the strategy drafts; key
        ``acceptance.*``.
    """
    name, entry = _recorded_entry(acceptance)
    for domain in domains:
        if domain not in entry.replay:
            there = ", ".join(entry.replay) or "no domain"
            raise ModelError(
                f"entry '{name}' has requests of {there}, got domain '{domain}'",
                "acceptance.replay",
            )
    records = records_of([entry.replay[domain] for domain in domains], drafted)
    most = int(records.accepted.max()), int(records.drafted.max())
    if most[0] > depth or most[1] > drafted:
        raise ModelError(
            f"entry '{name}' has steps of {most[1]} drafted and {most[0]} accepted tokens, "
            f"got a strategy of {drafted} in {depth} levels",
            "acceptance.replay",
        )
    rows = [replayed_row(acceptance, entry, domain) for domain in domains]
    return ReplayLaw(*_summary(rows, depth), records, varies)


def drafts_recorded(acceptance: Acceptance | None) -> bool:
    """Whether recorded requests are replayed that verify more tokens in some steps than others."""
    if acceptance is None or not acceptance.replay:
        return False
    _, entry = _recorded_entry(acceptance)
    return any(recorded.drafted is not None for recorded in entry.replay.values())


def _recorded_entry(acceptance: Acceptance) -> tuple[str, Entry]:
    file = read(acceptance.file or "")
    name = file.named(acceptance.entry, "")
    return name, file.entries[name]


def _spreads(rows: list[Row]) -> Floats:
    return np.array([row.spread for row in rows])


def _summary(rows: list[Row], depth: int) -> tuple[int, tuple[float, ...], float, Basis]:
    worst = weakest(row.basis for row in rows)
    taus = tuple(row.tau for row in rows)
    return depth, taus, max(row.uncertainty for row in rows), worst
