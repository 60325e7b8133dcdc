"""Aligned tables that fit a width: a table too wide is split, a number is never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Literal

GAP = "  "
MISSING = "-"

Role = Literal["title", "header", "rule", "row", "best", "text", "note"]


@dataclass(frozen=True)
class Column:
    """One column: its title and one cell a row."""

    title: str
    cells: Sequence[str]
    left: bool = False

    @property
    def width(self) -> int:
        """Characters the widest cell needs."""
        return max(len(text) for text in (self.title, *self.cells))

    @property
    def empty(self) -> bool:
        """Whether no row has a value."""
        return all(cell == MISSING for cell in self.cells)

    def lines(self) -> list[str]:
        """Title and cells, padded to the same width."""
        pad = str.ljust if self.left else str.rjust
        return [pad(text, self.width) for text in (self.title, *self.cells)]


@dataclass(frozen=True)
class Group:
    """Columns that belong together, under a common title."""

    title: str
    columns: Sequence[Column]


@dataclass(frozen=True)
class Line:
    """One line of a report and what it is, for the colours of a terminal."""

    text: str
    role: Role = "text"


def table(
    keys: Sequence[Column], groups: Iterable[Group], width: int, best: Sequence[bool]
) -> Iterator[Line]:
    """Lay out one table, as several below one another where ``width`` is too small.

    Parameters
    ----------
    keys : sequence of Column
        Columns that name a row; each part repeats them.
    groups : iterable of Group
        Columns to show. Those without any value are left out.
    width : int
        Characters a line may have; a single group wider than that is not broken.
    best : sequence of bool
        The rows to mark, one flag a row.
    """
    key_text = _side_by_side([key.lines() for key in keys])
    part = ["", *key_text]
    fresh = True
    for group in groups:
        block = _group_lines(group)
        if not block:
            continue
        if not fresh and len(part[0]) + len(GAP) + len(block[0]) > width:
            yield from _finish(part, best)
            yield Line("")
            part = ["", *key_text]
        if part[0] == "":
            part[0] = " " * len(key_text[0])
        part = [left + GAP + right for left, right in zip(part, block, strict=True)]
        fresh = False
    yield from _finish(part, best)


def _group_lines(group: Group) -> list[str]:
    columns = [column for column in group.columns if not column.empty]
    if not columns:
        return []
    body = _side_by_side([column.lines() for column in columns])
    width = max(len(group.title), len(body[0]))
    title = group.title.center(width) if len(columns) > 1 else group.title.rjust(width)
    return [title, *(line.rjust(width) for line in body)]


def _side_by_side(columns: Sequence[Sequence[str]]) -> list[str]:
    return [GAP.join(cells) for cells in zip(*columns, strict=True)]


def _finish(part: Sequence[str], best: Sequence[bool]) -> Iterator[Line]:
    titles, header, *rows = part
    if titles.strip():
        yield Line(titles.rstrip(), "header")
    yield Line(header.rstrip(), "header")
    yield Line("-" * len(header), "rule")
    for text, marked in zip(rows, best, strict=True):
        yield Line(text.rstrip(), "best" if marked else "row")


def paragraph(text: str, width: int, role: Role = "text", indent: str = "  ") -> Iterator[Line]:
    """Wrap ``text`` to ``width``; following lines are indented."""
    wrapped = textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return (Line(line, role) for line in wrapped)


STYLES: dict[Role, str] = {
    "title": "bold",
    "header": "bold cyan",
    "rule": "dim",
    "best": "bold green",
    "note": "dim",
}


def render(lines: Iterable[Line], colour: bool) -> str:
    """Join lines to text, with the escape codes of a terminal where ``colour`` is true."""
    if not colour:
        return "".join(line.text + "\n" for line in lines)
    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    console = Console(file=out, force_terminal=True, width=10_000, highlight=False)
    for line in lines:
        console.print(Text(line.text, style=STYLES.get(line.role, "")), soft_wrap=True)
    return out.getvalue()
