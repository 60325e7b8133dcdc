"""The printed report of an audit: a row a figure, then a verdict a claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.analysis import describe
from sim.analysis.layout import Column, Group, Line, paragraph, render, table
from sim.audit.measures import MEASURES
from sim.audit.verdict import KINDS
from sim.audit.words import banded_text, range_text

Finding = Mapping[str, Any]

LONGEST_TITLE = 40


def audit_report(document: Mapping[str, Any], width: int, colour: bool = False) -> str:
    """Text of an audit.

    Parameters
    ----------
    document : mapping
        What ``speccast audit --json`` prints.
    width : int
        Characters a line may have.
    colour : bool
        Add the escape codes of a terminal.
    """
    return render(_lines(document["claims"], width), colour)


def _lines(findings: Sequence[Finding], width: int) -> Iterator[Line]:
    if not findings:
        return
    rows = [(finding, figure) for finding in findings for figure in tested(finding)]
    if rows:
        keys = [
            Column("claim", [finding["id"] for finding, _ in rows], left=True),
            Column("figure", [_title(figure) for _, figure in rows], left=True),
        ]
        claimed = [range_text(figure["claimed"], figure["unit"]) for _, figure in rows]
        predicted = [
            banded_text(figure) if figure["value"] is not None else "none" for _, figure in rows
        ]
        agreed = [{True: "yes", False: "no", None: "?"}[figure["agrees"]] for _, figure in rows]
        groups = [
            Group("", [Column("claimed", claimed)]),
            Group("", [Column("predicted (band)", predicted)]),
            Group("", [Column("agrees", agreed)]),
        ]
        good = [finding["verdict"]["kind"] == "reproduced" for finding, _ in rows]
        yield from table(keys, groups, width, good)
        yield Line("")
    for finding in findings:
        yield from _verdict(finding, width)
    yield from paragraph(f"{counts(findings)}.", width, "note")


def tested(finding: Finding) -> list[Mapping[str, Any]]:
    """Figures of the case that makes the prediction."""
    return list(finding["cases"][finding["stated"]]["figures"])


def counts(findings: Sequence[Finding]) -> str:
    """How many claims have which verdict."""
    kinds = [finding["verdict"]["kind"] for finding in findings]
    parts = [f"{kinds.count(kind)} {text}" for kind, text in KINDS.items() if kind in kinds]
    return f"{len(findings)} claim{'s' * (len(findings) != 1)}: {', '.join(parts)}"


def _title(figure: Mapping[str, Any]) -> str:
    where = describe.point(figure["point"])
    title = f"{figure['title']} at {where}" if where else str(figure["title"])
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"


def _verdict(finding: Finding, width: int) -> Iterator[Line]:
    yield from paragraph(f"{finding['id']}: {finding['claim']}", width, "title")
    good = finding["verdict"]["kind"] == "reproduced"
    said = sentence(finding)
    yield from paragraph(f"  {said}", width, "best" if good else "text", "    ")
    if finding["reading"]:
        yield from paragraph(f"  Read as: {finding['reading']}", width, "note", "    ")
    for name, text in arithmetic(finding):
        yield from paragraph(f"  {name}: {text}", width, "note", "    ")
    yield Line("")


def sentence(finding: Finding) -> str:
    """The verdict as a sentence."""
    text: str = finding["verdict"]["text"]
    return f"{text[0].upper()}{text[1:]}."


def arithmetic(finding: Finding) -> list[tuple[str, str]]:
    """Names and values of the figures beside the verdict."""
    figures = finding["cases"][finding["stated"]]["arithmetic"]
    return [(name, "; ".join(map(_placed, parts))) for name, parts in figures.items()]


def _placed(figure: Mapping[str, Any]) -> str:
    """A figure, and the point it is of where there are several."""
    where = describe.point(figure["point"])
    return f"{banded_text(figure)} at {where}" if where else banded_text(figure)


def cases_text(finding: Finding) -> list[tuple[str, list[str], str]]:
    """Label, figures and agreement of every case tried."""
    rows = []
    for case in finding["cases"]:
        mark = {True: "yes", False: "no", None: "?"}[case["agrees"]]
        label = case["label"] if case["plausible"] else f"{case['label']} (not plausible)"
        rows.append((label, [banded_text(figure) for figure in case["figures"]], mark))
    return rows


def measures_report(width: int, colour: bool = False) -> str:
    """Text of what a claim can measure."""
    return render(_measure_lines(width), colour)


def _measure_lines(width: int) -> Iterator[Line]:
    column = max(map(len, MEASURES)) + 2
    for simulated, title in ((True, "of a run"), (False, "of one step, or of the memory")):
        yield Line(title, "title")
        for name, measure in MEASURES.items():
            if measure.simulated == simulated:
                text = f"  {name.ljust(column)}{measure.about} [{measure.unit}]."
                yield from paragraph(text, width, "text", " " * (column + 2))


__all__ = ["arithmetic", "audit_report", "cases_text", "counts", "measures_report"]
