"""The one scalar fitted to serving runs, the time of a request outside the engine, held out.

It is added to the time to first token of every request before the engine sees it, so another value
shifts that time, and E2E with it, by the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.validation.predict import Outcome
from models import catalog
from models.gemm import US

METRIC = "ttft_s.mean"
CONSTANT = "request_us"
EVERY = "none"
"""Stands for the model left out where the value was fitted on all of them."""

Floats = NDArray[np.float64]


class RequestFit(NamedTuple):
    """``request_us`` fitted to stages, and its standard error [us]."""

    value: float
    se: float


def request_us(outcomes: Sequence[Outcome]) -> RequestFit:
    """Fit ``request_us`` to mean times to first token, predicted with the catalogue's value.

    Notes
    -----
    The value has the least mean relative error: the median of what each stage asks for, weighted by
    one over what was measured. Its standard error is that of a jackknife over models: stages of one
    model share their errors.
    """
    used = _used(outcomes)
    value = _fitted(used)
    models = _models(used)
    if len(models) < 2:
        return RequestFit(value, float("nan"))
    without = np.array([_fitted([o for o in used if _model(o) != name]) for name in models])
    spread = ((without - without.mean()) ** 2).sum()
    return RequestFit(value, float(np.sqrt((len(models) - 1) / len(models) * spread)))


def leave_one_model_out(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Error on each model with ``request_us`` fitted on the others.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Of serving cases, predicted with the catalogue's value.

    Returns
    -------
    DataFrame
        One row a model and a last one with none left out: ``left_out``, ``stages`` the errors are
        of, ``request_us`` and its ``se``, ``mape`` and ``bias`` of the mean time to first token,
        ``mape_shipped`` with the catalogue's value.
    """
    used = _used(outcomes)
    rows = []
    for name in (*_models(used), EVERY):
        tested = [o for o in used if name in (_model(o), EVERY)]
        fit = request_us([o for o in used if _model(o) != name])
        relative = _relative(tested, fit.value)
        shipped = np.abs([o.relative for o in tested if o.relative is not None])
        rows.append(
            {
                "left_out": name,
                "stages": len(tested),
                "request_us": fit.value,
                "se": fit.se,
                "mape": float(np.abs(relative).mean()),
                "bias": float(relative.mean()),
                "mape_shipped": float(shipped.mean()),
            }
        )
    return pd.DataFrame(rows)


def _used(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [
        outcome
        for outcome in outcomes
        if outcome.metric == METRIC
        and outcome.case.scores(METRIC)
        and CONSTANT in outcome.case.fitted
        and outcome.predicted is not None
    ]


def _model(outcome: Outcome) -> str:
    return outcome.case.labels["model"]


def _models(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_model(outcome) for outcome in outcomes))


def _inside(outcomes: Sequence[Outcome]) -> Floats:
    """Predicted time to first token inside the engine [s]."""
    outside = {name: catalog.engine(name).request_us.value * US for name in _engines(outcomes)}
    return np.array([(o.predicted or 0.0) - outside[o.case.labels["engine"]] for o in outcomes])


def _engines(outcomes: Sequence[Outcome]) -> set[str]:
    return {outcome.case.labels["engine"] for outcome in outcomes}


def _measured(outcomes: Sequence[Outcome]) -> Floats:
    return np.array([outcome.measured for outcome in outcomes])


def _fitted(outcomes: Sequence[Outcome]) -> float:
    measured = _measured(outcomes)
    asked = measured - _inside(outcomes)
    order = np.argsort(asked)
    weight = np.cumsum(1 / measured[order])
    return float(asked[order][np.searchsorted(weight, weight[-1] / 2)] / US)


def _relative(outcomes: Sequence[Outcome], value_us: float) -> Floats:
    return (_inside(outcomes) + value_us * US) / _measured(outcomes) - 1
