"""Host constants fitted to real runs: refitted without each publication, and scored on it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.validation.case import Case
from calibration.validation.predict import Outcome, predict
from models import catalog

NUDGE = 0.2
"""Share of itself by which a constant is moved to see what follows it."""


class Fit(NamedTuple):
    """Constants fitted together.

    Attributes
    ----------
    constants : tuple of str
        Dotted names in an engine entry; names joined by ``+`` move together.
    engine : str
        Entry whose values are the starting point.
    cases : sequence of Case
        What they were fitted on, of one publication or several.
    metrics : tuple of str
        The figures of those cases that count; all where empty.
    """

    constants: tuple[str, ...]
    engine: str
    cases: Sequence[Case]
    metrics: tuple[str, ...] = ()


class Fitted(NamedTuple):
    """Values of the constants, their standard errors, and the figures they rest on."""

    values: dict[str, float]
    se: dict[str, float]
    figures: int


def with_constants(case: Case, values: Mapping[str, float]) -> Case:
    """The same case with host constants of one's own; a joined name sets all its parts."""
    data = copy.deepcopy(dict(case.scenario))
    given = {part: round(value, 3) for name, value in values.items() for part in name.split("+")}
    data["engine"]["constants"] = {**data["engine"].get("constants", {}), **given}
    return replace(case, scenario=data)


def shipped(fit: Fit) -> dict[str, float]:
    """Values of the catalogue."""
    constants = catalog.engine(fit.engine).constants
    return {name: constants[name.split("+")[0]].value for name in fit.constants}


def responses(fit: Fit) -> pd.DataFrame:
    """What each constant does to each figure.

    Returns
    -------
    DataFrame
        A row a figure: ``case``, ``origin``, ``metric``, ``log`` (of measured / predicted), and
        for each constant the derivative of the logarithm of the prediction, per unit of it.
    """
    start = shipped(fit)
    rows = []
    for case in fit.cases:
        base = predict(case)
        moved = {name: predict(with_constants(case, _nudged(start, name))) for name in start}
        for index, outcome in enumerate(base):
            if fit.metrics and outcome.metric not in fit.metrics:
                continue
            rows.append(
                {
                    "case": case.name,
                    "origin": case.origin,
                    "metric": outcome.metric,
                    "log": np.log(outcome.measured / _value(outcome)),
                    **{
                        name: np.log(_value(moved[name][index]) / _value(outcome))
                        / (NUDGE * start[name])
                        for name in start
                    },
                }
            )
    return pd.DataFrame(rows)


def solve(fit: Fit, figures: pd.DataFrame) -> Fitted:
    """Values that fit the figures best, by least squares of their logarithms.

    Parameters
    ----------
    fit : Fit
    figures : DataFrame
        Rows of ``responses``, more of them than constants.

    Raises
    ------
    ValueError
        If there are not enough figures.

    Notes
    -----
    One Gauss-Newton step from the shipped values: a step time is linear in what the host adds.
    """
    names = list(fit.constants)
    slopes, logs = figures[names].to_numpy(dtype=float), figures["log"].to_numpy(dtype=float)
    freedom = len(logs) - len(names)
    if freedom < 1:
        raise ValueError(f"{len(logs)} figures cannot tell {len(names)} constants")
    change, *_ = np.linalg.lstsq(slopes, logs, rcond=None)
    left = logs - slopes @ change
    covariance = np.linalg.inv(slopes.T @ slopes) * float(left @ left) / freedom
    start = shipped(fit)
    return Fitted(
        {name: max(start[name] + float(by), 0.0) for name, by in zip(names, change, strict=True)},
        dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True)),
        len(logs),
    )


def _nudged(start: Mapping[str, float], name: str) -> dict[str, float]:
    return {name: start[name] * (1 + NUDGE)}


def _value(outcome: Outcome) -> float:
    if outcome.predicted is None:
        raise ValueError(f"{outcome.case.name} is saturated: nothing to fit")
    return outcome.predicted
