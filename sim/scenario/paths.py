"""File names inside a scenario: made absolute, so that it means the same anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from models import catalog
from sim.scenario.overrides import replaced

Place = tuple[str | int, ...]


def with_absolute_paths(data: dict[str, Any], path: str) -> dict[str, Any]:
    """Make relative file names absolute, so that a scenario means the same anywhere."""
    folder = Path(path).resolve().parent
    strategies = list(_strategies(data))
    places: list[tuple[Place, str]] = [
        (("model", "transformer"), "transformers"),
        (("hardware", "profile"), "profiles"),
        (("engine", "name"), "engines"),
        *(((*strategy, "draft"), "transformers") for strategy in strategies),
    ]
    for place, section in places:
        name = at(data, place)
        if isinstance(name, str) and _is_file(name, section):
            data = replaced(data, place, str((folder / name).resolve()))
    for place in _acceptance_files(data, strategies):
        name = at(data, place)
        if name and "\0" not in name:
            data = replaced(data, place, str((folder / name).resolve()))
    for place in _traces(data):
        name = at(data, (*place, "file"))
        named = isinstance(name, str) and name and "\0" not in name
        if named and at(data, (*place, "kind")) == "trace":
            data = replaced(data, (*place, "file"), str((folder / name).resolve()))
    return data


def _traces(data: Any) -> Iterator[Place]:
    """Where a workload may name a trace: of arrivals, or of a stream's lengths or domains."""
    yield ("workload", "arrivals")
    streams = at(data, ("workload", "streams"))
    for index in range(len(streams)) if isinstance(streams, list) else ():
        yield from (("workload", "streams", index, key) for key in ("lengths", "domain"))


def _strategies(data: dict[str, Any]) -> Iterator[Place]:
    """Where strategies stand, those that others are made of included."""
    found = data.get("strategies")
    for index in range(len(found)) if isinstance(found, list) else ():
        whole: Place = ("strategies", index)
        among = at(data, (*whole, "among"))
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
        domains = at(data, (*whole, "by_domain"))
        names = (
            [name for name in domains if isinstance(name, str)] if isinstance(domains, dict) else []
        )
        for place in (whole, *((*whole, "by_domain", name) for name in names)):
            if isinstance(at(data, (*place, "file")), str):
                yield (*place, "file")


def at(data: Any, place: Place) -> Any:
    """The value at a place; None where there is none."""
    for part in place:
        if isinstance(part, str) and not isinstance(data, dict):
            return None
        data = data.get(part) if isinstance(part, str) else data[part]
    return data


def _is_file(name: str, section: str) -> bool:
    looks = "/" in name or name.endswith((".json", ".yaml", ".yml"))
    return looks and "\0" not in name and name not in catalog.names(section)
