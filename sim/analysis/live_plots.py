"""Picture of a recorded run against its prediction: latencies and throughput over the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.analysis import axes, plots
from sim.analysis.palette import INK, MUTED, PAPER, SHADES
from sim.analysis.sheet import Sheet, name

PREDICTED = SHADES["accent"].light
HEIGHT = 230
LOADS = {
    "concurrency": "concurrent users",
    "rate_per_s": "requests a second",
    "rate_scale": "times the rate of the trace",
}
PANELS = {
    "ttft_s_mean": ("mean TTFT", "ms", 1e3),
    "tpot_s_mean": ("mean TPOT", "ms", 1e3),
    "tok_per_s": ("throughput", "tokens a second", 1.0),
}
"""Title, unit and factor of each metric drawn."""
ROOM, MOST_BAND = 1.3, 2.5
"""Factors an axis reaches beyond the values, and beyond them for the sake of the band."""
WIDE = 8.0
"""From this ratio of the largest to the smallest load on, loads stand at even steps of a log."""

Row = Mapping[str, Any]


def compared(document: Mapping[str, Any]) -> Any:
    """Measured marks, with the range of their repeats, and the line and band predicted.

    Parameters
    ----------
    document : mapping
        What ``speccast compare --json`` prints.

    Returns
    -------
    matplotlib.figure.Figure
    """
    rows, key = _ladder(document["rows"])
    with plots.blank() as figure:
        sheet = Sheet(figure, len(PANELS), len(PANELS), HEIGHT, legend=1)
        for metric, (title, unit, factor) in PANELS.items():
            ax = sheet.panel()
            scores = [row["metrics"][metric] for row in rows]
            loads = np.array([_load(row) for row in rows], dtype=float)
            _panel(ax, loads, scores, factor)
            ax.set_xlabel(LOADS.get(key, key), fontsize=10.5, color=MUTED)
            mape = document["mape"]["metrics"][metric]
            off = "" if mape is None else f", {100 * mape:.1f} % off"
            name(ax, title, f"{unit}{off}")
        strategy = document["strategy"]["predicted"]
        sheet.ask(
            axes.short(f"Does the model predict what {document.get('target') or 'it'} does?", 80),
            axes.short(f"{strategy}. {_note(rows, len(document['rows']) - len(rows))}", 150),
        )
        sheet.legend(_entries(figure.axes[0], rows))
    return figure


def _ladder(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """The points whose load is set by one key, the one most have, in order of it."""
    keys = [key for row in rows for key in row["point"]]
    key = max(dict.fromkeys(keys), key=keys.count, default="concurrency")
    return sorted((row for row in rows if key in row["point"]), key=_load), key


def _load(row: Row) -> float:
    (value,) = row["point"].values()
    return float(value)


def _column(scores: Sequence[Row], key: str, factor: float) -> Any:
    values = [score[key] for score in scores]
    return factor * np.array([np.nan if value is None else value for value in values], dtype=float)


def _panel(ax: Any, loads: Any, scores: Sequence[Row], factor: float) -> None:
    measured, predicted, least, most, lo, hi = (
        _column(scores, key, factor)
        for key in ("measured", "predicted", "least", "most", "lo", "hi")
    )
    bottom, top = _span((measured, predicted, least, most), (lo, hi))
    # Set first: axes left to find limits of their own warn of values that are alike.
    axes.log(ax, "y", bottom, top)
    # An open end reaches the edge.
    ends = ((lo, bottom), (hi, top))
    shade = (np.clip(np.where(np.isnan(end), edge, end), bottom, top) for end, edge in ends)
    banded = ~np.isnan(lo) | ~np.isnan(hi)
    style = {"color": PREDICTED, "alpha": 0.18, "linewidth": 0}
    ax.fill_between(loads, *shade, where=banded, **style)
    ax.plot(loads, predicted, color=PREDICTED, linewidth=1.8, marker="s", markersize=4)
    ax.vlines(loads, least, most, color=INK, linewidth=1.4)
    ax.plot(loads, measured, **_mark(), zorder=4)
    _loads(ax, loads)


def _span(values: Sequence[Any], band: Sequence[Any]) -> tuple[float, float]:
    """Ends of a logarithmic axis: a wide band must not press the values together."""
    drawn, ends = (np.concatenate(parts) for parts in (values, band))
    drawn, ends = drawn[drawn > 0], ends[ends > 0]
    if not drawn.size:
        return 1.0, 10.0
    lo, hi = float(drawn.min()), float(drawn.max())
    ends = np.clip(ends, lo / MOST_BAND, hi * MOST_BAND)
    return min([lo, *ends]) / ROOM, max([hi, *ends]) * ROOM


def _mark() -> dict[str, Any]:
    return {
        "color": INK,
        "marker": "o",
        "linestyle": "",
        "markersize": 7,
        "markeredgecolor": PAPER,
        "clip_on": False,
    }


def _loads(ax: Any, loads: Any) -> None:
    """Ticks of the x axis at the loads themselves, where they have room."""
    values = sorted(set(loads))
    if len(values) > 1 and values[0] > 0 and values[-1] > WIDE * values[0]:
        ax.set(xscale="log", xlim=(0.85 * values[0], values[-1] / 0.85))
        ratios = np.diff(np.log(values)) / np.log(values[-1] / values[0])
        if ratios.min() > 0.08:
            ax.set_xticks(values, [f"{value:g}" for value in values])
        ax.set_xticks([], minor=True)
    elif values:
        axes.load_axis(ax, values)


def _note(rows: Sequence[Row], others: int) -> str:
    levels = {row["band"]["level"] for row in rows if row["band"]}
    band = f" with its {100 * max(levels):g} % band" if levels else ""
    several = any(row["repeats"] > 1 for row in rows)
    span = ", its line the range over repeats" if several else ""
    rest = f" Not drawn: {others} whose load was set otherwise." if others else ""
    return f"A dot is a measured stage{span}; the squares are the prediction{band}.{rest}"


def _entries(ax: Any, rows: Sequence[Row]) -> list[tuple[str, Any]]:
    entries = [
        ("measured", *ax.plot([], [], **_mark())),
        ("predicted", *ax.plot([], [], color=PREDICTED, linewidth=1.8, marker="s", markersize=4)),
    ]
    if any(row["band"] for row in rows):
        entries.append(("band", *ax.fill([], [], color=PREDICTED, alpha=0.18, linewidth=0)))
    return entries
