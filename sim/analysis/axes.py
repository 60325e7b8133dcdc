"""Units, ticks, titles and legends of the axes of small pictures."""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sim.analysis.palette import CROSS, MUTED

LONGEST_LABEL = 52
LINE = 16
"""Height of a row of the legend [px]."""
TWO_COLUMNS = 24
"""Letters a label may have for the legend to be in two columns."""
MOST_TICKS = 6
MANTISSAS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0))


def short(label: str, most: int = LONGEST_LABEL) -> str:
    """A label in one line of at most ``most`` columns, its middle left out.

    Wide letters, as of Chinese, take two columns.
    """
    text = "".join(letter if letter.isprintable() else " " for letter in label)
    if _columns(text) <= most:
        return text
    head = _start(text, (most - 1) * 2 // 3)
    tail = _start(text[::-1], most - 1 - _columns(head))[::-1]
    return f"{head}…{tail}"


def _start(text: str, most: int) -> str:
    """As many letters as fit into ``most`` columns."""
    widths = itertools.accumulate(_columns(letter) for letter in text)
    return text[: sum(width <= most for width in widths)]


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Factor and name of the unit of latencies: ms, or s from ten seconds on."""
    return (1.0, "s") if max(seconds, default=0.0) >= 10 else (1e3, "ms")


def duration_unit(seconds: float) -> tuple[float, str]:
    """Factor and name of the unit for a stretch of simulated time: s, min or h."""
    if seconds < 600:
        return 1.0, "s"
    return (1 / 60, "min") if seconds < 3 * 3600 else (1 / 3600, "h")


def log_ticks(lo: float, hi: float) -> Sequence[float]:
    """Round numbers between ``lo`` and ``hi``, both above 0: three to six where that can be."""
    first, last = math.floor(math.log10(lo)), math.ceil(math.log10(hi))
    found: list[float] = []
    for mantissas in MANTISSAS:
        ticks = [m * 10.0**e for e in range(first, last + 1) for m in mantissas]
        inside = [tick for tick in ticks if lo <= tick <= hi]
        if not found or len(inside) <= MOST_TICKS:
            found = inside
    if len(found) < 3:
        return _even(lo, hi)
    return [float(f"{tick:.6g}") for tick in found[:: -(-len(found) // MOST_TICKS)]]


def _even(lo: float, hi: float) -> list[float]:
    """Multiples of a round step, for a range too narrow for powers of ten."""
    step = 10.0 ** math.floor(math.log10(hi - lo))
    step *= next(m for m in (0.2, 0.25, 0.5, 1.0, 2.0) if (hi - lo) / (step * m) <= MOST_TICKS - 1)
    ticks = np.arange(math.ceil(lo / step), math.floor(hi / step) + 1) * step
    return [float(f"{tick:.6g}") for tick in ticks]


def log(ax: Any, which: str, lo: float, hi: float) -> None:
    """Make the ``x`` or ``y`` axis of an axes logarithmic from ``lo`` to ``hi``."""
    ticks = log_ticks(lo, hi)
    ax.set(**{f"{which}scale": "log", f"{which}lim": (lo, hi)})
    getattr(ax, f"set_{which}ticks")(ticks, [_plain(tick) for tick in ticks])
    getattr(ax, f"set_{which}ticks")([], minor=True)


def linear(ax: Any, which: str, top: float | None = None) -> None:
    """Let the ``x`` or ``y`` axis of an axes begin at 0, with few ticks in plain numbers."""
    ax.set(**{f"{which}lim": (0, top)})
    ax.locator_params(which, nbins=5)
    getattr(ax, f"{which}axis").set_major_formatter(lambda value, _: _plain(value))


def load_axis(ax: Any, loads: Iterable[float]) -> None:
    """Put the ticks of the x axis at the loads themselves, where they leave room."""
    values = sorted(set(loads))
    gaps = np.diff(values)
    if values[0] > 0 and values[-1] > 30 * values[0]:
        log(ax, "x", 0.9 * values[0], 1.1 * values[-1])
    elif len(values) <= 8 and gaps.size and gaps.min() > 0.08 * gaps.sum():
        ax.set_xticks(values, [_plain(value) for value in values])


def _plain(value: float) -> str:
    return f"{value:,.10g}"


def finish(ax: Any, x: str, y: str, entries: Sequence[tuple[Any, ...]]) -> None:
    """Put titles on an axes, the one of y above it, and a legend of (label, artist).

    A label is shown as it is: ``$`` and a leading ``_`` mean nothing.
    """
    ax.set_xlabel(x)
    ax.set_ylabel(y, rotation=0, ha="left", va="bottom")
    labels = [short(label) for label, _ in entries]
    if labels:
        space = {"borderpad": 0.2, "handlelength": 2.2, "handletextpad": 0.6, "labelspacing": 0.35}
        artists = [artist for _, artist in entries]
        legend = ax.legend(
            artists, ["x"] * len(labels), loc="upper left", ncols=columns(labels), **space
        )
        # Set afterwards: given at once, a label that begins with "_" may be dropped.
        for text, label in zip(legend.get_texts(), labels, strict=True):
            text.set_parse_math(False)
            text.set_text(label)


def columns(labels: Sequence[str]) -> int:
    """Columns a legend of these labels takes."""
    return 2 if max(map(_columns, labels), default=0) <= TWO_COLUMNS else 1


def legend_height(ax: Any) -> float:
    """Height of the legend of an axes [px]; 0 without one."""
    legend = ax.get_legend()
    labels = [text.get_text() for text in legend.get_texts()] if legend else []
    return LINE * -(-len(labels) // columns(labels)) + 8 * bool(labels)


def statistics(ax: Any, rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[Any, ...]]:
    """Legend of what lines, shades and crosses over the load are, whatever the strategy."""
    entries = [
        ("mean", *ax.plot([], [], color=MUTED)),
        ("p95", *ax.plot([], [], color=MUTED, linestyle=":", linewidth=1.1)),
    ]
    for level in sorted({row["band"][name]["level"] for row in rows if name in row["band"]}):
        shade = ax.fill([], [], color=MUTED, alpha=0.25, linewidth=0)
        entries.append((f"{100 * level:g} % band of mean", *shade))
    if any(row["saturated"] for row in rows):
        entries.append(("saturated", *ax.plot([], [], **CROSS, color=MUTED, mec=MUTED)))
    return entries
