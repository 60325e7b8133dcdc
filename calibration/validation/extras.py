"""What the validation page shows beside the errors of single figures."""

from __future__ import annotations

import io
from importlib.resources import files
from typing import NamedTuple

import pandas as pd

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


def gather() -> Extras:
    """All there is to show."""
    return Extras(peers=_peers())


def _peers() -> pd.DataFrame:
    file = files("calibration").joinpath("data", "peers.csv")
    if not file.is_file():
        return Extras().peers
    return pd.read_csv(io.StringIO(file.read_text("utf-8")))
