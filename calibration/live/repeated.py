"""What was accepted of each recorded request, as an acceptance file that repeats just that."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from models.acceptance_block import Acceptance
from models.acceptance_file import VERSION, AcceptanceFile, Entry, Recorded, Shape, write_json
from models.paths import Ints
from models.strategies import Strategy
from sim.analysis.metrics import tau
from sim.tables import Columns

ENTRY = "recorded"


class Seen(NamedTuple):
    """What acceptance was seen of: the target by its own name, and the day as 2026-01-31."""

    target: str
    date: str


def repeating(
    strategy: Strategy, columns: Columns, domain: str, path: Path, seen: Seen
) -> Strategy:
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
        Takes the file, and ends in ``.json``; the strategy reads it.
    seen : Seen

    Returns
    -------
    Strategy
        As it was, where it drafts nothing or the server told no steps.
    """
    if not strategy.drafted or not told(columns):
        return strategy
    names = ("n_steps", "drafted", "accepted", "output_tokens")
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    lines = [_laid_out(*map(int, counts), strategy=strategy) for counts in rows]
    accepted, drafted = zip(*lines, strict=True)
    shape = Shape(drafted=strategy.drafted, depth=strategy.depth) if strategy.needs_tree else None
    entry = Entry(
        strategy=_bare(strategy),
        shape=shape,
        acceptance=Acceptance(tau=tau(columns) or 1.0),
        replay={domain: Recorded(accepted=accepted, drafted=drafted)},
    )
    file = AcceptanceFile(
        version=VERSION,
        title="acceptance of recorded requests",
        target=seen.target,
        date=seen.date,
        source="a live server's counts of each request",
        entries={ENTRY: entry},
    )
    write_json(file, path)
    block = Acceptance(file=str(path), entry=ENTRY, replay=True)
    return strategy.model_copy(update={"acceptance": block})


def told(columns: Columns) -> bool:
    """Whether the server told the decode steps of every request; one of one token has none."""
    return bool(((columns["n_steps"] > 0) | (columns["output_tokens"] == 1)).all())


def _bare(strategy: Strategy) -> dict[str, Any]:
    said = strategy.model_dump(mode="json", exclude_none=True, exclude={"acceptance", "label"})
    return {"kind": strategy.kind, **said}


def _laid_out(
    steps: int, drafted: int, accepted: int, output: int, *, strategy: Strategy
) -> tuple[str, str]:
    """Accepted and drafted tokens of each step of a request, as an acceptance file has them.

    Steps that draft do so at full width, but for the last of them. What the end of the output cut
    off was accepted in the last step.
    """
    if not steps:
        return "0", "0"
    full = strategy.drafted
    drafting = min(steps, -(-drafted // full))
    places = np.floor((np.arange(drafting) + 0.5) * steps / max(drafting, 1)).astype(np.int64)
    most = np.full(drafting, full)
    if drafting:
        most[-1] = max(1, drafted - full * (drafting - 1))
    width, most = most, np.minimum(most, strategy.depth)
    cut = max(0, accepted + steps - (output - 1))
    counts = np.zeros(drafting, dtype=np.int64)
    if drafting and cut:
        places[-1] = steps - 1
        counts[-1] = min(cut, accepted, int(most[-1]))
    rest = accepted - int(counts.sum())
    counts += _evenly(rest, most - counts)
    whole, verified = np.zeros((2, steps), dtype=np.int64)
    whole[places], verified[places] = counts, width
    return " ".join(map(str, whole.tolist())), " ".join(map(str, verified.tolist()))


def _evenly(tokens: int, room: Ints) -> Ints:
    """Tokens laid over places one by one, as evenly as there is room."""
    n = max(room.size, 1)
    counts = np.minimum(np.diff(tokens * np.arange(room.size + 1) // n), room)
    left = tokens - int(counts.sum())
    for place in range(room.size):
        more = min(left, int(room[place] - counts[place]))
        counts[place] += more
        left -= more
    return counts
