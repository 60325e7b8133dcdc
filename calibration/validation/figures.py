"""Which pictures the validation page has: the rows each shows, and what it shows in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from calibration.validation import tables
from calibration.validation.bounds import shipped
from calibration.validation.groups import PLAIN
from sim.analysis import validation_bars, validation_plots

MOST_PANELS = 12
SERVED = tuple(validation_plots.LATENCIES)
OWN_METRICS = {"e2e_mape": "e2e_s.mean", "ttft_mape": "ttft_s.mean", "itl_mape": "tpot_s.mean"}


class Picture(NamedTuple):
    """One picture: its file without ending, what it shows for those who cannot see it."""

    name: str
    label: str
    figure: Any


FILES = tuple(
    f"validation_{name}.svg"
    for name in ("serving", "speedup", "batch", "prefill", "bands", "peers")
)


def pictures(frame: pd.DataFrame, peers: pd.DataFrame) -> Iterator[Picture]:
    """Every picture for which there are figures.

    Parameters
    ----------
    frame : DataFrame
        As from ``score.table`` and ``groups.with_groups``.
    peers : DataFrame
        As ``Extras.peers``.
    """
    scored = frame[frame["scored"]].assign(batch=pd.to_numeric(frame["batch"], errors="coerce"))
    serving = scored[(scored["suite"] == "serving") & scored["metric"].isin(SERVED)]
    if len(serving):
        label = "Predicted against measured latencies of plain serving, by model"
        yield Picture("serving", label, validation_plots.latencies(serving))
    yield from _speculation(scored[scored["metric"] == "speedup"].dropna(subset=["batch"]))
    ladder = scored[(scored["suite"] == "prefill") & scored["metric"].isin(SERVED[1:])]
    ladder = _ladders(ladder.dropna(subset=["batch"]))
    if len(ladder):
        label = "TTFT and TPOT of uncached prompts by users, measured and predicted"
        yield Picture("prefill", label, validation_plots.ladder(ladder))
    banded = scored.dropna(subset=["predicted", "lo", "hi"])
    banded = banded.assign(answer=tables.answers_of(banded, shipped().answers))
    banded = _read(banded[banded["answer"] != ""])
    if len(banded):
        label = "Where measured figures lie within the band of their prediction"
        yield Picture("bands", label, validation_bars.coverage(banded))
    if len(peers) and len(serving):
        everyone = pd.concat([_own(serving), peers], ignore_index=True)
        label = "Mean errors that simulators publish on runs of the same kind"
        yield Picture("peers", label, validation_bars.peers(everyone))


def _read(banded: pd.DataFrame) -> pd.DataFrame:
    """Figures moved towards their band by as much as reading them off a picture may be off."""
    measured = banded["measured"]
    slack = measured * banded["reading"]
    inside = measured.clip(banded["lo"].astype(float), banded["hi"].astype(float))
    return banded.assign(measured=measured + (inside - measured).clip(-slack, slack))


def _speculation(speedups: pd.DataFrame) -> Iterator[Picture]:
    spread = speedups[speedups["family"] != PLAIN]
    curves = _curves(spread)
    if len(curves):
        label = "Speedup by batch, measured and predicted, by model and data set"
        yield Picture("speedup", label, validation_plots.speedups(curves))
    if len(spread):
        label = "Error of predicted speedups by batch, for each family of strategies"
        yield Picture("batch", label, validation_plots.errors_by_batch(spread))


def _curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Speedups by batch, the panels with most figures first; of one family one curve a panel."""
    titled = frame.assign(panel=frame["model"] + ", " + frame["workload"])
    curve = ["panel", "family", "batch"]
    titled = titled.sort_values("acceptance", ascending=False, kind="stable")
    titled = titled.drop_duplicates(curve).sort_index()
    titled = titled[titled.groupby(["panel", "family"])["batch"].transform("size") > 1]
    chosen = titled["panel"].value_counts(sort=True).index[:MOST_PANELS]
    return titled[titled["panel"].isin(chosen)].sort_values("panel", kind="stable")


def _ladders(frame: pd.DataFrame) -> pd.DataFrame:
    """Of the publication with most figures by users."""
    if frame.empty:
        return frame
    largest = frame["origin"].value_counts().index[0]
    chosen: pd.DataFrame = frame[frame["origin"] == largest]
    return chosen


def _own(serving: pd.DataFrame) -> pd.DataFrame:
    """Our own line among the peers."""
    errors = {
        name: serving.loc[serving["metric"] == metric, "relative"].abs().mean()
        for name, metric in OWN_METRICS.items()
    }
    return pd.DataFrame(
        [{"name": validation_bars.OWN, "rows": serving["case"].nunique(), **errors}]
    )
