"""From a scenario file to its points: strict YAML, ``vary`` grid, ``--set``, checks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from models.schema import ModelError
from models.strict_yaml import Document, InputError, read_yaml, show, validate
from sim.scenario.build import build
from sim.scenario.overrides import (
    Override,
    canonical,
    locate,
    parse_override,
    replaced,
    within,
)
from sim.scenario.paths import at, with_absolute_paths
from sim.scenario.schema import Scenario
from sim.scenario.vary import MAX_POINTS, Setting, Unfolded, Variation, unfold


class Point(NamedTuple):
    """One combination of the varied values, and the scenario it makes."""

    values: dict[str, Any]
    scenario: Scenario


@dataclass(frozen=True)
class ScenarioFile:
    """A loaded scenario file.

    Attributes
    ----------
    document : Document
        The file as parsed.
    points : tuple of Point
        At least one, in the order of the grid, the last varied key fastest.
    resolved : Scenario
        The first point with the grid put back, overrides included: written out, it loads to
        the same points.
    """

    document: Document
    points: tuple[Point, ...]
    resolved: Scenario


class _Change(NamedTuple):
    """A value put into the data, and how to word an error it causes."""

    key: str
    value: Any
    source: Override | str


def covered(scenario: ScenarioFile, rows: int) -> int:
    """How many of the first points so many rows make up, one a strategy."""
    sizes = itertools.accumulate(len(point.scenario.strategies) for point in scenario.points)
    return sum(1 for size in sizes if size <= rows)


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> ScenarioFile:
    """Read a scenario file, expand its grid and check every point.

    Parameters
    ----------
    path : path-like
        The YAML file; paths inside it are relative to its folder.
    overrides : sequence of str
        ``key=value`` each; they win over the file and over ``vary``.

    Raises
    ------
    InputError
        For anything wrong, in one line with file, line and dotted key.
    """
    return parse_scenario(read_yaml(path), overrides)


def parse_scenario(document: Document, overrides: Sequence[str] = ()) -> ScenarioFile:
    """Expand and check a scenario already parsed; see ``load_scenario``."""
    points: list[Point] = []
    expansion = expand(document, overrides)
    expansion.check(points.append)
    return expansion.file(points)


def explained(file: ScenarioFile, overrides: Sequence[str], error: ModelError) -> InputError:
    """Trace what a loaded scenario is refused for to the override or the line it comes from."""
    sets = [_Change(one.key, one.value, one) for one in map(parse_override, overrides)]
    found = file.document.error(error.key, str(error))
    return _explained(file.document, sets, (), found)


def expand(document: Document, overrides: Sequence[str] = (), most: int = MAX_POINTS) -> Expansion:
    """Find out what each point of a parsed scenario sets, without making the points.

    Raises
    ------
    InputError
        If the document is no mapping, or an override or ``vary`` is malformed.
    """
    if not isinstance(document.data, dict):
        raise document.error("", f"must be a mapping, got {show(document.data)}")
    if "demand" in document.data:
        raise document.error("demand", "belongs to a plan file (for plan): this must be a scenario")
    sets = tuple(parse_override(text) for text in overrides)
    return Expansion(document, sets, unfold(document, [item.key for item in sets], most))


@dataclass(frozen=True)
class Expansion:
    """A scenario file before its points are made.

    Attributes
    ----------
    document : Document
    sets : tuple of Override
    unfolded : Unfolded
    """

    document: Document
    sets: tuple[Override, ...]
    unfolded: Unfolded

    def point(self, variation: Variation) -> Point:
        """Make one point; InputError where it is no good."""
        document, changes = self.document, self._changes(variation)
        try:
            scenario = _scenario(replace(document, data=_changed(document, changes)))
        except InputError as error:
            raise _explained(document, changes, variation, error) from None
        return Point({setting.name: setting.value for setting in variation}, scenario)

    def _changes(self, variation: Variation) -> list[_Change]:
        varied = [_Change(key, one.value, one.place) for one in variation for key in one.keys]
        return varied + [_Change(item.key, item.value, item) for item in self.sets]

    def check(self, each: Callable[[Point], object]) -> None:
        """Make every point, hand it over, and refuse what no single point can tell."""
        unused = True
        added: dict[int, Variation] = {}
        for variation in self.unfolded.points():
            point = self.point(variation)
            model = point.scenario.model
            unused &= model.kv == "bf16" and model.kv_loss is not None
            added.setdefault(self._added(variation, point), variation)
            each(point)
        if unused:
            what = "nothing is lost by model.kv bf16; leave it out"
            raise self.document.error("model.kv_loss", what)
        for one in next(reversed(added.values())) if len(added) > 1 else ():
            if any(canonical(key).startswith("strategies[") for key in one.keys):
                what = "lists plain decoding where other points do not; list it in all or in none"
                raise self.document.error(one.place, what)

    def _added(self, variation: Variation, point: Point) -> int:
        """Strategies put in front of those listed."""
        listed = _changed(self.document, self._changes(variation))["strategies"]
        return len(point.scenario.strategies) - len(listed)

    def file(self, points: Sequence[Point]) -> ScenarioFile:
        """The scenario file with these points, which begin with the first."""
        first = next(self.unfolded.points())
        added = self._added(first, points[0])

        def name(setting: Setting) -> str:
            return ", ".join(_shifted(canonical(key), added) for key in setting.keys)

        def value(setting: Setting, variation: Variation) -> Any:
            if isinstance(setting.value, int | float):
                return setting.value
            data = _changed(self.document, self._changes(variation))
            return at(data, locate(data, setting.keys[0]))

        vary = self.unfolded.written(name, value)
        resolved = points[0].scenario.model_copy(update={"vary": vary})
        return ScenarioFile(self.document, tuple(points), resolved)


def _changed(document: Document, changes: list[_Change]) -> dict[str, Any]:
    """Copy the data without ``vary``, with the changes made and file names absolute."""
    data = {key: value for key, value in document.data.items() if key != "vary"}
    for change in changes:
        try:
            data = replaced(data, locate(data, change.key), change.value)
        except ValueError as error:
            raise _worded(document, change, change.key, str(error)) from None
    return with_absolute_paths(data, document.path)


def _scenario(document: Document) -> Scenario:
    scenario = validate(Scenario, document)
    try:
        build(scenario)
    except ModelError as error:
        added = len(scenario.strategies) - len(document.data["strategies"])
        raise document.error(_shifted(error.key, -added), str(error)) from None
    return scenario


def _shifted(key: str, by: int) -> str:
    """Count strategies as the file does, without the baseline put in front."""
    return re.sub(r"^strategies\[(\d+)\]", lambda m: f"strategies[{int(m[1]) + by}]", key)


def _explained(
    document: Document, changes: list[_Change], variation: Variation, error: InputError
) -> InputError:
    """Trace an error back to the override or the varied value that caused it."""
    if error.path != document.path:
        return error
    for change in reversed(changes):
        if within(error.key, canonical(change.key)):
            return _worded(document, change, error.key, error.message)
    for change in reversed(changes):
        if error.key and within(canonical(change.key), error.key):
            return _worded(document, change, error.key, error.message)
    varied = [f"{one.name} = {show(one.value)}" for one in variation]
    at = f" (at {', '.join(varied)})" if varied else ""
    return InputError(error.path, error.line, error.key, error.message + at)


def _worded(document: Document, change: _Change, key: str, message: str) -> InputError:
    if isinstance(change.source, Override):
        return change.source.error(key, message)
    return document.error(change.source, message)
