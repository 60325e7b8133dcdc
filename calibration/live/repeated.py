"""What was accepted of each recorded request, as an acceptance file that repeats just that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from models.acceptance_block import Acceptance
from models.acceptance_file import VERSION, AcceptanceFile, Entry, Recorded, Shape, dump
from models.strategies import Strategy
from sim.tables import Columns

ENTRY = "recorded"


def repeating(strategy: Strategy, columns: Columns, domain: str, path: Path) -> Strategy:
    """The strategy with the acceptance that requests had, one by one in their order.

    A server tells a request's decode steps, and the draft tokens verified and accepted in all of
    them: they are laid evenly over its steps, whose order it does not tell.

    Parameters
    ----------
    strategy : Strategy
        That drafts.
    columns : Columns
        Requests in the order they are sent.
    domain : str
        Of the stream they are sent by.
    path : Path
        Takes the file; the strategy reads it.

    Returns
    -------
    Strategy
        As it was, where it drafts nothing or the server told no steps.
    """
    if not strategy.drafted or not (columns["n_steps"] > 0).all():
        return strategy
    steps, verified, kept = (columns[name].tolist() for name in ("n_steps", "drafted", "accepted"))
    told = zip(steps, verified, kept, strict=True)
    lines = [_laid_out(n, of, taken, strategy) for n, of, taken in told]
    accepted, drafted = zip(*lines, strict=True)
    shape = Shape(drafted=strategy.drafted, depth=strategy.depth) if strategy.needs_tree else None
    entry = Entry(
        strategy=_bare(strategy),
        shape=shape,
        acceptance=Acceptance(tau=float(1 + columns["accepted"].sum() / columns["n_steps"].sum())),
        replay={domain: Recorded(accepted=accepted, drafted=drafted)},
    )
    file = AcceptanceFile(
        version=VERSION,
        title="acceptance of recorded requests",
        target="as recorded",
        date="2000-01-01",
        source="a live server's counts of each request",
        entries={ENTRY: entry},
    )
    path.write_text(dump(file), "utf-8")
    block = Acceptance(file=str(path), entry=ENTRY, replay=True)
    return strategy.model_copy(update={"acceptance": block})


def _bare(strategy: Strategy) -> dict[str, Any]:
    said = strategy.model_dump(mode="json", exclude_none=True, exclude={"acceptance", "label"})
    return {"kind": strategy.kind, **said}


def _laid_out(steps: int, drafted: int, accepted: int, strategy: Strategy) -> tuple[str, str]:
    """Accepted and drafted tokens of each step of a request, as an acceptance file has them.

    Steps that draft do so at full width, but for the last of them.
    """
    full, depth = strategy.drafted, strategy.depth
    drafting = min(steps, -(-drafted // full))
    places = np.floor((np.arange(drafting) + 0.5) * steps / max(drafting, 1)).astype(np.int64)
    width = np.full(drafting, full)
    if drafting:
        width[-1] = max(1, drafted - full * (drafting - 1))
    taken = np.diff(np.floor(accepted * np.arange(drafting + 1) / max(drafting, 1)))
    most = np.minimum(width, depth)
    counts = np.minimum(taken.astype(np.int64), most)
    left = accepted - int(counts.sum())
    for place in range(drafting):
        more = min(left, int(most[place] - counts[place]))
        counts[place] += more
        left -= more
    whole, verified = np.zeros((2, steps), dtype=np.int64)
    whole[places], verified[places] = counts, width
    return " ".join(map(str, whole.tolist())), " ".join(map(str, verified.tolist()))
