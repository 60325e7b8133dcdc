"""From a claims file to claims with their scenarios: every case is checked before any is run."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from models.strict_yaml import Document, InputError, dotted, read_yaml, show, validate
from sim.audit.claims import Claim, ClaimsFile, Quantity
from sim.scenario.load import ScenarioFile, parse_scenario

Where = tuple[str | int, ...]


class _Change(NamedTuple):
    """A key of a scenario that is set, and where in the claims file."""

    where: Where
    key: str
    value: Any


ONLY_CASE = "as stated"
"""What the case of a claim without a sensitivity is called."""


class Case(NamedTuple):
    """One setting a claim is tried at; ``label`` is the value, or the name, of its sensitivity."""

    label: str
    plausible: bool
    scenario: ScenarioFile


class Posed(NamedTuple):
    """A claim, the cases it is tried at, and which of them makes the prediction."""

    claim: Claim
    cases: tuple[Case, ...]
    stated: int


def shipped() -> Path:
    """The claims that come with speccast."""
    return Path(str(files("sim.audit") / "claims.yaml"))


def load_claims(path: str | Path, only: Sequence[str] = ()) -> tuple[Posed, ...]:
    """Read a claims file and check every scenario in it.

    Parameters
    ----------
    path : path-like
        YAML; files named in it are relative to its folder.
    only : sequence of str
        Names of the claims wanted; none means all.

    Raises
    ------
    InputError
        For anything wrong, in one line with file, line and dotted key.
    """
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise document.error("", f"must be a mapping, got {show(document.data)}")
    parsed = validate(ClaimsFile, document)
    known = [claim.id for claim in parsed.claims]
    for name in only:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1) or [", ".join(known)]
            raise InputError(str(path), None, "--only", f"no claim '{name}'; there is {near[0]}")
    return tuple(
        _posed(document, index, claim)
        for index, claim in enumerate(parsed.claims)
        if not only or claim.id in only
    )


def _posed(document: Document, index: int, claim: Claim) -> Posed:
    where: Where = ("claims", index)
    base, place = _base(document, claim, where)
    if claim.vary:
        base = replace(base, data={**base.data, "vary": document.data["claims"][index]["vary"]})
    cases = tuple(
        Case(label, plausible, _parsed(document, base, place, settings))
        for label, plausible, settings in _settings(claim, where)
    )
    for case in cases:
        _check(document, claim, where, case)
    labels = [case.label for case in cases]
    for number, label in enumerate(claim.curve.cases if claim.curve else ()):
        if label not in labels:
            raise document.error((*where, "curve", "cases", number), f"no case '{label}'")
    asked = claim.sensitivity
    return Posed(claim, cases, 0 if asked is None else asked.first)


def _settings(claim: Claim, where: Where) -> Iterator[tuple[str, bool, list[_Change]]]:
    """Label, plausibility, and what is set of each case."""
    fixed = [_Change((*where, "set", key), key, value) for key, value in claim.set.items()]
    asked = claim.sensitivity
    if asked is None:
        yield ONLY_CASE, True, fixed
        return
    at = (*where, "sensitivity")
    if asked.key is not None:
        for number, value in enumerate(asked.values):
            plausible = asked.plausible is None or value in asked.plausible
            label = value if isinstance(value, str) else json.dumps(value)
            yield label, plausible, [*fixed, _Change((*at, "values", number), asked.key, value)]
        return
    for label, changes in asked.cases.items():
        plausible = asked.plausible is None or label in asked.plausible
        own = [_Change((*at, "cases", label, key), key, value) for key, value in changes.items()]
        yield label, plausible, [*fixed, *own]


def _base(document: Document, claim: Claim, where: Where) -> tuple[Document, Where | None]:
    """The scenario of a claim, and where it stands in the claims file, if it does."""
    if isinstance(claim.scenario, dict):
        return _part(document, (*where, "scenario")), (*where, "scenario")
    if claim.scenario in (document.data.get("scenarios") or {}):
        place: Where = ("scenarios", claim.scenario)
        return _part(document, place), place
    if claim.scenario.endswith((".yaml", ".yml")):
        return read_yaml(Path(document.path).resolve().parent / claim.scenario), None
    known = list(document.data.get("scenarios") or {})
    near = difflib.get_close_matches(claim.scenario, known, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise document.error((*where, "scenario"), f"no scenario '{claim.scenario}'{hint}")


def _part(document: Document, where: Where) -> Document:
    data: Any = document.data
    for piece in where:
        data = data[piece]
    start = f"{dotted(where)}."
    inner = {key: line for key, line in document.lines.items() if key.startswith(start)}
    lines = {key.removeprefix(start): line for key, line in inner.items()}
    return Document(data, document.path, lines)


def _parsed(
    document: Document, base: Document, place: Where | None, settings: list[_Change]
) -> ScenarioFile:
    """The scenario with its settings; what is wrong is told at its place in the claims file."""
    texts = [f"{change.key}={json.dumps(change.value)}" for change in settings]
    try:
        return parse_scenario(base, texts)
    except InputError as error:
        for text, change in zip(texts, settings, strict=True):
            if error.path == f"--set {text}":
                inner = f"{error.key}: " if error.key not in ("", change.key) else ""
                raise document.error(change.where, f"{inner}{error.message}") from None
        if place is None or error.path != document.path:
            raise
        key = f"{dotted(place)}.{error.key}" if error.key else dotted(place)
        raise document.error(key, error.message) from None


def _check(document: Document, claim: Claim, where: Where, case: Case) -> None:
    """Refuse a figure of a strategy, a stream or a point that is not there."""
    asked: list[tuple[Where, Quantity]] = [
        *(((*where, "tested", i), quantity) for i, quantity in enumerate(claim.tested)),
        *(((*where, "arithmetic", name), each) for name, each in claim.arithmetic.items()),
    ]
    asked += [((*where, "curve"), claim.curve)] if claim.curve else []
    names = [strategy.name for strategy in case.scenario.resolved.strategies]
    for place, quantity in asked:
        for key in ("strategy", "over"):
            wanted = getattr(quantity, key)
            if wanted is not None and wanted not in names:
                there = ", ".join(names)
                raise document.error((*place, key), f"no strategy '{wanted}'; there is {there}")
        known = [stream.name for stream in case.scenario.resolved.workload.streams]
        if quantity.stream is not None and quantity.stream not in known:
            there = ", ".join(map(str, known))
            message = f"no stream '{quantity.stream}'; there is {there}"
            raise document.error((*place, "stream"), message)
        if not any(at_point(quantity.at, point.values) for point in case.scenario.points):
            raise document.error((*place, "at"), "no point of the scenario has these values")


def at_point(wanted: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether a point of a grid has the values wanted."""
    return all(values.get(key) == value for key, value in wanted.items())
