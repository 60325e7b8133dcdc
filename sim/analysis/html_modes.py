"""What each mode did, as a table of the HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis.html_tables import Label, Line, Table
from sim.analysis.modes_report import TITLES, mode_cells, switches, used
from sim.analysis.verdict import Row


def html_modes(rows: Sequence[Row]) -> Table | None:
    """Table of modes, in a part for each strategy; None where nobody switches."""
    parts = []
    for row in rows:
        if row.get("modes"):
            text = switches(row)
            heading = f"{row['strategy']}: {text}" if text else row["strategy"]
            parts.append((heading, [_html_line(*each) for each in used(row)]))
    return Table([], TITLES, parts) if parts else None


def _html_line(name: str, mode: Mapping[str, Any]) -> Line:
    cells = [(cell, "") for cell in mode_cells(mode)]
    return Line(Label(name, "", "", [], False), cells)
