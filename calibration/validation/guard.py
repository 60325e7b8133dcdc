"""Errors as they were stored, and whether a change of the model made them worse."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

import pandas as pd

from calibration.validation.bounds import Bound, check
from calibration.validation.case import Case
from calibration.validation.groups import with_groups
from calibration.validation.predict import Outcome
from models.schema import ModelError

TOLERANCE = 0.1
"""A mean error may grow by this share of itself."""
ROUNDING = 5e-5
"""Stored errors have four decimals."""
GROUP = ("origin", "metric", "family", "bucket")
KEYS = ["case", "metric"]
COLUMNS = [*KEYS, "predicted", "relative", "held_out"]
MISSING = object()


class Worse(NamedTuple):
    """One group of figures that may not go by: what it is, MAPE before and now, and why."""

    group: str
    before: float | None
    now: float | None
    why: str


def stored_text(frame: pd.DataFrame, held_out: pd.DataFrame | None = None) -> str:
    """Errors of a table of outcomes as CSV, of what is scored.

    Parameters
    ----------
    frame : DataFrame
        As from ``score.table``.
    held_out : DataFrame, optional
        ``case``, ``metric``, ``predicted`` with constants fitted without the figure.
    """
    kept = frame[frame["scored"]].sort_values(KEYS) if len(frame) else frame
    without = {} if held_out is None else held_out.set_index(KEYS)["predicted"].to_dict()
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for _, row in kept.iterrows():
        key = row["case"], row["metric"]
        relative = "" if pd.isna(row["predicted"]) else f"{row['relative']:.4f}"
        predictions = [_stored(row["predicted"]), _stored(without.get(key))]
        writer.writerow([*key, predictions[0], relative, predictions[1]])
    return file.getvalue()


def _stored(predicted: float | None) -> str:
    return "" if predicted is None or pd.isna(predicted) else f"{predicted:.6g}"


def read_stored(text: str | None = None) -> pd.DataFrame:
    """Stored errors; default those of ``calibration/data/errors.csv``, nothing if it is missing.

    Raises
    ------
    ModelError
        If the text is something else.
    """
    if text is None:
        file = files("calibration").joinpath("data", "errors.csv")
        text = file.read_text("utf-8") if file.is_file() else ",".join(COLUMNS)
    try:
        stored = pd.read_csv(io.StringIO(text))
    except (ValueError, pd.errors.ParserError) as error:
        raise ModelError(f"holds no stored errors: {error}") from None
    if list(stored.columns) != COLUMNS:
        raise ModelError(f"holds no stored errors: its first line is not {','.join(COLUMNS)}")
    return stored


def stored_held_out() -> pd.DataFrame:
    """Stored predictions by constants fitted without the figure: ``case, metric, predicted``."""
    stored = read_stored().dropna(subset=["held_out"])
    return stored[[*KEYS, "held_out"]].rename(columns={"held_out": "predicted"})


def outcomes_of(stored: pd.DataFrame, cases: Iterable[Case]) -> list[Outcome]:
    """Stored predictions as outcomes of their cases, nothing simulated."""
    known = stored.set_index(KEYS)["predicted"].to_dict()
    return [
        Outcome(case, metric, measured, None if pd.isna(predicted) else float(predicted))
        for case in cases
        for metric, measured in case.measured.items()
        if (predicted := known.get((case.name, metric), MISSING)) is not MISSING
    ]


def worsened(
    stored: pd.DataFrame, now: pd.DataFrame, bounds: Iterable[Bound] | None = None
) -> list[Worse]:
    """What got worse: by publication, metric, family of strategy and bucket of the batch.

    A group's MAPE, over the figures that were scored before, may not grow by more than a tenth of
    itself; no figure may drop out of scoring or become saturated; every promise is kept, but for
    those whose cause of being missed is stated, up to the ceiling stated with it.

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
        if one.kept is False and not one.excused:
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
