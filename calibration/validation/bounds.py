"""What is promised of predictions, and the kinds of answers they are: ``data/bounds.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from calibration.validation.groups import error_of
from calibration.validation.score import coverage, sides
from models.schema import Frozen
from models.strict_yaml import load_yaml, validate

PATH = "calibration/data/bounds.yaml"
Patterns = str | tuple[str, ...]


class Selector(Frozen):
    """Which figures are meant.

    Attributes
    ----------
    where : mapping
        Column of the table of outcomes (suite, origin, case, metric, a label, family) to a name or
        a list of them, ``*`` standing for anything.
    batch : pair, optional
        Smallest and largest batch.
    """

    where: Mapping[str, Patterns] = {}
    batch: tuple[float, float] | None = None

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table of outcomes that are meant."""
        chosen = np.ones(len(frame), bool)
        for column, patterns in self.where.items():
            names = frame[column] if column in frame else pd.Series("", frame.index)
            known = {name: _matches(str(name), patterns) for name in names.unique()}
            chosen &= names.map(known).to_numpy(bool)
        if self.batch is not None and len(frame):
            batch = pd.to_numeric(frame["batch"], errors="coerce")
            chosen &= batch.between(*self.batch).to_numpy()
        return frame[chosen]


def _matches(name: str, patterns: Patterns) -> bool:
    every = (patterns,) if isinstance(patterns, str) else patterns
    return any(fnmatchcase(name, pattern) for pattern in every)


class Bound(Selector):
    """One promise on the figures it selects.

    Attributes
    ----------
    promise : str
        What is promised, in a few words.
    statistic : str
        ``mape``, which may be at most ``limit``; ``sides``, the share of speedups on the right side
        of 1, or ``inside``, the share of figures within their band, which are at least ``limit``.
    limit : float
    each : tuple of str
        Columns whose every value is held to it by itself.
    cause : str
        Why it is missed, where that is known.
    ceiling : float or None
        Of one that is missed: what its MAPE may not exceed all the same.
    """

    promise: str
    statistic: Literal["mape", "sides", "inside"] = "mape"
    limit: float = Field(ge=0, le=1)
    each: tuple[str, ...] = ()
    cause: str = ""
    ceiling: float | None = None


class Answer(Selector):
    """A kind of answer the page speaks of.

    Attributes
    ----------
    name : str
    floor : str
        What the measurement itself is good for.
    note : str
        A sentence on what it means for who relies on it.
    """

    name: str
    floor: str = ""
    note: str = ""


class Open(Frozen):
    """What is not validated, why, and which basis its answers carry."""

    what: str
    why: str
    basis: Literal["validated", "extrapolated", "assumed", "refused"]


class Bounds(Frozen):
    """The whole file."""

    answers: tuple[Answer, ...] = ()
    bounds: tuple[Bound, ...] = ()
    not_validated: tuple[Open, ...] = ()


class Check(NamedTuple):
    """A promise and what became of it; ``value`` and ``kept`` are None without figures."""

    promise: str
    group: str
    statistic: str
    limit: float
    n: int
    value: float | None
    kept: bool | None
    cause: str
    ceiling: float | None = None

    @property
    def excused(self) -> bool:
        """Missed for a stated cause, and not by more than stated."""
        within = self.ceiling is None or (self.value or 0.0) <= self.ceiling
        return bool(self.cause) and within


@cache
def shipped() -> Bounds:
    """The promises and answers that come with the package."""
    text = files("calibration").joinpath("data", "bounds.yaml").read_text("utf-8")
    return validate(Bounds, load_yaml(text, PATH))


def check(frame: pd.DataFrame, bounds: Iterable[Bound] | None = None) -> list[Check]:
    """Hold a table of outcomes to the promises.

    Parameters
    ----------
    frame : DataFrame
        As from ``score.table`` and ``groups.with_groups``.
    bounds : iterable of Bound, optional
        Default those shipped.
    """
    every = shipped().bounds if bounds is None else bounds
    return [one for bound in every for one in _checks(frame, bound)]


def _checks(frame: pd.DataFrame, bound: Bound) -> Iterator[Check]:
    chosen = bound.of(frame)
    chosen = chosen[chosen["scored"]] if len(chosen) else chosen
    if not bound.each or chosen.empty:
        yield _check(chosen, bound, "")
        return
    for key, group in chosen.groupby(list(bound.each), sort=False):
        name = ", ".join(f"{column} {value}" for column, value in zip(bound.each, key, strict=True))
        yield _check(group, bound, name)


def _check(group: pd.DataFrame, bound: Bound, name: str) -> Check:
    n, value = _value(group, bound.statistic) if len(group) else (0, None)
    kept = None
    if value is not None:
        kept = value <= bound.limit if bound.statistic == "mape" else value >= bound.limit
    asked = bound.promise, name, bound.statistic, bound.limit
    return Check(*asked, n, value, kept, bound.cause, bound.ceiling)


def _value(group: pd.DataFrame, statistic: str) -> tuple[int, float | None]:
    """Figures that count, and the statistic of them."""
    if statistic == "inside":
        found = coverage(group)
        n = int(found["banded"])
        return n, found["inside"] / n if n else None
    values = sides(group) if statistic == "sides" else group["relative"].dropna().abs()
    return len(values), float(values.mean()) if len(values) else None


def held_out(frame: pd.DataFrame, other: pd.DataFrame | None) -> pd.DataFrame:
    """A table of outcomes, figures used in a fit replaced by predictions made without them.

    Parameters
    ----------
    frame : DataFrame
    other : DataFrame or None
        Columns ``case``, ``metric``, ``predicted``: predicted with constants fitted without them.
    """
    if other is None or other.empty:
        return frame
    keys = ["case", "metric"]
    joined = frame[keys].merge(other[[*keys, "predicted"]], on=keys, how="left")
    without = joined["predicted"].set_axis(frame.index)
    predicted = without.fillna(frame["predicted"])
    frame = frame.assign(predicted=predicted, in_sample=frame["in_sample"] & without.isna())
    return frame.assign(relative=error_of(frame))
