"""Cost against latency of the plans: which ones no other beats."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis import axes, plan_words, plots
from sim.analysis.palette import BAD, MUTED, PAPER, RING, Look
from sim.analysis.plan_words import LATENCIES, Document, Plan
from sim.analysis.sheet import Sheet, name

HEIGHT, LEFT = 280, 52
LETTER, BOLD, LINE = 5.8, 6.8, 13.0
"""About the width of a letter, that of a bold one, and the height of a label [px]."""
FEW = 10
"""Marks up to which those off the front are labelled too."""
SMALLEST, PER_HEADROOM, LARGEST = 6.0, 12.0, 15.0
"""Size of a mark without headroom, how it grows with it, and where that ends [px]."""
RIM = 11.0
"""How much larger the ring around the plan to buy is than its mark [px]."""
WIDE = 8.0
"""From this ratio of the largest to the smallest figure on, an axis is logarithmic."""
PLACES = [
    *((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)),
    *((0, 2), (0, -2), (-1, 2), (1, -2)),
]
"""Sides of a mark its label may stand at, the first that is free."""

Box = tuple[float, float, float, float]
Line = tuple[tuple[float, float], tuple[float, float]]


def pareto(document: Document, look: Mapping[str, Look]) -> Any:
    """Cost a day (GPUs without prices) against p95 in the worst window, a panel a latency.

    Parameters
    ----------
    document : mapping
        What ``speccast plan --json`` prints.
    look : mapping
        How each strategy looks.

    Returns
    -------
    matplotlib.figure.Figure or None
        None where no plan has a latency.
    """
    shown = [key for key in ("ttft_s", "tpot_s", "e2e_s") if _bound(document, key) is not None]
    panels = [key for key in shown or ("ttft_s", "tpot_s") if _marks(document, key)]
    if not panels:
        return None
    priced = all(plan.get("usd_per_day") is not None for plan in document["plans"])
    cost = "usd_per_day" if priced else "gpus"
    with plots.blank() as figure:
        names = list(look)
        lines = 1 + -(-len(names) // 4)
        sheet = Sheet(figure, len(panels), len(panels), HEIGHT, legend=lines, left=LEFT)
        entries: dict[str, Any] = dict.fromkeys(names)
        for key in panels:
            ax = sheet.panel()
            entries |= _panel(ax, document, key, cost, look)
            ax.set_xlabel("USD a day" if priced else "GPUs", fontsize=10.5, color=MUTED)
            name(ax, f"{LATENCIES[key]} p95 in the worst window", "ms")
        sheet.ask(
            "What does lower latency cost?",
            "Filled: no other is better in cost, TPOT and headroom at once. Larger marks have "
            "more headroom over the peak, in %.",
        )
        drawn = [(axes.short(label, 44), mark) for label, mark in entries.items() if mark]
        sheet.legend(drawn)
    return figure


def _bound(document: Document, key: str) -> float | None:
    bounds = (document.get("slo") or {}).get(key) or {}
    value: float | None = bounds.get("p95")
    return value


def _marks(document: Document, key: str) -> list[tuple[Plan, float]]:
    """Plans with their latency [ms]."""
    found = ((plan, (plan.get("worst") or {}).get(f"{key}_p95")) for plan in document["plans"])
    return [(plan, 1e3 * value) for plan, value in found if value is not None]


def _panel(
    ax: Any, document: Document, key: str, cost: str, look: Mapping[str, Look]
) -> dict[str, Any]:
    """Draw one panel; its marks by label."""
    marks = _marks(document, key)
    entries: dict[str, Any] = {}
    for plan, value in marks:
        style = _style(plan, look[plan["strategy"]])
        ax.plot([plan[cost]], [value], **style)
        entries[plan["strategy"]] = _legend_mark(ax, look[plan["strategy"]])
        if plan is plan_words.chosen(document):
            ax.plot([plan[cost]], [value], **RING | {"markersize": style["markersize"] + RIM})
            entries["to buy"] = ax.plot([], [], **RING)[0]
    steps = front([(plan[cost], value) for plan, value in marks if not plan["hypothetical"]])
    if len(steps) > 1:
        x, y = zip(*steps, strict=True)
        style = {"color": MUTED, "linewidth": 1.2, "zorder": 1.5}
        (entries["lowest for its cost"],) = ax.step(x, y, where="post", **style)
    bound = _bound(document, key)
    if bound is not None:
        style = {"color": BAD, "linestyle": (0, (4, 2)), "linewidth": 1.2}
        entries["SLO"] = ax.axhline(1e3 * bound, **style)
    known = [value for _, value in marks] + ([1e3 * bound] if bound is not None else [])
    _limits(ax, "x", [plan[cost] for plan, _ in marks])
    _limits(ax, "y", known)
    lines = [*itertools.pairwise(steps)]
    if bound is not None:
        lines.append(((ax.get_xlim()[0], 1e3 * bound), (ax.get_xlim()[1], 1e3 * bound)))
    _label(ax, [(plan, plan[cost], value) for plan, value in marks], lines)
    return entries


def _style(plan: Plan, look: Look) -> dict[str, Any]:
    """A filled mark on the front, else an outline; larger with headroom."""
    room = max(plan.get("headroom") or 0.0, 0.0)
    return {
        "marker": look.marker,
        "color": look.colour,
        "linestyle": "",
        "markersize": min(SMALLEST + PER_HEADROOM * room, LARGEST),
        "markerfacecolor": look.colour if plan.get("pareto") else PAPER,
        "markeredgecolor": look.colour,
        "markeredgewidth": 1.6,
        "alpha": 1.0,
        "zorder": 3,
    }


def _legend_mark(ax: Any, look: Look) -> Any:
    return ax.plot([], [], marker=look.marker, color=look.colour, linestyle="", markersize=7)[0]


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that none other matches in both, from the cheapest on."""
    kept: list[tuple[float, float]] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def _limits(ax: Any, which: str, values: Sequence[float]) -> None:
    lo, hi = min(values), max(values)
    if lo > 0 and hi / lo > WIDE:
        axes.log(ax, which, lo / 1.35, 1.35 * hi)
        return
    room = 0.18 * max(hi - lo, 0.1 * hi)
    ax.set(**{f"{which}lim": (max(lo - room, 0), hi + room)})
    ax.locator_params(which, nbins=5)
    getattr(ax, f"{which}axis").set_major_formatter(lambda value, _: f"{value:,.10g}")


def _label(ax: Any, marks: Sequence[tuple[Plan, float, float]], lines: Sequence[Line]) -> None:
    """GPU and headroom beside the marks of the front, of all where they are few, if it fits."""
    at = [ax.transData.transform((x, y)) for _, x, y in marks]
    taken: list[Box] = [(x - 9, y - 9, x + 9, y + 9) for x, y in at]
    taken += [box for line in lines for box in _boxes(ax.transData.transform(line))]
    limits = ax.transAxes.transform([(0, 0), (1, 1)]).ravel()
    for front in (True, False):
        for (plan, _, _), (x, y) in zip(marks, at, strict=True):
            if bool(plan.get("pareto")) is front and (front or len(marks) <= FEW):
                box = _free(_text(plan), (LETTER, BOLD)[front], (x, y), limits, taken)
                if box is not None:
                    taken.append(box)
                    left, middle = box[0], (box[1] + box[3]) / 2
                    place = ax.transData.inverted().transform((left, middle))
                    weight = "bold" if front else "normal"
                    style = {"fontsize": 9.5, "color": MUTED, "weight": weight, "va": "center"}
                    ax.text(*place, _text(plan), **style)


def _free(
    text: str, letter: float, at: tuple[float, float], limits: Any, taken: Sequence[Box]
) -> Box | None:
    """Where a label beside a mark covers nothing."""
    (x, y), width = at, letter * len(text)
    for side, up in PLACES:
        left = x + 15 * side + (0 if side > 0 else -width if side < 0 else -width / 2)
        low = y + 18 * up - LINE / 2
        box = (left, low, left + width, low + LINE)
        if _inside(box, limits) and not any(_overlap(box, other) for other in taken):
            return box
    return None


def _boxes(ends: Any) -> list[Box]:
    """What a step from one mark of the front to the next covers: right, then down."""
    (x, y), (to, down) = ends
    return [(x, y - 1, to, y + 1), (to - 1, min(down, y), to + 1, max(down, y))]


def _text(plan: Plan) -> str:
    room = plan.get("headroom")
    return plan["gpu"] if room is None else f"{plan['gpu']} {100 * room:+.0f} %"


def _inside(box: Box, limits: Any) -> bool:
    left, low, right, high = limits
    return bool(box[0] >= left and box[1] >= low and box[2] <= right and box[3] <= high)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
