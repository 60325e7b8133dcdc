"""The ``vary`` block: a grid of axes, or a list of points, unfolded into what each point sets.

An axis is a dotted key, or several with commas between that all take the same value, and the
values it takes: numbers, words, mappings or lists. Axes make all combinations, the last one
fastest; a list of points is taken as it stands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Discriminator, Field, JsonValue, RootModel, Tag

from models.strict_yaml import Document, show, validate
from sim.scenario.overrides import canonical, within

MAX_POINTS = 1000
"""Of one run, whose tables keep every request."""
MAX_SWEEP = 100_000


def _type_of(value: Any) -> str:
    kinds: dict[type, str] = {str: "word", dict: "mapping", list: "list", tuple: "list"}
    return kinds.get(type(value), "number")


def _form_of(vary: Any) -> str:
    return "points" if isinstance(vary, list | tuple) else "grid"


Value = Annotated[
    Annotated[str, Field(max_length=1000), Tag("word")]
    | Annotated[bool | int | float, Tag("number")]
    | Annotated[dict[str, JsonValue], Tag("mapping")]
    | Annotated[list[JsonValue], Tag("list")],
    Discriminator(_type_of),
]
Grid = dict[str, Annotated[tuple[Value, ...], Field(min_length=1, max_length=MAX_SWEEP)]]
Listed = Annotated[
    tuple[Annotated[dict[str, Value], Field(min_length=1)], ...],
    Field(min_length=1, max_length=MAX_SWEEP),
]
Vary = Annotated[
    Annotated[Grid, Tag("grid")] | Annotated[Listed, Tag("points")], Discriminator(_form_of)
]


class _Grid(RootModel[Grid]):
    """The block alone: it is read before the scenario it completes."""


class _Listed(RootModel[Listed]):
    """Likewise, for a list of points."""


class Setting(NamedTuple):
    """An axis at one of its values.

    Attributes
    ----------
    name : str
        The axis as the file names it.
    keys : tuple of str
        The dotted keys that take the value.
    value : number, str, dict or list
    place : str
        Dotted key of the value in the file.
    """

    name: str
    keys: tuple[str, ...]
    value: Any
    place: str


Variation = tuple[Setting, ...]


class Unfolded(NamedTuple):
    """What varies.

    Attributes
    ----------
    groups : tuple of tuple of Variation
        Points are all combinations of one variation of each group: of a grid every axis is a
        group, a list of points is one.
    listed : bool
        Whether the file lists points.
    """

    groups: tuple[tuple[Variation, ...], ...] = ()
    listed: bool = False

    def __len__(self) -> int:
        return math.prod(len(group) for group in self.groups)

    def points(self) -> Iterator[Variation]:
        """What each point sets, in order."""
        for chosen in itertools.product(*self.groups):
            yield tuple(itertools.chain.from_iterable(chosen))

    def written(self, name: Any, value: Any) -> dict[str, Any] | tuple[dict[str, Any], ...]:
        """The block again, with ``name(setting)`` and ``value(setting, variation)`` in it."""
        told = [
            [{name(setting): value(setting, one) for setting in one} for one in group]
            for group in self.groups
        ]
        if self.listed:
            return tuple(told[0]) if told else {}
        return {key: tuple(one[key] for one in group) for group in told for key in group[0]}


def unfold(document: Document, fixed: Sequence[str] = (), most: int = MAX_POINTS) -> Unfolded:
    """Read ``vary``.

    Parameters
    ----------
    document : Document
        A scenario file; one without ``vary`` has a single point that sets nothing.
    fixed : sequence of str
        Keys that are set: they, and what lies within them, no longer vary.
    most : int
        Points it may make.

    Raises
    ------
    InputError
        If it is no grid and no list of points, a key varies twice, a value or a point is listed
        twice, or there are too many points.
    """
    if "vary" not in document.data:
        return Unfolded()
    listed = isinstance(document.data["vary"], list)
    groups = _listed(document) if listed else _grid(document)
    free = tuple(filter(None, (_without(group, fixed) for group in groups)))
    unfolded = Unfolded(free, listed)
    if len(unfolded) > most:
        more = "" if most == MAX_SWEEP else f"; `speccast sweep` takes up to {MAX_SWEEP}"
        raise document.error("vary", f"makes more than {most} points, got {len(unfolded)}{more}")
    return unfolded


def _grid(document: Document) -> list[list[Variation]]:
    vary = document.data["vary"]
    for name, values in vary.items() if isinstance(vary, dict) else ():
        for index, value in enumerate(values if isinstance(values, list) else ()):
            _require_value(document, f"vary.{name}[{index}]", value)
    grid = validate(_Grid, document, ("vary",)).root
    _require_distinct_keys(document, "vary", list(grid))
    for name, values in grid.items():
        _require_distinct(document, f"vary.{name}", values, "is listed twice")
    return [
        [(_setting(name, value, f"vary.{name}[{at}]"),) for at, value in enumerate(values)]
        for name, values in grid.items()
    ]


def _listed(document: Document) -> list[list[Variation]]:
    for index, values in enumerate(document.data["vary"]):
        for name, value in values.items() if isinstance(values, dict) else ():
            _require_value(document, f"vary[{index}].{name}", value)
    points = validate(_Listed, document, ("vary",)).root
    _require_distinct_keys(document, "vary[0]", list(points[0]))
    for index, values in enumerate(points):
        for name in {**points[0], **values}:
            if name not in values or name not in points[0]:
                lacking = f"vary[{index}]" if name not in values else "vary[0]"
                what = f"lacks '{name}': every point sets the same keys"
                raise document.error(lacking, what)
    _require_distinct(document, "vary", points, "is the same point as an earlier one")
    names = list(points[0])
    return [
        [
            tuple(_setting(name, values[name], f"vary[{at}].{name}") for name in names)
            for at, values in enumerate(points)
        ]
    ]


def _setting(name: str, value: Any, place: str) -> Setting:
    return Setting(name, keys_of(name), value, place)


def keys_of(name: str) -> tuple[str, ...]:
    """The dotted keys an axis names: ``a.b, c[0]`` sets two."""
    return tuple(key.strip() for key in name.split(","))


def _require_value(document: Document, place: str, value: Any) -> None:
    """Refuse null, before the schema words it by one of its types."""
    if value is None:
        raise document.error(place, "must be a number, a word, a mapping or a list, got null")


def _require_distinct_keys(document: Document, place: str, names: list[str]) -> None:
    """Refuse a key that varies twice, however it is written."""
    varying = [(name, key) for name in names for key in keys_of(name)]
    for (name, key), (other, twin) in itertools.combinations(varying, 2):
        one, two = canonical(key), canonical(twin)
        if within(one, two) or within(two, one):
            what = "is the same key as" if one == two else "overlaps"
            earlier = key if name == other else name
            raise document.error(f"{place}.{other}", f"{what} '{earlier}', which varies too")


def _require_distinct(document: Document, place: str, values: Sequence[Any], message: str) -> None:
    seen: set[str] = set()
    for index, value in enumerate(values):
        text = f"{type(value).__name__} {value!r}"
        if text in seen:
            got = "" if isinstance(value, dict) and place == "vary" else f", got {show(value)}"
            raise document.error(f"{place}[{index}]", f"{message}{got}")
        seen.add(text)


def _without(group: Sequence[Variation], fixed: Sequence[str]) -> tuple[Variation, ...]:
    """The group without the keys that are set; what then is the same comes once."""
    if not fixed:
        return tuple(group)
    left: dict[str, Variation] = {}
    for variation in group:
        rest = tuple(one for one in (_free(each, fixed) for each in variation) if one.keys)
        if rest:
            left.setdefault(repr([(one.name, one.value) for one in rest]), rest)
    return tuple(left.values())


def _free(setting: Setting, fixed: Sequence[str]) -> Setting:
    keys = tuple(
        key
        for key in setting.keys
        if not any(within(canonical(key), canonical(other)) for other in fixed)
    )
    if keys == setting.keys:
        return setting
    return setting._replace(name=", ".join(keys), keys=keys)


def values_of(vary: Mapping[str, Any] | Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """Values a key takes in a ``vary`` block; empty where it does not vary."""
    found: list[Any] = []
    for one in [vary] if isinstance(vary, Mapping) else vary:
        for name, values in one.items():
            if key in map(canonical, keys_of(name)):
                found += values if isinstance(vary, Mapping) else [values]
    return found


def size(vary: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> int:
    """How many points a ``vary`` block makes."""
    if isinstance(vary, Mapping):
        return math.prod(len(values) for values in vary.values())
    return len(vary)
