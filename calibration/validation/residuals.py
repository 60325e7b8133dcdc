"""From errors against real runs to the residuals that bands carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from models import catalog
from models.residuals import LEVEL, Residual, Residuals
from models.schema import Dtype

Floats = NDArray[np.float64]


class Rule(NamedTuple):
    """Which figures make up one residual row of the catalogue.

    Attributes
    ----------
    engine, family, weights, m_max
        Which row, as in ``Residual``; without a family that of prompts.
    origin, metric, acceptance : str
        Figures of which publication; of acceptance any where empty.
    strategies : tuple of str
        Kinds measured.
    batches : tuple of str
        Batches measured; any where empty.
    shape : str
        ``chain`` or ``tree``; either where empty.
    group : str
        Label whose values stand for what a user may ask next: a new model, a new data set.
    also : tuple of (str, str)
        Origin and metric of figures of another publication, whatever their acceptance.
    runs_of : str
        The publications, for the row's ``source``.
    """

    engine: str
    family: tuple[str, ...]
    origin: str
    metric: str
    strategies: tuple[str, ...]
    group: str
    weights: tuple[Dtype, ...] = ()
    m_max: int | None = None
    acceptance: str = ""
    batches: tuple[str, ...] = ()
    shape: str = ""
    also: tuple[tuple[str, str], ...] = ()
    runs_of: str = ""

    def select(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Scored figures of this row, with a prediction."""
        asked = (frame["origin"] == self.origin) & (frame["metric"] == self.metric)
        if self.acceptance:
            asked &= frame["acceptance"] == self.acceptance
        for origin, metric in self.also:
            asked |= (frame["origin"] == origin) & (frame["metric"] == metric)
        asked &= frame["scored"] & frame["relative"].notna()
        asked &= frame["strategy"].isin(self.strategies)
        if self.batches:
            asked &= frame["batch"].isin(self.batches)
        if self.shape:
            trees = frame["family"].str.endswith(" tree")
            asked &= trees if self.shape == "tree" else ~trees
        return frame[asked]

    def logs(self, chosen: pd.DataFrame) -> Floats:
        """Logarithms of measured / predicted step time; speedups and rates go with its inverse."""
        sign = np.where(chosen["metric"].isin(["speedup", "tok_per_s"]), 1.0, -1.0)
        relative: Floats = chosen["relative"].to_numpy(dtype=float)
        return sign * np.log1p(relative)


class Span(NamedTuple):
    """Ends of measured / predicted, and the runs and groups they come from."""

    lo: float
    hi: float
    runs: int
    groups: int


def interval(logs: Floats, groups: Sequence[object]) -> tuple[float, float]:
    """Ends of the 90 % interval of one more run, of a group not seen.

    Parameters
    ----------
    logs : array
        Logarithms of measured / predicted.
    groups : sequence
        Group of each, such as its model.

    Returns
    -------
    tuple of float
        Also logarithms.

    Notes
    -----
    Random effects: runs of one model share an error. With ``G`` groups of mean error ``b_g`` the
    variance of a run of a new group is that within groups, plus ``1 + 1/G`` times that between
    them; normal errors around the mean of the ``b_g``, Student's t with Satterthwaite's degrees of
    freedom for the two variances. A single group says nothing about the variance between groups:
    the interval is then one of its own further runs.
    """
    names = np.asarray([str(group) for group in groups])
    by_group = [logs[names == name] for name in sorted(set(names))]
    means = np.array([values.mean() for values in by_group])
    freedom = len(logs) - len(means)
    within = sum(float(((values - values.mean()) ** 2).sum()) for values in by_group)
    parts = [(within / freedom, freedom)] if freedom else []
    if len(means) > 1:
        parts.append((float(means.var(ddof=1)) * (1 + 1 / len(means)), len(means) - 1))
    else:
        parts = [(variance * (1 + 1 / len(logs)), free) for variance, free in parts]
    variance = sum(part for part, _ in parts)
    spread = sum(part**2 / free for part, free in parts)
    quantile = stats.t.ppf((1 + LEVEL) / 2, variance**2 / spread) if spread else 0.0
    half = float(quantile * np.sqrt(variance))
    middle = float(means.mean())
    return middle - half, middle + half


def span(rule: Rule, frame: pd.DataFrame, without: object = None) -> Span | None:
    """Ends of one residual row; None where no figure is left.

    Parameters
    ----------
    rule : Rule
    frame : DataFrame
        As ``score.table`` makes it.
    without : object
        A value of the rule's group to leave out.
    """
    chosen = rule.select(frame)
    chosen = chosen[chosen[rule.group] != without]
    if len(chosen) < 2:
        return None
    lo, hi = interval(rule.logs(chosen), list(chosen[rule.group]))
    ends = min(float(np.exp(lo)), 1.0), max(float(np.exp(hi)), 1.0)
    return Span(*ends, len(chosen), chosen[rule.group].nunique())


def replaced(rule: Rule, ends: Span, others: Residuals | None = None) -> Residuals:
    """Residuals with one row replaced; ``others`` default to those of the catalogue."""
    shipped = catalog.residuals() if others is None else others
    update = {"lo": ends.lo, "hi": ends.hi}
    rows = shipped.steps if rule.family else shipped.prefill
    new = tuple(row.model_copy(update=update) if is_row_of(row, rule) else row for row in rows)
    return shipped.model_copy(update={"steps" if rule.family else "prefill": new})


def is_row_of(row: Residual, rule: Rule) -> bool:
    """Whether a row of the catalogue is the one a rule makes."""
    mine = row.engine, row.family, row.weights, row.m_max
    return mine == (rule.engine, rule.family or ("*",), rule.weights, rule.m_max)
