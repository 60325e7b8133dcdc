"""The printed report of ``speccast explain`` and ``speccast catalog``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sim.analysis import describe
from sim.analysis.kernel_notes import beyond, sources
from sim.analysis.layout import Column, Group, Line, Role, paragraph, render, table
from sim.analysis.verdict import number


def explain_report(document: Mapping[str, Any], width: int, colour: bool = False) -> str:
    """Text of one engine step a strategy, by component.

    Parameters
    ----------
    document : mapping
        What ``speccast explain --json`` prints: ``scenario``, ``batch``, ``context`` and
        ``rows``, each with ``strategy`` (and ``mode``, where sequences switch), ``t_step_s``,
        ``components`` (name to seconds), ``tau``, ``tpot_s``, ``verify_tokens``, ``mfu``, ``mbu``,
        ``roof``, ``kernels``, ``outside`` and ``band``.
    width, colour
        As in ``report.run_report``.
    """
    return render(_explain_lines(document, width), colour)


def _explain_lines(document: Mapping[str, Any], width: int) -> Iterator[Line]:
    rows = document["rows"]
    yield from paragraph(describe.deployment(document["scenario"]), width, "title")
    yield Line(
        f"One decode step of {document['batch']} sequences at {document['context']} tokens "
        "of context each"
    )
    if document.get("batch_asked", document["batch"]) > document["batch"]:
        yield Line(f"({document['batch_asked']} asked: more than every strategy can hold)", "note")
    yield Line("")
    names = list(dict.fromkeys(name for row in rows for name in row["components"]))
    yield from table(
        [Column("  strategy", [_marked(row) for row in rows], left=True)],
        [_step(rows), *(_component(rows, name) for name in names), _use(rows)],
        width,
        [False] * len(rows),
    )
    yield Line("")
    yield from paragraph(
        "All times in ms. TPOT = step / tau. MFU, MBU: share of peak FLOP/s and bytes/s used; "
        "roof: what limits the target pass; ? hypothetical: this engine cannot run it.",
        width,
        "note",
    )
    for text in (*_starts(rows), *sources(rows), *beyond(rows)):
        yield from paragraph(text, width, "note")


def _starts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which mode stands for a strategy whose sequences switch."""
    told = [f"{row['strategy']} ({row['mode']})" for row in rows if "mode" in row]
    return (
        [f"Sequences switch; shown is the mode they start in: {', '.join(told)}."] if told else []
    )


def _marked(row: Mapping[str, Any]) -> str:
    return f"{'?' if row.get('hypothetical') else ' '} {row['strategy']}"


def _step(rows: Sequence[Mapping[str, Any]]) -> Group:
    return Group(
        "",
        [
            Column("TPOT", [_banded(row, "tpot_s") for row in rows]),
            Column("step", [_banded(row, "t_step_s") for row in rows]),
            Column("tau", [number(row["tau"]) for row in rows]),
            Column("query tokens", [number(row["verify_tokens"]) for row in rows]),
        ],
    )


def _component(rows: Sequence[Mapping[str, Any]], name: str) -> Group:
    cells = [_milliseconds(row["components"].get(name)) for row in rows]
    return Group("", [Column(name.removesuffix("_s").replace("_", " "), cells)])


def _use(rows: Sequence[Mapping[str, Any]]) -> Group:
    return Group(
        "",
        [
            Column("MFU %", [_in_percent(row["mfu"]) for row in rows]),
            Column("MBU %", [_in_percent(row["mbu"]) for row in rows]),
            Column("roof", [row["roof"] for row in rows], left=True),
        ],
    )


def _milliseconds(value: float | None) -> str:
    return number(None if value is None else 1e3 * value)


def _in_percent(share: float | None) -> str:
    return number(None if share is None else 100 * share)


def _banded(row: Mapping[str, Any], name: str) -> str:
    band = (row.get("band") or {}).get(name)
    text = _milliseconds(row[name])
    return f"{text} ({_milliseconds(band['lo'])}-{_milliseconds(band['hi'])})" if band else text


def catalog_report(
    sections: Mapping[str, Sequence[tuple[str, str, str]]],
    width: int,
    colour: bool = False,
    facts: Callable[[str, str], str] | None = None,
) -> str:
    """Text of catalogue sections: name, title, figures and source of every entry.

    Parameters
    ----------
    sections : mapping
        Section name to rows of (name, title, source).
    width, colour
        As in ``report.run_report``.
    facts : callable, optional
        Gives the figures of (section, name) in one line.
    """
    return render(_catalog_lines(sections, width, facts or (lambda section, name: "")), colour)


def _catalog_lines(
    sections: Mapping[str, Sequence[tuple[str, str, str]]],
    width: int,
    facts: Callable[[str, str], str],
) -> Iterator[Line]:
    for number_of, (section, entries) in enumerate(sections.items()):
        if number_of:
            yield Line("")
        yield Line(section, "title")
        column = max((len(name) for name, _, _ in entries), default=0) + 4
        for name, title, source in entries:
            yield from _entry(name, (title, facts(section, name), source), column, width)


def _entry(name: str, texts: tuple[str, str, str], column: int, width: int) -> Iterator[Line]:
    """Title, figures and source beside the name, or below it where names take half the line."""
    label = f"  {name}".ljust(column)
    if column > width // 2:
        yield Line(label.rstrip())
        label, column = " " * 4, 4
    roles: tuple[Role, ...] = ("text", "text", "note")
    for text, role in zip(texts, roles, strict=True):
        if text:
            yield from paragraph(label + text, width, role, " " * column)
            label = " " * column
