"""The largest load that passes: a bracket around a guess, then halves of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

WIDEST = 4.0
"""Largest step of the bracket."""


class Root(NamedTuple):
    """What a search found.

    Attributes
    ----------
    value : float or None
        Largest load known to pass; None where not even the least does.
    evaluations : int
        Loads tried.
    failed : float or None
        Least load above it that was tried and failed; None where the range ends before.
    """

    value: float | None
    evaluations: int
    failed: float | None = None


def largest(
    passes: Callable[[float], bool],
    guess: float,
    *,
    tolerance: float = 0.02,
    least: float,
    most: float,
    whole: bool = False,
    step: float = 2.0,
) -> Root:
    """Find the largest load that passes, within a tolerance.

    From the guess the load moves by ``step``, by its square, and so on up to a factor of four,
    until one load passed and one failed; then the interval between them is halved, on a
    logarithmic scale, until it is narrow enough.

    Parameters
    ----------
    passes : callable
        Whether a load passes. Each load is asked once.
    guess : float
        Where to begin; moved into the range.
    tolerance : float
        A load above the value by at most this share failed.
    least, most : float
        Range searched, both above zero.
    whole : bool
        Loads are whole numbers; the one above the value failed where that is further than the
        tolerance.
    step : float
        First factor of the bracket, above 1.

    Notes
    -----
    Where ``passes`` is not monotone, as chance makes it in a short run, this ends as soon: the
    interval only shrinks. Its lower end passed and its upper end failed, so the value is a load
    that passes with one just above that does not; there may be others above.

    Raises
    ------
    ValueError
        If the range is empty or a parameter makes no sense.
    """
    if not 0 < least <= most or tolerance <= 0 or step <= 1:
        raise ValueError(
            "needs 0 < least <= most, a tolerance above 0 and a step above 1, got "
            f"{least:g}, {most:g}, {tolerance:g}, {step:g}"
        )
    search = _Search(passes, least, most, whole)
    lo, hi = search.bracket(guess, step)
    while lo is not None and hi is not None:
        middle = search.rounded(math.sqrt(lo * hi))
        if hi <= lo * (1 + tolerance) or not lo < middle < hi:
            break
        lo, hi = (middle, hi) if search.ask(middle) else (lo, middle)
    return Root(lo, search.asked, hi)


class _Search:
    def __init__(
        self, passes: Callable[[float], bool], least: float, most: float, whole: bool
    ) -> None:
        self._passes, self._whole = passes, whole
        self._least = math.ceil(least) if whole else least
        self._most = max(math.floor(most), self._least) if whole else most
        self.asked = 0

    def ask(self, load: float) -> bool:
        self.asked += 1
        return self._passes(load)

    def rounded(self, load: float) -> float:
        """A load within the range, whole where loads are."""
        load = float(round(load)) if self._whole else load
        return min(max(load, self._least), self._most)

    def bracket(self, guess: float, step: float) -> tuple[float | None, float | None]:
        """A load that passes and one above that fails; None for the one the range ends before."""
        at = self.rounded(guess)
        upward = self.ask(at)
        end = self._most if upward else self._least
        while at != end:
            further = at * step if upward else at / step
            reached, at = at, self._moved(at, further)
            step = min(step * step, max(WIDEST, step))
            if self.ask(at) != upward:
                return (reached, at) if upward else (at, reached)
        return (at, None) if upward else (None, at)

    def _moved(self, at: float, to: float) -> float:
        """At least by one where loads are whole."""
        if self._whole:
            to = max(math.ceil(to), at + 1) if to > at else min(math.floor(to), at - 1)
        return min(max(to, self._least), self._most)
