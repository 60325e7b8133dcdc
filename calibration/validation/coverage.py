"""How often the band holds what was measured, its residual taken from other models or data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from calibration.validation.anchors import solved
from calibration.validation.bounds import Answer
from calibration.validation.case import Case
from calibration.validation.predict import Outcome, predict
from calibration.validation.residuals import Rule, replaced, span
from calibration.validation.score import coverage
from calibration.validation.side_by_side import predict_all
from calibration.validation.tables import answers_of
from models.residuals import Residuals
from sim.progress import OnProgress

TOGETHER = "All together"


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
                found[case.name] = replaced(rule, ends, found.get(case.name))
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


def by_answer(frame: pd.DataFrame, answers: Sequence[Answer]) -> pd.DataFrame:
    """How many figures lie inside their bands, and how wide those are, by kind of answer.

    Parameters
    ----------
    frame : DataFrame
        As ``score.table`` and ``groups.with_groups`` make it of ``banded`` outcomes.
    answers : sequence of Answer

    Returns
    -------
    DataFrame
        ``answer``, ``n`` figures with a band, share ``inside``, median relative ``width``; the last
        row is of all together. Empty without figures.
    """
    if frame.empty:
        return pd.DataFrame(columns=["answer", "n", "inside", "width"])
    scored = frame[frame["scored"] & frame["basis"].notna()]
    named = scored.assign(answer=answers_of(scored, answers))
    groups = dict(iter(named.groupby("answer", sort=False))) | {TOGETHER: scored}
    rows = [{"answer": name, **coverage(group)} for name, group in groups.items() if name]
    found = pd.DataFrame(rows).rename(columns={"banded": "n"})
    return found.assign(inside=found["inside"] / found["n"])
