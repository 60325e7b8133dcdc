"""What a sweep says, in words and lines of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from sim.analysis import describe, map_grid
from sim.analysis.layout import MISSING
from sim.analysis.map_figures import drafting, ordered
from sim.analysis.maps import Axis, Sweep
from sim.analysis.verdict import number, percent

Row = Mapping[str, Any]


class Line(NamedTuple):
    """One strategy at one point.

    Attributes
    ----------
    point : str
        Where; empty where it is the point of the line before.
    strategy : str
    chosen : bool
        Whether it is the one to choose there.
    cells : list of str
    """

    point: str
    strategy: str
    chosen: bool
    cells: list[str]


def answer(sweep: Sweep, at: Mapping[str, float]) -> str:
    """The answer in a sentence: at the operating point where there is one, else over all points.

    Parameters
    ----------
    sweep : Sweep
    at : mapping
        The operating point: values of varied keys.
    """
    return (_here(sweep, at) if at else None) or _overall(sweep)


def _here(sweep: Sweep, at: Mapping[str, float]) -> str | None:
    if len(sweep.axes) != 2 or sweep.words or sweep.baseline is None:
        return None
    x, y = ordered(sweep)
    places = x.chosen(at), y.chosen(at)
    if places[0] is None or places[1] is None:
        return None
    where = f"At {_short(x)} {places[0]:g} and {_short(y)} {places[1]:g}"
    known = all(value in axis.values for axis, value in zip((x, y), places, strict=True))
    between = "" if known else " (interpolated)"
    field = map_grid.grid(sweep, x, y).at(places[0], places[1])
    if field is None:
        return f"{where}: outside what was simulated."
    if np.isnan(field.rates).all():
        return f"{where} every strategy saturates."
    first = int(field.fastest()[0, 0])
    name = sweep.strategies[first]
    if first == sweep.baseline:
        return f"{where} nothing beats {name}{between}."
    gain, lo, hi = (float(np.exp(a[first, 0, 0])) for a in (field.gains(), field.lo, field.hi))
    if np.isnan(gain):
        return f"{where} {name} keeps up where plain decoding does not."
    band = f", band {number(lo)} to {number(hi)}" if hi > lo else ""
    if lo < 1 < hi:
        return (
            f"{where} {name} is fastest by its prediction: speedup {number(gain)}{band}{between}; "
            "undecided, for the band holds 1: until tau is measured on your traffic, choose "
            f"{sweep.strategies[_sure(sweep, field)]}."
        )
    return f"{where} {name} is fastest: speedup {number(gain)}{band}{between}."


def _sure(sweep: Sweep, field: map_grid.Map) -> int:
    """The fastest whose band is all above 1 and that can be run, else plain decoding."""
    gains = field.gains()[:, 0, 0]
    sure = [
        index
        for index in drafting(sweep)
        if field.lo[index, 0, 0] > 0 and "(hypothetical)" not in sweep.strategies[index]
    ]
    assert sweep.baseline is not None
    return max(sure, key=lambda index: float(gains[index]), default=sweep.baseline)


def _short(axis: Axis) -> str:
    """Its title without what explains it."""
    return axis.title.partition(",")[0]


def _overall(sweep: Sweep) -> str:
    """How often each strategy is the fastest, and where the largest speedup is."""
    rates, gains = sweep.rates(), sweep.gains()
    served = ~np.isnan(rates).all(axis=0)
    if not served.any():
        return "Every strategy saturates at every point."
    first = np.nanargmax(rates[:, served], axis=0)
    count = served.sum()
    told = [
        f"{name} at {percent(float((first == index).sum() / count))}"
        for index, name in enumerate(sweep.strategies)
        if (first == index).any()
    ]
    text = f"Fastest of {count} points: {', '.join(told)}"
    if not drafting(sweep) or np.isnan(gains[drafting(sweep)]).all():
        return f"{text}."
    index, point = np.unravel_index(np.nanargmax(gains), gains.shape)
    where = ", ".join(
        f"{axis.title} {sweep.columns[axis.column][0, point]:g}" for axis in sweep.axes
    )
    at = f" at {where}" if where else ""
    largest = f"largest speedup {number(float(gains[index, point]))}"
    return f"{text}; {largest}: {sweep.strategies[index]}{at}."


def notes(sweep: Sweep) -> list[str]:
    """What to know of the points: how many are undecided, and how many saturate."""
    rates, (lo, hi) = sweep.rates(), sweep.band()
    full = int(np.isnan(rates).sum())
    said = []
    others = drafting(sweep)
    if others and not np.isnan(rates[others]).all():
        served = ~np.isnan(rates[others]).all(axis=0)
        first = np.asarray(others)[np.nanargmax(rates[others][:, served], axis=0)]
        places = np.flatnonzero(served)
        doubtful = int(((lo[first, places] < 1) & (hi[first, places] > 1)).sum())
        if doubtful:
            said.append(
                f"Undecided at {doubtful} of {rates.shape[1]} points: the band of the fastest "
                "drafting strategy holds 1. Measure tau on your traffic."
            )
    if full:
        said.append(
            f"{full} of {rates.size} runs saturate: more arrives than is served. They promise no "
            "latency and are left blank."
        )
    return said


def lines(rows: Sequence[Row], varied: Sequence[str]) -> list[Line]:
    """The table of all points.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of the results table.
    varied : sequence of str
        Its varied columns.
    """
    found = []
    for _, group in groupby(rows, key=lambda row: row["point"]):
        for place, row in enumerate(group):
            where = "" if place else describe.point({name: row[name] for name in varied})
            name = row["strategy"] + (" (hypothetical)" if row.get("hypothetical") else "")
            found.append(Line(where, name, bool(row.get("best")), _cells(row)))
    return found


def _cells(row: Row) -> list[str]:
    if row["saturated"]:
        return ["saturated", *[MISSING] * 5]
    ends = row.get("speedup_lo"), row.get("speedup_hi")
    band = f" ({_end(ends[0])} to {_end(ends[1])})" if any(ends) else ""
    return [
        MISSING if row["speedup"] is None else f"{number(row['speedup'])}{band}",
        *(_ms(row[f"{name}_mean"]) for name in ("tpot_s", "ttft_s")),
        number(row["tok_per_s_per_gpu"]),
        number(row["tau"]),
        number(row.get("break_even_tau")),
    ]


def _end(value: float | None) -> str:
    return "?" if value is None else number(value)


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else 1e3 * seconds)
