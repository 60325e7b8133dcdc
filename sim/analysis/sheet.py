"""A picture of several panels: its question on top, panels in rows, one legend below them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.analysis.palette import MUTED

WIDTH = 880
"""As wide as a page shows a picture without shrinking it [px]."""
HEAD, FOOT = 58, 44
"""Space for the question above, and for the titles of an x axis below a panel [px]."""
LEFT, RIGHT, ABOVE = 46, 14, 30
LEGEND_LINE = 19


class Sheet:
    """Places panels of one size, counted from the upper left corner.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty.
    panels : int
        How many there will be.
    columns : int
        Side by side.
    height : float
        Of one panel, without its titles [px].
    legend : int
        Lines of the legend.
    left, foot : float
        Space left of a panel, for its ticks, and below it [px].
    """

    def __init__(
        self,
        figure: Any,
        panels: int,
        columns: int,
        height: float,
        legend: int = 1,
        left: float = LEFT,
        foot: float = FOOT,
    ) -> None:
        self._figure, self._columns, self._inner = figure, min(columns, panels), height
        self._left = left
        rows = -(-panels // self._columns)
        self._row = ABOVE + height + foot
        self._lines = legend
        self.height = HEAD + rows * self._row + (LEGEND_LINE * legend + 8 if legend else 0)
        figure.set_size_inches(WIDTH / 72, self.height / 72)
        self._made = 0

    def panel(self) -> Any:
        """Axes of the next panel."""
        row, column = divmod(self._made, self._columns)
        self._made += 1
        return self._axes(row, column, 0.0, self._inner)

    def parts(self, upper: float, gap: float = 10) -> tuple[Any, Any]:
        """Two axes in place of the next panel, the upper one this high [px]."""
        row, column = divmod(self._made, self._columns)
        self._made += 1
        lower = self._inner - upper - gap
        return self._axes(row, column, 0.0, upper), self._axes(row, column, upper + gap, lower)

    def _axes(self, row: int, column: int, down: float, height: float) -> Any:
        each = WIDTH / self._columns
        top = HEAD + row * self._row + ABOVE + down
        place = (
            (column * each + self._left) / WIDTH,
            1 - (top + height) / self.height,
            (each - self._left - RIGHT) / WIDTH,
            height / self.height,
        )
        ax = self._figure.add_axes(place, label=f"{row}-{column}-{down}")
        ax.tick_params(length=0)
        return ax

    def ask(self, question: str, note: str) -> None:
        """Write the question the picture answers, and how to read it."""
        at = 8 / WIDTH
        self._figure.text(at, 1 - 8 / self.height, question, va="top", weight="bold", size=14)
        self._figure.text(at, 1 - 31 / self.height, note, va="top", color=MUTED, size=10.5)

    def legend(self, entries: Sequence[tuple[str, Any]]) -> None:
        """Write what the marks are, below all panels."""
        columns = -(-len(entries) // self._lines)
        self._figure.legend(
            [artist for _, artist in entries],
            [label for label, _ in entries],
            loc="lower left",
            bbox_to_anchor=(0, 0),
            ncols=columns,
            handlelength=1.6,
            columnspacing=1.6,
            borderpad=0.3,
            labelspacing=0.35,
        )


def name(ax: Any, title: str, right: str = "") -> None:
    """Put the name of a panel above it on the left, a remark on the right."""
    ax.set_title(title, loc="left", fontsize=11, weight="bold", pad=6)
    if right:
        ax.set_title(right, loc="right", fontsize=10, color=MUTED, pad=6)
