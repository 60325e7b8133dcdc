"""Pages of docs/ whose tables are written by a program, between marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

Lines = Iterator[str]


def replaced(text: str, name: str, lines: Lines) -> str:
    """Text with what stands between the marks of a name replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    assert pattern.search(text), name
    return pattern.sub(lambda _: begin + "".join(f"{line}\n" for line in lines) + end, text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """Lines of a Markdown table."""
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
