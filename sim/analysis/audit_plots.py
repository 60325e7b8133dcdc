"""Picture of one audited claim: what the model predicts in every case, and the range claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis import axes, plots
from sim.analysis.palette import BAD, MUTED, PAPER, SHADES, looks
from sim.analysis.sheet import Sheet, name

GOOD, ACCENT = SHADES["good"].light, SHADES["accent"].light
MOST_PANELS = 4
HEIGHT = 190
ROOM = 0.12
"""Of the span of what is drawn, left free above and below it."""
WIDE = 30.0
"""From this ratio of the largest to the smallest figure on, the axis is logarithmic."""
LONGEST_UPRIGHT = 12
"""Letters of the name of a case up to which cases stand side by side."""
ROW = 40
"""Height of a case that lies [px]."""


def claim(panels: Sequence[Mapping[str, Any]], question: str, varied: str) -> Any:
    """A panel a figure: predictions with their bands over the cases tried.

    Cases stand side by side; where their names are long, below one another.

    Parameters
    ----------
    panels : sequence of mapping
        ``title``, ``unit`` (as shown), ``claimed`` (two ends, either None), ``outer`` (the same
        with the tolerance) and ``dots``: ``case``, ``point``, ``value``, ``lo``, ``hi``,
        ``agrees`` and ``plausible`` of each, in the unit shown.
    question : str
        Stands above.
    varied : str
        What the cases differ in.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = panels[:MOST_PANELS]
    names = [dot["case"] for panel in shown for dot in panel["dots"]]
    lying = max(map(len, names)) > LONGEST_UPRIGHT
    with plots.blank() as figure:
        rows = max(len({dot["case"] for dot in panel["dots"]}) for panel in shown)
        columns, height = (1, ROW * rows + 10) if lying else (min(len(shown), 2), HEIGHT)
        left = 300 if lying else 56
        sheet = Sheet(figure, len(shown), columns, height, legend=1, left=left)
        for panel in shown:
            ax = sheet.panel()
            _Panel(ax, panel, lying).draw()
            if not lying:
                ax.set_xlabel(axes.short(varied, 60), fontsize=10.5, color=MUTED)
            name(ax, axes.short(str(panel["title"]), 44), panel["unit"].strip())
        claimed = any(panel["claimed"] != [None, None] for panel in shown)
        green = " Green: the range claimed, paler with its tolerance." if claimed else ""
        sheet.ask(question, f"A dot is a prediction, its line the 90 % band.{green}")
        if entries := _legend(figure, shown):
            sheet.legend(entries)
    return figure


def over_batch(
    lines: Mapping[str, Sequence[tuple[int, float | None]]], title: str, unit: str
) -> Any:
    """A figure over the batch, a line a case, both axes logarithmic where all are above 0.

    Parameters
    ----------
    lines : mapping
        Pairs of batch and value, in the unit shown, by case; values that are None are left out.
    title, unit : str
        What is drawn.
    """
    look = looks(lines)
    known = [value for dots in lines.values() for _, value in dots if value is not None]
    with plots.blank() as figure:
        sheet = Sheet(figure, 1, 1, 260, legend=-(-len(lines) // 3), left=56)
        ax = sheet.panel()
        for case, dots in lines.items():
            drawn = [(batch, value) for batch, value in dots if value is not None]
            style = {**look[case].style(), "linestyle": look[case].line}
            ax.plot([batch for batch, _ in drawn], [value for _, value in drawn], **style)
        batches = [batch for dots in lines.values() for batch, _ in dots]
        axes.log(ax, "x", 0.9 * min(batches), 1.1 * max(batches))
        if known and min(known) > 0:
            axes.log(ax, "y", min(known) / 1.2, max(known) * 1.2)
        ax.set_xlabel("sequences decoding", fontsize=10.5, color=MUTED)
        name(ax, axes.short(title, 60), unit.strip())
        sheet.ask(f"How does it grow with the batch? {axes.short(title, 60)}", "A line a case.")
        entries = [(axes.short(case, 40), line) for case, line in zip(lines, ax.lines, strict=True)]
        sheet.legend(entries)
    return figure


class _Panel:
    """One figure; values run upwards, or to the right where the cases lie."""

    def __init__(self, ax: Any, panel: Mapping[str, Any], lying: bool) -> None:
        self.ax, self.panel, self.lying = ax, panel, lying
        self.lo, self.hi = _span(panel)
        self.cases = list(dict.fromkeys(dot["case"] for dot in panel["dots"]))

    def draw(self) -> None:
        self._claimed()
        for dot in self.panel["dots"]:
            self._dot(dot)
        self._axes()

    def _claimed(self) -> None:
        line, span = (
            (self.ax.axvline, self.ax.axvspan) if self.lying else (self.ax.axhline, self.ax.axhspan)
        )
        for ends, alpha in ((self.panel["outer"], 0.1), (self.panel["claimed"], 0.2)):
            if ends == [None, None]:
                continue
            least = self.lo if ends[0] is None else ends[0]
            most = self.hi if ends[1] is None else ends[1]
            if least == most:
                line(least, color=GOOD, linewidth=1.4)
            span(max(least, self.lo), min(most, self.hi), color=GOOD, alpha=alpha, linewidth=0)

    def _dot(self, dot: Mapping[str, Any]) -> None:
        place = float(self.cases.index(dot["case"]))
        if dot["value"] is None:
            at = (self.lo, place) if self.lying else (place, self.lo)
            align = {"va": "center"} if self.lying else {"ha": "center", "va": "bottom"}
            self.ax.text(*at, " none", color=MUTED, fontsize=10, **align)
            return
        colour = BAD if dot["agrees"] is False else ACCENT
        if dot["lo"] is not None or dot["hi"] is not None:
            ends = (
                self.lo if dot["lo"] is None else dot["lo"],
                self.hi if dot["hi"] is None else dot["hi"],
            )
            self._plot([place, place], ends, color=colour, linewidth=2.2, alpha=0.4)
        look = {
            "marker": "X" if dot["agrees"] is False else "o",
            "markersize": 8.5,
            "markerfacecolor": colour if dot["plausible"] else PAPER,
            "markeredgecolor": colour,
            "clip_on": False,
            "linestyle": "",
        }
        self._plot([place], [dot["value"]], **look)
        if dot["point"]:
            offset = (0, 8) if self.lying else (8, 0)
            at = (dot["value"], place) if self.lying else (place, dot["value"])
            align = {"ha": "center"} if self.lying else {"va": "center"}
            text = {"xytext": offset, "textcoords": "offset points", "fontsize": 9.5}
            self.ax.annotate(dot["point"], at, color=MUTED, **text, **align)

    def _plot(self, places: Any, values: Any, **style: Any) -> None:
        both = (values, places) if self.lying else (places, values)
        self.ax.plot(*both, **style)

    def _axes(self) -> None:
        ax, count = self.ax, len(self.cases)
        along, across = ("x", "y") if self.lying else ("y", "x")
        if self.lo > 0 and self.hi / self.lo > WIDE:
            axes.log(ax, along, self.lo, self.hi)
        else:
            ax.set(**{f"{along}lim": (self.lo, self.hi)})
        labels = [axes.short(case, 44) for case in self.cases]
        if self.lying:
            ax.set_yticks(range(count), labels)
            ax.set_ylim(count - 0.4, -0.6)
        else:
            ax.set_xticks(range(count), labels)
            ax.set_xlim(-0.6, count - 0.4)
        ax.grid(visible=False, axis=across)


def _span(panel: Mapping[str, Any]) -> tuple[float, float]:
    """Ends of the y axis: everything drawn, with room."""
    drawn = [value for dot in panel["dots"] for value in (dot["value"], dot["lo"], dot["hi"])]
    known = [value for value in (*drawn, *panel["claimed"]) if value is not None]
    if not known:
        return 0.0, 1.0
    lo, hi = min(known), max(known)
    if lo > 0 and hi / lo > WIDE:
        return lo / 1.5, hi * 1.5
    room = ROOM * ((hi - lo) or abs(hi) or 1.0)
    floor = 0.0 if 0 <= lo < 0.5 * hi else lo - room
    return floor, hi + room


def _legend(figure: Any, panels: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    dots = [dot for panel in panels for dot in panel["dots"]]
    entries = []
    for label, colour, fill, marker, wanted in (
        ("agrees", ACCENT, ACCENT, "o", [d for d in dots if d["agrees"]]),
        ("does not", BAD, BAD, "X", [d for d in dots if d["agrees"] is False]),
        ("hollow: not plausible", MUTED, PAPER, "o", [d for d in dots if not d["plausible"]]),
    ):
        if wanted:
            (mark,) = figure.axes[0].plot(
                [], [], marker=marker, linestyle="", markerfacecolor=fill, markeredgecolor=colour
            )
            entries.append((label, mark))
    return entries
