"""Predictions of the measured runs, made once: tests of one publication share a file."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import pandas as pd

from calibration.validation import guard
from calibration.validation.case import Case
from calibration.validation.groups import with_groups
from calibration.validation.predict import Outcome
from calibration.validation.score import table
from calibration.validation.side_by_side import predict_all


def cases(publication: str) -> list[Case]:
    """Cases of a publication that count, with those that fix an acceptance."""
    module = import_module(f"calibration.validation.suites.{publication}")
    return [case for case in module.cases() if not case.unscored]


@cache
def outcomes(publication: str) -> list[Outcome]:
    return predict_all(cases(publication), jobs=1)


def frame(publication: str) -> pd.DataFrame:
    return table(outcomes(publication))


def worse(publication: str) -> list[guard.Worse]:
    """What grew by more than a tenth of itself since its errors were stored."""
    now = with_groups(frame(publication))
    stored = guard.read_stored()
    stored = stored[stored["case"].isin({case.name for case in cases(publication)})]
    assert len(stored) == int(now["scored"].sum()) > 0, "run make validation"
    return guard.worsened(stored, now)
