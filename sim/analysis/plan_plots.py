"""Pictures of a capacity plan: GPUs of every strategy, and what moves their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.analysis import axes, plan_evidence, plan_words, plots
from sim.analysis.palette import BAD, INK, MUTED, PAPER, SHADES, Look, looks
from sim.analysis.plan_day_plot import checked_day
from sim.analysis.plan_front_plot import pareto
from sim.analysis.plan_words import Document, Plan, money
from sim.analysis.sheet import Sheet, name
from sim.analysis.verdict import percent

MOST_PLANS, MOST_INPUTS = 24, 12
"""Rows of a picture; what follows is in the tables."""
ROW, LEFT, FOOT = 32, 290, 28
"""Height of a row, the space for its name, and that for the ticks below [px]."""
ROOM = 1.75
"""How much farther than its longest bar an axis reaches, for what is written behind it."""
BASIS_SHADES = {
    "measured": "series-3",
    "validated": "series-7",
    "published": "series-1",
    "extrapolated": "series-4",
    "assumed": "series-2",
}
HATCHES = {"assumed": "////", "extrapolated": "....", "published": "\\\\\\\\"}


class Picture(NamedTuple):
    """A picture: name of its files, and what it shows in words."""

    name: str
    label: str
    figure: Any


def pictures(document: Document) -> Iterator[Picture]:
    """Every picture there is data for."""
    if document["plans"]:
        yield Picture("gpus", "GPUs of each strategy, with error bars", gpus_by_plan(document))
    front = pareto(document, appearance(document))
    if front is not None:
        yield Picture("pareto", "Cost against latency, a mark a plan", front)
    if plan_words.chosen(document) is not None and document.get("tornado"):
        label = "GPUs needed while one uncertain input moves at a time"
        yield Picture("tornado", label, tornado(document))
    if (document.get("check") or {}).get("series"):
        label = "Offered load and latency over the simulated day of the plan chosen"
        yield Picture("day", label, checked_day(document))


def appearance(document: Document) -> dict[str, Look]:
    """A look for every strategy, in the order of the plans; plain decoding is grey."""
    names = list(dict.fromkeys(plan["strategy"] for plan in document["plans"]))
    plain = next((name for name in names if name.startswith("autoregressive")), None)
    return looks(names, plain)


def gpus_by_plan(document: Document) -> Any:
    """GPUs of the cheapest plan of each strategy and GPU, the band as a whisker.

    Parameters
    ----------
    document : mapping
        What ``speccast plan --json`` prints, with at least one plan.

    Returns
    -------
    matplotlib.figure.Figure
    """
    plans = document["plans"][:MOST_PLANS]
    look = appearance(document)
    ends = [(plan.get("gpus_band") or {}).get("hi") or plan["gpus"] for plan in plans]
    most = ROOM * max(ends)
    with plots.blank() as figure:
        sheet = Sheet(figure, 1, 1, ROW * len(plans), legend=1, left=LEFT, foot=FOOT)
        ax = sheet.panel()
        for row, plan in enumerate(plans):
            _bar(ax, row, plan, look[plan["strategy"]].colour, max(ends))
            ax.text(most, row, _remark(plan), ha="right", va="center", fontsize=10, color=MUTED)
        ax.set_xlim(0, most)
        _name_rows(ax, [f"{plan['strategy']}, {plan['gpu']}" for plan in plans])
        for text, plan in zip(ax.get_yticklabels(), plans, strict=True):
            text.set_weight("bold" if plan is plan_words.chosen(document) else "normal")
        _whole_ticks(ax, max(ends))
        name(ax, "GPUs", "what they cost, and how sure it is that they are enough")
        level = percent(document["level"])
        sheet.ask(
            "How many GPUs does each strategy need?",
            f"Cheapest first, bold the one to buy; a line is the {level} band, an arrow one "
            "without an upper end.",
        )
        sheet.legend(_bar_legend(ax, plans, level))
    return figure


def _bar(ax: Any, row: int, plan: Plan, colour: str, edge: float) -> None:
    hatch = "////" if plan["hypothetical"] else None
    ax.barh(row, plan["gpus"], 0.56, linewidth=0, facecolor=colour, edgecolor=PAPER, hatch=hatch)
    band = plan.get("gpus_band") or {}
    if band.get("lo") is None:
        return
    hi = band["hi"]
    reach = 1.06 * edge if hi is None else hi
    for wider, shade in ((2.4, PAPER), (0.0, INK)):
        line = {"color": shade, "linewidth": 1.8 + wider, "solid_capstyle": "butt"}
        ax.plot([band["lo"], reach], [row, row], zorder=3, **line)
        ends = {
            "color": shade,
            "linestyle": "",
            "markeredgecolor": shade,
            "zorder": 3,
            "marker": "|",
        }
        ends |= {"markersize": 10 + wider, "markeredgewidth": 1.8 + wider}
        ax.plot([band["lo"]] if hi is None else [band["lo"], hi], [row] * (1 + bool(hi)), **ends)
    if hi is None:
        ax.plot([reach], [row], color=INK, linestyle="", marker=">", markersize=7, zorder=4)


def _remark(plan: Plan) -> str:
    """GPUs, and what they cost or how likely they are enough."""
    cost, sure = plan.get("usd_per_day"), plan.get("confidence")
    told = [f"{plan['gpus']} GPUs"]
    told += [f"{money(cost)} USD/day"] if cost is not None else []
    told += [f"{percent(sure)} sure"] if sure is not None else []
    return ", ".join(told)


def _bar_legend(ax: Any, plans: Sequence[Plan], level: str) -> list[tuple[str, Any]]:
    entries = [("GPUs to buy", ax.fill([], [], color=MUTED)[0])]
    if any(plan.get("gpus_band") for plan in plans):
        entries.append((f"{level} band", *ax.plot([], [], color=INK, linewidth=1.8)))
    if any(plan["hypothetical"] for plan in plans):
        hatched = ax.fill([], [], facecolor=MUTED, edgecolor=PAPER, hatch="////", linewidth=0)
        entries.append(("hypothetical: this engine cannot run it", *hatched))
    return entries


def tornado(document: Document) -> Any:
    """GPUs needed at both ends of each uncertain input, the GPUs bought as a line.

    Parameters
    ----------
    document : mapping
        With a ``chosen`` plan and a ``tornado``.
    """
    every = document["tornado"]
    rows = [row for row in every if plan_evidence.matters(row)][:MOST_INPUTS] or every[:1]
    bought = document["plans"][document["chosen"]]["gpus"]
    ends = [row[end] for row in rows for end in ("gpus_lo", "gpus_hi")]
    values = [float(bought), *(end for end in ends if end is not None)]
    lo, hi = min(values), max(values)
    arrow = "; arrow: no number is enough" if None in ends else ""
    room = 0.16 * max(hi - lo, 1.0)
    with plots.blank() as figure:
        sheet = Sheet(figure, 1, 1, ROW * len(rows), legend=1, left=LEFT, foot=FOOT)
        ax = sheet.panel()
        for at, row in enumerate(rows):
            _input(ax, at, row, hi + 0.4 * room)
        line = ax.axvline(bought, color=BAD, linewidth=1.6)
        ax.set_xlim(max(lo - room, 0), hi + room)
        _name_rows(ax, [row["input"] for row in rows])
        name(ax, "GPUs needed")
        sheet.ask(
            "Which uncertainty should be measured next?",
            "GPUs needed while one input alone goes from its 5 % to its 95 % value, written at the "
            f"ends as a share of what is expected{arrow}.",
        )
        bases = dict.fromkeys(row["basis"] for row in rows)
        entries = [(basis, ax.fill([], [], **_basis(basis))[0]) for basis in bases]
        sheet.legend([(f"{bought} GPUs bought", line), *entries])
    return figure


def _basis(basis: str) -> dict[str, Any]:
    shade = SHADES[BASIS_SHADES.get(basis, "series-0")].light
    return {"facecolor": shade, "edgecolor": PAPER, "hatch": HATCHES.get(basis), "linewidth": 0}


def _input(ax: Any, at: int, row: Mapping[str, Any], edge: float) -> None:
    """One bar with the value of the input at each end; an arrow where no number is enough."""
    ends = sorted(
        (edge if row[f"gpus_{end}"] is None else row[f"gpus_{end}"], end) for end in ("lo", "hi")
    )
    (least, first), (most, last) = ends
    ax.barh(at, most - least, 0.56, least, **_basis(row["basis"]))
    for x, end, side, shift in ((least, first, "right", -5), (most, last, "left", 5)):
        style = {"xytext": (shift, 0), "textcoords": "offset points", "fontsize": 10}
        never = row[f"gpus_{end}"] is None
        text = plan_evidence.factor(row[end]) + " \u2192" * never
        ax.annotate(text, (x, at), ha=side, va="center", color=INK, **style)


def _name_rows(ax: Any, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), [axes.short(text, 46) for text in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")


def _whole_ticks(ax: Any, most: float) -> None:
    """A few whole numbers of GPUs, multiples of one step, up to the longest bar."""
    step = next(size for size in _steps() if most / size <= 6)
    ax.set_xticks(range(0, int(most) + 1, step))


def _steps() -> Iterator[int]:
    size = 1
    while True:
        yield from (size, 2 * size, 4 * size, 5 * size)
        size *= 10
