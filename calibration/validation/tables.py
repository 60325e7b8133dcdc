"""Errors summed up for people: by publication, by kind of answer, the worst cases, bands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from calibration.validation.bounds import Answer, Bound
from calibration.validation.score import coverage, sides

WORST = 5


def summary(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One row a group of what is scored, in the order in which groups come first.

    Parameters
    ----------
    frame : DataFrame
        As from ``score.table`` and ``groups.with_groups``.
    by : sequence of str
        Columns.

    Returns
    -------
    DataFrame
        The columns of ``by``; ``n``, ``mape``, ``bias``, ``p90`` and ``worst`` of |relative error|;
        ``saturated`` predictions; ``fitted``, how many of the n were used in a fit; ``told``
        speedups with a side of 1 and ``right`` ones of them; ``banded`` figures with a band,
        ``inside`` those within it, ``width`` the median of (hi - lo) / predicted; ``basis``, the
        one most of them have.
    """
    scored = frame[frame["scored"]] if len(frame) else frame
    if scored.empty:
        return pd.DataFrame(columns=[*by, "n"])
    rows = [
        {**dict(zip(by, key, strict=True)), **_of(group)}
        for key, group in scored.groupby(list(by), sort=False)
    ]
    return pd.DataFrame(rows)


def _of(group: pd.DataFrame) -> dict[str, object]:
    known = group.dropna(subset=["relative"])
    relative = known["relative"].to_numpy(float)
    off = np.abs(relative)
    right = sides(group)
    basis = known["basis"].dropna()
    return {
        "n": len(off),
        "mape": off.mean() if len(off) else np.nan,
        "bias": relative.mean() if len(off) else np.nan,
        "p90": np.quantile(off, 0.9) if len(off) else np.nan,
        "worst": off.max() if len(off) else np.nan,
        "saturated": len(group) - len(known),
        "fitted": int(known["in_sample"].sum()),
        "told": len(right),
        "right": int(right.sum()),
        **coverage(known),
        "basis": str(basis.mode().iloc[0]) if len(basis) else "",
    }


def by_answer(frame: pd.DataFrame, answers: Iterable[Answer]) -> pd.DataFrame:
    """The summary of every kind of ``answer``, a row a metric; a figure counts once."""
    answers = list(answers)
    if frame.empty:
        return frame
    named = frame.assign(answer=answers_of(frame, answers))
    found = summary(named[named["answer"] != ""], ["answer", "metric"])
    order = {answer.name: place for place, answer in enumerate(answers)}
    return found.sort_values("answer", key=lambda names: names.map(order), kind="stable")


def answers_of(frame: pd.DataFrame, answers: Iterable[Answer]) -> pd.Series:
    """Name of the kind of answer each figure belongs to; the first that means it, or empty."""
    names = pd.Series("", frame.index)
    for answer in answers:
        chosen = names.loc[answer.of(frame).index]
        names.loc[chosen.index[chosen == ""]] = answer.name
    return names


def limits(frame: pd.DataFrame, bounds: Iterable[Bound]) -> dict[tuple[str, str], float]:
    """The tightest bound on the MAPE of (origin, metric), where one is promised."""
    found: dict[tuple[str, str], float] = {}
    for bound in bounds:
        chosen = bound.of(frame)
        if bound.statistic != "mape" or chosen.empty:
            continue
        for key in set(zip(chosen["origin"], chosen["metric"], strict=True)):
            found[key] = min(found.get(key, bound.limit), bound.limit)
    return found


def worst(frame: pd.DataFrame, most: int = WORST) -> pd.DataFrame:
    """The figures farthest off among those that are scored."""
    known = frame[frame["scored"]].dropna(subset=["relative"]) if len(frame) else frame
    if known.empty:
        return known
    order = known["relative"].abs().sort_values(ascending=False, kind="stable").index
    return known.loc[order[:most]]
