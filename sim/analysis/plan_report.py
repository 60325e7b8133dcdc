"""The printed report of ``speccast plan``: what to buy, the alternatives, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sim.analysis import describe, plan_evidence, plan_words
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.plan_words import Document, Plan, money, range_text
from sim.analysis.shell import command_lines
from sim.analysis.verdict import number, percent

Cell = Callable[[Plan], str]

TIED = re.compile(r"(?<=[\d?)]) (?=(?:%|ms|s|h|min|x|kW|GPUs?|USD|req/s)(?:\W|$))|(?<=\bTP) (?=\d)")
"""Spaces at which no line may end."""

UNITS = ("%", "req/s", "kW")
"""Titles of columns that stand behind a number in a sentence."""


def plan_report(document: Document, width: int, colour: bool = False) -> str:
    """Text of a capacity plan.

    Parameters
    ----------
    document : mapping
        What ``speccast plan --json`` prints.
    width : int
        Characters a line may have; a word of the launch command longer than that stays whole.
    colour : bool
        Add the escape codes of a terminal.
    """
    return render(_lines(document, width), colour)


def _lines(document: Document, width: int) -> Iterator[Line]:
    if document.get("question"):
        yield from _wrapped(document["question"], width, "title", "")
    plan = plan_words.chosen(document)
    yield from _wrapped(plan_words.answer(document), width, "best" if plan else "title", "")
    yield Line("")
    for text in (plan_words.setup(document), plan_words.demand(document)):
        yield from _wrapped(text, width)
    for text in plan_words.notes(document):
        yield from _wrapped(text, width, "note")
    yield Line("")
    if document["plans"]:
        yield from _plans(document, width)
    if plan is not None and plan.get("launch"):
        yield Line("Launch each replica with", "title")
        yield from (Line(text) for text in command_lines(plan["launch"], width))
        yield Line("")
    yield from _evidence(document, width)


def _evidence(document: Document, width: int) -> Iterator[Line]:
    """The check, what to measure, what all rests on, what is impossible."""
    if text := plan_evidence.check(document):
        met = document["check"]["met"]
        yield from _section("A full day of the plan chosen", [text], width, met)
    if found := plan_evidence.measure_next(document):
        yield from _section("Measure next", found, width)
    assumed = [
        f"{row['input']}: {row['value']} ({row['source']})"
        for row in plan_evidence.assumed(document)
    ]
    if document.get("inputs"):
        title = f"This rests on {plan_evidence.rests_on(document)}"
        yield from _section(f"{title}. Assumed:" if assumed else f"{title}.", assumed, width)
    for title, found_out in plan_evidence.impossible(document):
        yield from _section(title, [f"{who}: {why}" for who, why in found_out], width)
    yield from _wrapped(
        f"{plan_evidence.counts(document)}; seed {document['seed']}.", width, "note"
    )


def _section(title: str, texts: list[str], width: int, good: bool = False) -> Iterator[Line]:
    yield from _wrapped(title, width, "title")
    for text in texts:
        yield from _wrapped(f"  {text}", width, "best" if good else "text", "    ")
    yield Line("")


def _wrapped(text: str, width: int, role: Any = "text", indent: str = "  ") -> Iterator[Line]:
    """A paragraph whose numbers stay with their units."""
    tied = TIED.sub("\u00a0", text)
    for line in paragraph(tied, width, role, indent):
        yield Line(line.text.replace("\u00a0", " "), line.role)


def _plans(document: Document, width: int) -> Iterator[Line]:
    plans = document["plans"]
    marked = [plan is plan_words.chosen(document) for plan in plans]
    names = [f"{marks(document, plan)} {plan['strategy']}" for plan in plans]
    keys = [
        Column("   strategy", names, left=True),
        Column("GPU", [plan["gpu"] for plan in plans], left=True),
    ]
    groups = [
        Group(title, [Column(name, [cell(plan) for plan in plans]) for name, cell in columns])
        for title, columns in columns_of(document)
    ]
    lines = list(table(keys, groups, width, marked))
    if max(len(line.text) for line in lines) <= width:
        yield from lines
    else:
        for name, plan, best in zip(names, plans, marked, strict=True):
            yield from _block(name, plan, groups, plans.index(plan), width, best)
    yield Line("")
    yield from _wrapped(f"{legend(document)}.", width, "note")
    yield Line("")
    shared = plan_words.common(document)
    in_all = f"; in all of them {', '.join(shared)}" if shared else ""
    found = [f"{plan['strategy']}, {plan['gpu']}: {own_settings(document, plan)}" for plan in plans]
    yield from _section(f"Settings found{in_all}", found, width)


def own_settings(document: Document, plan: Plan) -> str:
    """Replicas and settings of a plan, without those that all plans share."""
    shared = plan_words.common(document)
    own = [text for text in plan_words.settings(document, plan) if text not in shared]
    return ", ".join([plan_words.fleet(plan), *own])


def _block(
    name: str, plan: Plan, groups: list[Group], row: int, width: int, best: bool
) -> Iterator[Line]:
    """One plan as a paragraph, where a table would be too wide."""
    role: Any = "best" if best else "title"
    yield from _wrapped(f"{name.strip()}, {plan['gpu']}", width, role)
    told = [_told(group, row) for group in groups]
    yield from _wrapped(f"  {'; '.join(filter(None, told))}", width, "text", "    ")


def _told(group: Group, row: int) -> str:
    """The cells of one plan in a group of columns; empty where it has none."""
    cells = [(column.title, column.cells[row]) for column in group.columns]
    cells = [
        (title.replace("(band)", "").strip(), cell) for title, cell in cells if cell != MISSING
    ]
    if not cells:
        return ""
    texts = [f"{cell} {title}" if title in UNITS else f"{title} {cell}" for title, cell in cells]
    return f"{group.title} {', '.join(text.strip() for text in texts)}"


def marks(document: Document, plan: Plan) -> str:
    """Two letters: ``*`` chosen or ``?`` hypothetical, and ``P`` for the Pareto front."""
    first = "*" if plan is plan_words.chosen(document) else "?" if plan["hypothetical"] else " "
    return f"{first}{'P' if plan.get('pareto') else ' '}"


def legend(document: Document, marks: Sequence[str] = ("*", "? hypothetical:", "P Pareto:")) -> str:
    """What the marks of choice, hypothesis and Pareto front, and the bands, mean."""
    plans, (bought, thought, best) = document["plans"], marks
    told = [f"{bought} cheapest that meets the SLO"] if plan_words.chosen(document) else []
    if any(plan["hypothetical"] for plan in plans):
        told.append(f"{thought} this engine cannot run it")
    if any(plan.get("pareto") for plan in plans):
        told.append(f"{best} no other is better in cost, TPOT and headroom at once")
    told.append(f"bands hold {percent(document['level'])} of outcomes")
    bands = [plan.get("gpus_band") or {} for plan in plans]
    if any(band.get("lo") is not None and band["hi"] is None for band in bands):
        told.append("an end marked ? was not found among the fleets tried")
    if any(plan.get("confidence") is not None for plan in plans):
        told.append("sure: share of draws of all uncertain inputs in which these GPUs are enough")
    return "; ".join(told)


def columns_of(document: Document) -> list[tuple[str, list[tuple[str, Cell]]]]:
    """Groups of columns of the table of plans, with how to fill them."""
    window = describe.duration(document["window_s"])
    asked = document.get("confidence")
    enough: list[tuple[str, Cell]] = [("%", _sure)]
    if asked is not None:
        for_asked = f"GPUs for {100 * asked:g} %"
        enough.append((for_asked, lambda plan: _count(plan.get("gpus_for_confidence"))))
    latencies = [(name, _latency(key)) for key, name in plan_words.LATENCIES.items()]
    return [
        ("GPUs", [("(band)", _gpus)]),
        ("USD", [("a day", _usd("usd_per_day")), ("M tok (band)", _per_million)]),
        ("power", [("kW", _power("kw")), ("USD a day", _power("usd_per_day"))]),
        ("one replica", [("req/s (band)", _replica)]),
        ("headroom", [("%", lambda plan: _percent(plan.get("headroom")))]),
        (f"worst {window}, p95 ms", latencies),
        ("limited", [("by", lambda plan: plan_words.latencies(plan.get("limited_by")))]),
        ("sure", enough),
    ]


def _banded(value: str, band: Mapping[str, Any] | None) -> str:
    ends = range_text(band)
    return f"{value} ({ends})" if ends else value


def _gpus(plan: Plan) -> str:
    return _banded(str(plan["gpus"]), plan.get("gpus_band"))


def _usd(key: str) -> Cell:
    return lambda plan: money(plan.get(key))


def _per_million(plan: Plan) -> str:
    return _banded(money(plan.get("usd_per_million_tokens")), plan.get("usd_per_million_band"))


def _power(key: str) -> Cell:
    return lambda plan: money((plan.get("power") or {}).get(key))


def _replica(plan: Plan) -> str:
    capacity = plan.get("replica_capacity_req_s") or {}
    return _banded(number(capacity.get("value")), capacity)


def _latency(key: str) -> Cell:
    def cell(plan: Plan) -> str:
        value = (plan.get("worst") or {}).get(f"{key}_p95")
        return number(None if value is None else 1e3 * value)

    return cell


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f}"


def _sure(plan: Plan) -> str:
    sure = plan.get("confidence")
    return MISSING if sure is None else str(plan_words.whole_percent(sure))


def _count(value: int | None) -> str:
    return MISSING if value is None else str(value)
