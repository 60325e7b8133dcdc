"""How often the band holds what was measured, its residual taken from other models or data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from calibration.validation.anchors import solved
from calibration.validation.case import Case
from calibration.validation.predict import Outcome, predict
from calibration.validation.residuals import Rule, replaced, span
from calibration.validation.side_by_side import predict_all
from models.residuals import Residuals
from sim.progress import OnProgress


def left_out(
    rules: Sequence[Rule], cases: Sequence[Case], frame: pd.DataFrame
) -> dict[str, Residuals]:
    """Residuals for each case, made of figures of the other groups of its rule.

    Parameters
    ----------
    rules : sequence of Rule
    cases : sequence of Case
    frame : DataFrame
        Figures the rules choose from, as ``score.table`` makes it.

    Returns
    -------
    dict
        Case name to residuals; cases of a rule with a single group are missing.
    """
    found: dict[str, Residuals] = {}
    for rule in rules:
        chosen = rule.select(frame)
        groups = dict(zip(chosen["case"], chosen[rule.group], strict=True))
        for case in cases:
            if case.name not in groups or len(set(groups.values())) < 2:
                continue
            ends = span(rule, frame, without=groups[case.name])
            if ends is not None:
                found[case.name] = replaced(rule, ends)
    return found


def banded(
    cases: Sequence[Case],
    residuals: Mapping[str, Residuals],
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
) -> list[Outcome]:
    """Predict cases with bands, each with the residuals it is given; others are left out.

    Cases that share an anchor come together.
    """
    anchors = {case.anchor for case in cases if case.name in residuals and case.anchor}
    wanted = [case for case in cases if case.name in residuals or case.name in anchors]
    group = partial(_group, residuals=dict(residuals))
    return predict_all(wanted, jobs=jobs, on_progress=on_progress, group=group)


def _group(cases: Sequence[Case], band: bool, residuals: Mapping[str, Residuals]) -> list[Outcome]:
    ready = solved(cases) if cases[0].anchor else cases
    return [
        outcome
        for case in ready
        if case.name in residuals
        for outcome in predict(case, band=True, residuals=residuals[case.name])
    ]


def coverage(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Share of the figures inside their bands, and how wide those are.

    Parameters
    ----------
    frame : DataFrame
        As ``score.table`` makes it of ``banded`` outcomes.
    by : sequence of str
        Columns to group by.

    Returns
    -------
    DataFrame
        Indexed by group: ``n``, ``inside`` (share), ``width`` (median of hi / lo - 1, bands without
        an end left out).
    """
    known = frame[frame["scored"] & frame["basis"].notna()].copy()
    lo = pd.to_numeric(known["lo"]).fillna(0.0)
    hi = pd.to_numeric(known["hi"]).fillna(np.inf)
    known["inside"] = (known["measured"] >= lo) & (known["measured"] <= hi)
    known["width"] = (hi / lo - 1).replace(np.inf, np.nan)
    groups = known.groupby(list(by), sort=False)
    return pd.DataFrame(
        {"n": groups.size(), "inside": groups["inside"].mean(), "width": groups["width"].median()}
    )
