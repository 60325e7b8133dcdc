"""From a scenario file to its points: strict YAML, ``vary`` grid, ``--set``, checks."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import RootModel

from models import catalog
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
from sim.scenario.schema import MAX_POINTS, Grid, Scenario

Place = tuple[str | int, ...]


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


class _Grid(RootModel[Grid]):
    """The ``vary`` block alone: it is read before the scenario it completes."""


class _Change(NamedTuple):
    """A value put into the data, and how to word an error it causes."""

    key: str
    value: Any
    source: Override | int


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
    if not isinstance(document.data, dict):
        raise document.error("", f"must be a mapping, got {show(document.data)}")
    sets = [parse_override(text) for text in overrides]
    grid = _grid(document, sets)
    combinations = list(_combinations(grid, sets))
    points = tuple(_point(document, changes) for changes in combinations)
    models = [point.scenario.model for point in points]
    if all(model.kv == "bf16" and model.kv_loss is not None for model in models):
        raise document.error("model.kv_loss", "nothing is lost by model.kv bf16; leave it out")
    first = points[0].scenario
    added = len(first.strategies) - len(_changed(document, combinations[0])["strategies"])
    vary = {_shifted(canonical(key), added): values for key, values in grid.items()}
    return ScenarioFile(document, points, first.model_copy(update={"vary": vary}))


def _grid(document: Document, sets: list[Override]) -> Grid:
    """Read ``vary``; a key that is set, or lies within one that is, no longer varies."""
    if "vary" not in document.data:
        return {}
    _check_values(document)
    grid = validate(_Grid, document, ("vary",)).root
    _check_distinct(document, grid)
    grid = {
        key: values
        for key, values in grid.items()
        if not any(within(canonical(key), canonical(item.key)) for item in sets)
    }
    size = math.prod(len(values) for values in grid.values())
    if size > MAX_POINTS:
        raise document.error("vary", f"makes more than {MAX_POINTS} points, got {size}")
    return grid


def _check_values(document: Document) -> None:
    """Refuse what is no single value, before the schema words it by one of its types."""
    vary = document.data["vary"]
    for key, values in vary.items() if isinstance(vary, dict) else ():
        for index, value in enumerate(values if isinstance(values, list) else ()):
            if value is None or isinstance(value, (dict, list)):
                raise document.error(
                    f"vary.{key}[{index}]",
                    f"must be a number, a word, true or false, got {show(value)}",
                )


def _check_distinct(document: Document, grid: Grid) -> None:
    """Refuse a key that varies twice, however it is written, and a value listed twice."""
    for (key, _), (other, _) in itertools.combinations(grid.items(), 2):
        one, two = canonical(key), canonical(other)
        if within(one, two) or within(two, one):
            what = "is the same key as" if one == two else "overlaps"
            raise document.error(f"vary.{other}", f"{what} '{key}', which varies too")
    for key, values in grid.items():
        for index, value in enumerate(values):
            same = [v for v in values[:index] if v == value and type(v) is type(value)]
            if same:
                raise document.error(f"vary.{key}[{index}]", f"is listed twice, got {show(value)}")


def _combinations(grid: Grid, sets: list[Override]) -> Iterator[list[_Change]]:
    """List what changes at each point: one combination of varied values, then the overrides."""
    fixed = [_Change(item.key, item.value, item) for item in sets]
    for chosen in itertools.product(*(enumerate(values) for values in grid.values())):
        varied = [
            _Change(key, value, index) for key, (index, value) in zip(grid, chosen, strict=True)
        ]
        yield varied + fixed


def _point(document: Document, changes: list[_Change]) -> Point:
    try:
        scenario = _scenario(replace(document, data=_changed(document, changes)))
    except InputError as error:
        raise _explained(document, changes, error) from None
    values = {change.key: change.value for change in changes if isinstance(change.source, int)}
    return Point(values, scenario)


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


def _explained(document: Document, changes: list[_Change], error: InputError) -> InputError:
    """Trace an error back to the override or the varied value that caused it."""
    if error.path != document.path:
        return error
    for change in reversed(changes):
        if within(error.key, canonical(change.key)):
            return _worded(document, change, error.key, error.message)
    for change in reversed(changes):
        if error.key and within(canonical(change.key), error.key):
            return _worded(document, change, error.key, error.message)
    varied = [f"{c.key} = {show(c.value)}" for c in changes if isinstance(c.source, int)]
    at = f" (at {', '.join(varied)})" if varied else ""
    return InputError(error.path, error.line, error.key, error.message + at)


def _worded(document: Document, change: _Change, key: str, message: str) -> InputError:
    if isinstance(change.source, Override):
        return change.source.error(key, message)
    return document.error(f"vary.{change.key}[{change.source}]", message)


def with_absolute_paths(data: dict[str, Any], path: str) -> dict[str, Any]:
    """Make relative file names absolute, so that a scenario means the same anywhere."""
    folder = Path(path).resolve().parent
    strategies = list(_strategies(data))
    places: list[tuple[Place, str]] = [
        (("model", "transformer"), "transformers"),
        (("hardware", "profile"), "profiles"),
        *(((*strategy, "draft"), "transformers") for strategy in strategies),
    ]
    for place, section in places:
        name = _at(data, place)
        if isinstance(name, str) and _is_file(name, section):
            data = replaced(data, place, str((folder / name).resolve()))
    for place in _acceptance_files(data, strategies):
        name = _at(data, place)
        if name and "\0" not in name:
            data = replaced(data, place, str((folder / name).resolve()))
    for place in _traces(data):
        name = _at(data, (*place, "file"))
        named = isinstance(name, str) and name and "\0" not in name
        if named and _at(data, (*place, "kind")) == "trace":
            data = replaced(data, (*place, "file"), str((folder / name).resolve()))
    return data


def _traces(data: Any) -> Iterator[Place]:
    """Where a workload may name a trace: of arrivals, or of a stream's lengths or domains."""
    yield ("workload", "arrivals")
    streams = _at(data, ("workload", "streams"))
    for index in range(len(streams)) if isinstance(streams, list) else ():
        yield from (("workload", "streams", index, key) for key in ("lengths", "domain"))


def _strategies(data: dict[str, Any]) -> Iterator[Place]:
    """Where strategies stand, those that others are made of included."""
    found = data.get("strategies")
    for index in range(len(found)) if isinstance(found, list) else ():
        whole: Place = ("strategies", index)
        among = _at(data, (*whole, "among"))
        yield whole
        yield from ((*whole, part) for part in ("primary", "fallback"))
        yield from (
            (*whole, "among", each)
            for each in (range(len(among)) if isinstance(among, list) else ())
        )


def _acceptance_files(data: dict[str, Any], strategies: Sequence[Place]) -> Iterator[Place]:
    """Where strategies name an acceptance file, for all domains or for one."""
    for strategy in strategies:
        whole = (*strategy, "acceptance")
        domains = _at(data, (*whole, "by_domain"))
        names = (
            [name for name in domains if isinstance(name, str)] if isinstance(domains, dict) else []
        )
        for place in (whole, *((*whole, "by_domain", name) for name in names)):
            if isinstance(_at(data, (*place, "file")), str):
                yield (*place, "file")


def _at(data: Any, place: Place) -> Any:
    for part in place:
        if isinstance(part, str) and not isinstance(data, dict):
            return None
        data = data.get(part) if isinstance(part, str) else data[part]
    return data


def _is_file(name: str, section: str) -> bool:
    looks = "/" in name or name.endswith((".json", ".yaml", ".yml"))
    return looks and "\0" not in name and name not in catalog.names(section)
