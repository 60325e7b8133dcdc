"""What the validation page shows beside the errors of single figures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import pandas as pd

from calibration.validation import fitted
from calibration.validation.bounds import shipped
from calibration.validation.coverage import banded, by_answer, left_out
from calibration.validation.groups import with_groups
from calibration.validation.predict import Outcome
from calibration.validation.residual_rules import PREFILL, RULES, figures
from calibration.validation.score import table
from sim.progress import OnProgress

PEERS = ("name", "rows", "e2e_mape", "ttft_mape", "itl_mape", "caveat", "source")
SCALARS = ("name", "value", "unit", "se", "fitted_on", "n", "in_sample", "held_out", "source")
COVERAGE = ("answer", "n", "inside", "width")


class Extras(NamedTuple):
    """Tables a run of the cases does not give by itself; empty where there is nothing to show.

    Attributes
    ----------
    peers : DataFrame
        Errors other simulators publish: ``name``, ``rows``, ``e2e_mape``, ``ttft_mape``,
        ``itl_mape`` (shares), ``caveat``, ``source``.
    scalars : DataFrame
        Every fitted scalar: ``name``, ``value``, ``unit``, ``se``, ``fitted_on``, ``n`` figures it
        touches, their MAPE ``in_sample`` and ``held_out`` (fitted without them), ``source``.
    held_out : DataFrame
        ``case``, ``metric``, ``predicted`` with constants fitted without that publication; stands
        in for in-sample predictions where promises are checked.
    coverage : DataFrame
        Of bands made without the model they are tried on: ``answer``, ``n``, share ``inside``,
        median relative ``width``.
    """

    peers: pd.DataFrame = pd.DataFrame(columns=list(PEERS))
    scalars: pd.DataFrame = pd.DataFrame(columns=list(SCALARS))
    held_out: pd.DataFrame = pd.DataFrame(columns=["case", "metric", "predicted"])
    coverage: pd.DataFrame = pd.DataFrame(columns=list(COVERAGE))


def gather(
    outcomes: Sequence[Outcome],
    with_bands: bool = True,
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
) -> Extras:
    """All there is to show.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Of all suites.
    with_bands : bool
        False: predictions by constants fitted without the figures, and nothing else.
    jobs, on_progress
        As in ``side_by_side.predict_all``.
    """
    held_out = fitted.without(outcomes)
    if not with_bands:
        return Extras(held_out=held_out)
    cases = list({outcome.case.name: outcome.case for outcome in outcomes}.values())
    residuals = left_out([*RULES, *PREFILL], cases, figures(table(outcomes)))
    tried = banded(cases, residuals, jobs, on_progress)
    return Extras(
        peers=_peers(),
        scalars=fitted.table(outcomes, held_out),
        held_out=held_out,
        coverage=by_answer(with_groups(table(tried)), shipped().answers),
    )


def _peers() -> pd.DataFrame:
    file = files("calibration").joinpath("data", "peers.csv")
    if not file.is_file():
        return Extras().peers
    return pd.read_csv(io.StringIO(file.read_text("utf-8")))
