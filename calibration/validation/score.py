"""How far predictions are off: outcomes as a table, and errors summed up by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from calibration.validation.case import Case
from calibration.validation.groups import family_of
from calibration.validation.predict import Outcome

MARGIN = 0.05
"""A measured speedup nearer to 1 than this has no side."""

SHARE = "share."
"""Metrics that are shares of a whole: errors of the small ones say little in relative terms."""


def table(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """One row a figure.

    Returns
    -------
    DataFrame
        Columns ``case``, ``suite``, ``origin``, ``metric``, a column a label, ``family`` of the
        strategy, ``measured``, ``predicted``, ``lo``, ``hi``, ``basis``, ``tau``, ``relative``
        (predicted / measured - 1), ``reading`` (relative), ``acceptance``, ``scored``,
        ``in_sample``.
    """
    return pd.DataFrame(
        [
            {
                "case": case.name,
                "suite": case.suite,
                "origin": case.origin,
                "metric": outcome.metric,
                **case.labels,
                "family": _family(case),
                "measured": outcome.measured,
                "predicted": outcome.predicted,
                "lo": outcome.lo,
                "hi": outcome.hi,
                "basis": outcome.basis,
                "tau": outcome.tau,
                "relative": outcome.relative,
                "reading": case.reading.get(outcome.metric, 0.0) / outcome.measured,
                "acceptance": case.acceptance,
                "scored": case.scores(outcome.metric),
                "in_sample": case.in_sample(outcome.metric),
            }
            for outcome in outcomes
            for case in (outcome.case,)
        ]
    )


def _family(case: Case) -> str:
    """Empty where a kernel was timed, not a strategy."""
    strategies = case.scenario.get("strategies")
    return family_of(strategies[-1]) if strategies else ""


def errors(frame: pd.DataFrame, by: Sequence[str] = ("metric",)) -> pd.DataFrame:
    """Sum up the relative errors of what is scored, by group; shares of a step have none.

    Returns
    -------
    DataFrame
        Indexed by group: ``n``, ``mape``, ``bias`` (mean), ``median``, ``p90`` and ``worst`` of
        |relative error|; saturated predictions are counted in ``saturated`` alone.
    """
    counted = frame["scored"] & ~frame["metric"].str.startswith(SHARE)
    groups = frame[counted].groupby(list(by), sort=False)
    return pd.DataFrame({key: _summary(group) for key, group in groups}).T.rename_axis(list(by))


def points(frame: pd.DataFrame, by: Sequence[str] = ("metric",)) -> pd.DataFrame:
    """Sum up the errors of shares that are scored, predicted - measured in percentage points.

    Returns
    -------
    DataFrame
        Indexed by group: ``n``, ``mean`` of the error without its sign, ``bias`` and ``worst``.
    """
    shares = frame[frame["scored"] & frame["metric"].str.startswith(SHARE)]
    off = (100 * (shares["predicted"] - shares["measured"])).astype(float)
    groups = off.groupby([shares[name] for name in by], sort=False)
    return pd.DataFrame(
        {
            "n": groups.size(),
            "mean": groups.agg(lambda one: one.abs().mean()),
            "bias": groups.mean(),
            "worst": groups.agg(lambda one: one.abs().max()),
        }
    )


def _summary(group: pd.DataFrame) -> dict[str, float]:
    relative = group["relative"].dropna().to_numpy(dtype=float)
    off = np.abs(relative)
    return {
        "n": len(off),
        "mape": off.mean() if len(off) else np.nan,
        "bias": relative.mean() if len(off) else np.nan,
        "median": np.median(off) if len(off) else np.nan,
        "p90": np.quantile(off, 0.9) if len(off) else np.nan,
        "worst": off.max(initial=0.0),
        "saturated": int(group["relative"].isna().sum()),
    }


def sides(frame: pd.DataFrame, margin: float = MARGIN) -> pd.Series:
    """Whether each speedup farther than ``margin`` from 1 is predicted on the right side of it."""
    told = frame[frame["scored"] & frame["metric"].str.endswith("speedup")]
    told = told[(told["measured"] - 1).abs() > margin].dropna(subset=["predicted"])
    return (told["predicted"] > 1) == (told["measured"] > 1)


def coverage(frame: pd.DataFrame) -> dict[str, float]:
    """How many figures have a band, how many lie ``inside`` it, and its median relative width.

    A figure read off a picture is inside where its reading error reaches into the band.
    """
    known = frame.dropna(subset=["predicted", "lo", "hi"])
    lo, hi, measured = (known[name].to_numpy(float) for name in ("lo", "hi", "measured"))
    slack = measured * known["reading"].to_numpy(float)
    inside = (lo <= measured + slack) & (measured - slack <= hi)
    width = (hi - lo) / known["predicted"].to_numpy(float)
    return {
        "banded": len(known),
        "inside": int(inside.sum()),
        "width": float(np.median(width)) if len(width) else np.nan,
    }
