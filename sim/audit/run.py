"""Run an audit: every case of every claim, and the document that tells what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models.schema import ModelError
from sim import experiment
from sim.audit.claims import PLACEHOLDER, Curve, Quantity, Tested
from sim.audit.load import Case, Posed, at_point
from sim.audit.measures import MEASURES
from sim.audit.verdict import agrees, judge, together
from sim.audit.view import Look, Measured, View
from sim.audit.words import figure_text
from sim.manifest import speccast_version
from sim.progress import OnProgress
from sim.scenario.schema import Scenario

Json = dict[str, Any]

SHARE = 1000
"""Parts of a case the progress is counted in."""


class Interrupted(KeyboardInterrupt):
    """The audit was stopped; ``document`` holds the claims that are complete."""

    def __init__(self, document: Json) -> None:
        super().__init__()
        self.document = document


def audit(posed: Sequence[Posed], on_progress: OnProgress | None = None) -> Json:
    """Try every claim in every case.

    Parameters
    ----------
    posed : sequence of Posed
    on_progress : callable, optional
        Called with (what runs, parts done, parts in all).

    Returns
    -------
    dict
        ``version``, and ``claims`` with ``verdict`` and ``cases`` of each.

    Raises
    ------
    Interrupted
        On KeyboardInterrupt.
    """
    total = SHARE * sum(len(claim.cases) for claim in posed)
    found: list[Json] = []
    done = 0
    try:
        for one in posed:
            cases = []
            for case in one.cases:
                label = f"{one.claim.id}: {case.label}"
                report = _share(on_progress, label, done, total)
                cases.append(_case(one, case, report))
                done += SHARE
            found.append(_finding(one, cases))
    except KeyboardInterrupt:
        raise Interrupted(_document(found, len(posed))) from None
    return _document(found, len(posed))


def _document(found: list[Json], asked: int) -> Json:
    cut = {"interrupted": True, "asked": asked} if len(found) < asked else {}
    return {"version": speccast_version(), "claims": found, **cut}


def _share(report: OnProgress | None, label: str, before: int, total: int) -> OnProgress | None:
    """Progress of one run as its share of the whole audit."""
    if report is None:
        return None
    whole = report
    whole(label, before, total)

    def update(strategy: str, done: int, requests: int) -> None:
        whole(f"{label}, {strategy}", before + SHARE * done // max(requests, 1), total)

    return update


def _case(one: Posed, case: Case, on_progress: OnProgress | None) -> Json:
    claim = one.claim
    asked = [*claim.tested, *claim.arithmetic.values()]
    views = _views(case, asked, on_progress)
    figures = [figure for each in claim.tested for figure in _figures(each, views)]
    arithmetic = {
        name: [{**one, "title": name} for one in _figures(each, views)]
        for name, each in claim.arithmetic.items()
    }
    return {
        "label": case.label,
        "plausible": case.plausible,
        "agrees": together([figure["agrees"] for figure in figures]),
        "figures": figures,
        "arithmetic": arithmetic,
        "curve": _curve(claim.curve, case.label, views[0]) if claim.curve else [],
    }


def _curve(curve: Curve, case: str, view: View) -> list[Json]:
    """One figure at every batch; nothing in a case that is not drawn."""
    if curve.cases and case not in curve.cases:
        return []
    at = [curve.model_copy(update={"batch": batch}) for batch in curve.batches]
    return [{"batch": each.batch, "title": each.title, **_figures(each, [view])[0]} for each in at]


def _views(case: Case, asked: Sequence[Quantity], on_progress: OnProgress | None) -> list[View]:
    """One a point; simulated where any figure needs it."""
    file = case.scenario
    if not any(MEASURES[each.measure].simulated for each in asked):
        return [View(file, point) for point in file.points]
    rows = experiment.run(file, on_progress, tables=()).document["rows"]
    each = len(file.resolved.strategies)
    return [
        View(file, point, {row["strategy"]: row for row in rows[each * i : each * (i + 1)]})
        for i, point in enumerate(file.points)
    ]


def _figures(quantity: Quantity, views: Sequence[View]) -> list[Json]:
    """A figure at every point asked for."""
    measure = MEASURES[quantity.measure]
    unit = "x" if quantity.over is not None else measure.unit
    claimed = quantity.claimed if isinstance(quantity, Tested) else None
    made = []
    for view in views:
        if not at_point(quantity.at, view.point.values):
            continue
        one = _measured(quantity, view)
        least, most = claimed.ends if claimed else (0.0, 0.0)
        made.append(
            {
                "title": quantity.title,
                "measure": quantity.measure,
                "strategy": _strategy(quantity, view.point.scenario),
                "over": quantity.over,
                "stream": quantity.stream,
                "point": dict(view.point.values),
                "unit": unit,
                **one._asdict(),
                "claimed": claimed.model_dump() if claimed else None,
                "inside": one.value is not None and least <= one.value <= most,
                "agrees": agrees(one.value, one.lo, one.hi, claimed) if claimed else None,
            }
        )
    return made


def _strategy(quantity: Quantity, scenario: Scenario) -> str:
    return quantity.strategy or scenario.strategies[-1].name


def _measured(quantity: Quantity, view: View) -> Measured:
    function = MEASURES[quantity.measure].function

    def of(strategy: str) -> Measured:
        return function(Look(view, strategy, quantity.batch, quantity.context, quantity.stream))

    try:
        one = of(_strategy(quantity, view.point.scenario))
        if quantity.stream is not None:
            one = Measured(one.value, why=one.why)  # bands are those of all requests
        if quantity.over is None or one.value is None:
            return one
        other = of(quantity.over)
    except ModelError as error:
        return Measured(None, why=str(error))
    if not other.value:
        return Measured(None, why=other.why or f"{quantity.over} has none to divide by")
    return Measured(one.value / other.value)


def _finding(one: Posed, cases: list[Json]) -> Json:
    claim, asked = one.claim, one.claim.sensitivity
    varied = None if asked is None else asked.key or asked.name
    because = None
    if claim.because is not None:
        because = _filled(claim.because, cases[one.stated]["arithmetic"])
    verdict = judge(cases, one.stated, varied, because, claim.missing)
    return {
        "id": claim.id,
        "claim": claim.claim,
        "setting": claim.setting,
        "source": claim.source,
        "reading": claim.reading,
        "missing": claim.missing,
        "verdict": verdict._asdict(),
        "varied": varied,
        "why": asked.why if asked is not None else None,
        "stated": one.stated,
        "cases": cases,
    }


def _filled(text: str, arithmetic: Json) -> str:
    """The reason with its figures in place of their names."""

    def shown(match: Any) -> str:
        figure = arithmetic[match[1]][0]
        return figure_text(figure["value"], figure["unit"])

    return PLACEHOLDER.sub(shown, text)
