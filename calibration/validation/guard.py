"""Errors as they were stored, and whether a change of the model made them worse."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

import pandas as pd

from calibration.validation.bounds import Bound, check
from calibration.validation.groups import with_groups

TOLERANCE = 0.1
"""A mean error may grow by this share of itself."""
ROUNDING = 5e-5
"""Stored errors have four decimals."""
GROUP = ("origin", "metric", "family", "bucket")
KEYS = ["case", "metric"]


class Worse(NamedTuple):
    """One group of figures that may not go by: what it is, MAPE before and now, and why."""

    group: str
    before: float | None
    now: float | None
    why: str


def stored_text(frame: pd.DataFrame) -> str:
    """Errors of a table of outcomes as CSV: ``case,metric,predicted,relative``; scored ones."""
    kept = frame[frame["scored"]].sort_values(KEYS) if len(frame) else frame
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*KEYS, "predicted", "relative"])
    for _, row in kept.iterrows():
        told = pd.notna(row["predicted"])
        errors = (f"{row['predicted']:.6g}", f"{row['relative']:.4f}") if told else ("", "")
        writer.writerow([row["case"], row["metric"], *errors])
    return file.getvalue()


def read_stored(text: str | None = None) -> pd.DataFrame:
    """Stored errors; default those of ``calibration/data/errors.csv``."""
    if text is None:
        text = files("calibration").joinpath("data", "errors.csv").read_text("utf-8")
    return pd.read_csv(io.StringIO(text))


def worsened(
    stored: pd.DataFrame, now: pd.DataFrame, bounds: Iterable[Bound] | None = None
) -> list[Worse]:
    """What got worse: by publication, metric, family of strategy and bucket of the batch.

    A group's MAPE, over the figures that were scored before, may not grow by more than a tenth of
    itself; no figure may drop out of scoring or become saturated; every promise is kept, but for
    those whose cause of being missed is stated.

    Parameters
    ----------
    stored : DataFrame
        As from ``read_stored``.
    now : DataFrame
        As from ``score.table``.
    bounds : iterable of Bound, optional
        Default those shipped.
    """
    now = with_groups(now)
    scored = now[now["scored"]] if len(now) else now
    found = [*_lost(stored, scored), *_groups(stored, scored)]
    for one in check(now, bounds):
        if one.kept is False and not one.cause:
            limit = "at most" if one.statistic == "mape" else "at least"
            name = f"{one.promise}, {one.group}" if one.group else one.promise
            found.append(Worse(name, one.limit, one.value, f"{limit} {one.limit:g} is promised"))
    return found


def _lost(stored: pd.DataFrame, scored: pd.DataFrame) -> list[Worse]:
    """Figures that were scored and are no more, or have no prediction any more."""
    told = stored.dropna(subset=["relative"])
    joined = told[[*KEYS, "relative"]].merge(
        scored[[*KEYS, "predicted"]], on=KEYS, how="left", indicator=True
    )
    return [
        Worse(
            f"{row['case']} {row['metric']}",
            abs(row["relative"]),
            None,
            "is not scored any more" if row["_merge"] == "left_only" else "is saturated",
        )
        for _, row in joined[joined["predicted"].isna()].iterrows()
    ]


def _groups(stored: pd.DataFrame, scored: pd.DataFrame) -> list[Worse]:
    both = scored.merge(stored[[*KEYS, "relative"]], on=KEYS, suffixes=("", "_before"))
    both = both.dropna(subset=["relative", "relative_before"])
    found = []
    for key, group in both.groupby(list(GROUP), sort=False):
        before, now = group["relative_before"].abs().mean(), group["relative"].abs().mean()
        if now > (1 + TOLERANCE) * before + ROUNDING:
            name = ", ".join(str(part) for part in key if part)
            found.append(Worse(name, before, now, "is more than a tenth worse"))
    return found
