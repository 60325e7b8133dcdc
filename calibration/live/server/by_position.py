"""Acceptance by draft position, from a server's counters alone.

vLLM and llama.cpp count, for each position, the steps that accepted the draft token there, and with
it all before; TensorRT-LLM also counts how many were drafted there. A position is tried only where
all before it were accepted, so neighbouring counts give the chance of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple

from models.schema import ModelError


class ByPosition(NamedTuple):
    """Acceptance by position.

    Attributes
    ----------
    alpha : tuple of float
        Chance that the token at position 0, 1, .. is accepted where all before it were.
    se : tuple of float
        Standard error of each, as if steps were independent; steps of one request are not, so the
        true one is larger.
    tried : tuple of int
        Steps each rests on.
    short : bool
        Whether some steps drafted fewer tokens than there are positions, and the server does not
        say at which: then ``alpha`` beyond the first is too low, as a token that was not drafted
        counts as refused; ``notes`` says so.
    """

    alpha: tuple[float, ...]
    se: tuple[float, ...]
    tried: tuple[int, ...]
    short: bool


def acceptance_by_position(
    counters: Mapping[str, float], k: int | None = None
) -> ByPosition | None:
    """Work out acceptance by position from counters by neutral names.

    Parameters
    ----------
    counters : mapping
        Increase over a stage, or the sum of several.
    k : int, optional
        Positions at most; as many as there are counters without it.

    Returns
    -------
    ByPosition or None
        None where nothing was drafted or it is not told by position. Positions that were never
        tried are not in it.

    Raises
    ------
    ModelError
        If a position was accepted more often than tried; key ``acceptance``.
    """
    accepted, drafted = row(counters, "spec_accepted_at_"), row(counters, "spec_drafted_at_")
    drafts = drafts_of(counters)
    if not accepted or not drafts:
        return None
    accepted = accepted[: len(accepted) if k is None else k]
    tried = [drafts, *accepted[:-1]]
    if drafted:
        most = drafted + [0.0] * (len(tried) - len(drafted))
        tried = [min(pair) for pair in zip(tried, most, strict=False)]
    for place, (kept, asked) in enumerate(zip(accepted, tried, strict=True)):
        if kept > asked:
            message = f"draft position {place} was accepted {kept:.0f} times of {asked:.0f} tried"
            raise ModelError(message, "acceptance")
    seen = [(kept, asked) for kept, asked in zip(accepted, tried, strict=True) if asked > 0]
    alpha = tuple(kept / asked for kept, asked in seen)
    se = tuple(sqrt(a * (1 - a) / asked) for a, (_, asked) in zip(alpha, seen, strict=True))
    total = counters.get("spec_drafted")
    short = not drafted and total is not None and total < drafts * len(accepted)
    return ByPosition(alpha, se, tuple(round(asked) for _, asked in seen), short)


def row(counters: Mapping[str, float], start: str) -> list[float]:
    """Counters of the positions 0, 1, .., as far as there are any."""
    found: list[float] = []
    while f"{start}{len(found)}" in counters:
        found.append(counters[f"{start}{len(found)}"])
    return found


def drafts_of(counters: Mapping[str, float]) -> float | None:
    """Steps that had a draft; None where they are not told."""
    return counters.get("spec_drafts", counters.get("spec_drafted_at_0"))


def notes(found: ByPosition) -> str:
    """What to know of it before it is used; empty for nothing."""
    if not found.short or len(found.alpha) < 2:
        return ""
    return (
        "some drafts were shorter than the longest, and the server does not say which: acceptance "
        "beyond the first position is too low, as tokens not drafted count as refused"
    )
