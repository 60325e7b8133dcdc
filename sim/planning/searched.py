"""What a plan file searches over: its keys are checked, set, and multiplied out."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models import catalog
from models.strict_yaml import Document, InputError, show
from sim.planning.schema import Plan
from sim.scenario.overrides import canonical, locate, parse_override, replaced, within

MAX_CANDIDATES = 20_000
BLOCKS = ("hardware", "model", "engine", "strategies")
TAKEN = ("model.replicas", "model.transformer", "hardware.gpus", "hardware.price_per_gpu_hour")
ITSELF = "set the searched key itself: one value ends its search"

_STRATEGY = re.compile(r"strategies\[(\d+)\]")


def overridden(document: Document, overrides: Sequence[str]) -> dict[str, Any]:
    """The data with what is set, and without the searches of those keys."""
    data = dict(document.data)
    for item in [parse_override(text) for text in overrides]:
        if within(canonical(item.key), "search"):
            raise item.error(item.key, f"{ITSELF}, as in --set hardware.gpu=h100_sxm")
        try:
            data = replaced(data, locate(data, item.key), item.value)
        except ValueError as error:
            raise item.error(item.key, str(error)) from None
        search = data.get("search")
        if isinstance(search, dict):
            kept = {
                key: values
                for key, values in search.items()
                if not within(canonical(str(key)), canonical(item.key))
            }
            data["search"] = kept
    return data


def check_search(document: Document, plan: Plan) -> None:
    """Refuse keys that are not for searching, values listed twice, and unknown names."""
    for key, values in plan.search.items():
        name, place = canonical(key), f"search.{key}"
        if name.split(".")[0].split("[")[0] not in BLOCKS:
            raise document.error(place, f"must begin with one of {', '.join(BLOCKS)}")
        if name in TAKEN:
            raise document.error(place, "is no key to search")
        if name.startswith("strategies"):
            _check_strategy(document, place, name, len(plan.strategies))
        for at, value in enumerate(values):
            if any(value == other and type(value) is type(other) for other in values[:at]):
                raise document.error(f"{place}[{at}]", f"is listed twice, got {show(value)}")
    for (key, _), (other, _) in itertools.combinations(plan.search.items(), 2):
        one, two = canonical(key), canonical(other)
        if within(one, two) or within(two, one):
            raise document.error(f"search.{other}", f"overlaps '{key}', which is searched too")
    for index in range(len(plan.strategies)):
        size = len(list(itertools.islice(product(plan.search, index), MAX_CANDIDATES + 1)))
        if size > MAX_CANDIDATES:
            raise document.error("search", f"makes more than {MAX_CANDIDATES} candidates")
    _check_names(document, plan)


def _check_strategy(document: Document, place: str, name: str, listed: int) -> None:
    asked = _STRATEGY.match(name)
    if asked is not None and int(asked[1]) >= listed:
        raise document.error(place, f"there is no {asked[0]}; the file lists {listed}, from 0 on")
    if asked is None or name == asked[0]:
        raise document.error(place, "must name a key of one strategy, like strategies[0].k")


def _check_names(document: Document, plan: Plan) -> None:
    """Names are the user's mistakes, not candidates that cannot run."""
    asked = [("hardware.gpu", "hardware", plan.hardware.gpu), ("engine.name", "engines", None)]
    for key, section, stated in asked:
        known = catalog.names(section)
        values = plan.search.get(key, ())
        for at, value in enumerate(values):
            if value not in known:
                raise document.error(f"search.{key}[{at}]", _unknown(value, known))
        if stated is not None and not values and stated not in known:
            raise document.error(key, _unknown(stated, known))
    if (
        plan.hardware.gpu is None
        and "hardware.gpu" not in plan.search
        and (plan.hardware.profile is None)
    ):
        raise document.error("hardware.gpu", "is missing: name a GPU, or search over several")
    for gpu in plan.prices:
        if gpu not in catalog.names("hardware"):
            raise document.error(f"prices.{gpu}", _unknown(gpu, catalog.names("hardware")))


def _unknown(value: Any, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(value), known, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(known)}"
    return f"is unknown, got {show(value)}; {hint}"


def product(search: Mapping[str, Sequence[Any]], strategy: int) -> Iterator[dict[str, Any]]:
    """Settings of every candidate of one strategy, the last key fastest."""
    keys = [
        key
        for key in search
        if not (asked := _STRATEGY.match(canonical(key))) or int(asked[1]) == strategy
    ]
    for values in itertools.product(*(search[key] for key in keys)):
        yield dict(zip(keys, values, strict=True))


def own_key(key: str, index: int) -> str:
    """A key of a candidate's only strategy as the plan file counts it."""
    return re.sub(r"^strategies\[\d+\]", f"strategies[{index}]", key)


def explained(
    document: Document, settings: Mapping[str, Any], index: int, error: InputError
) -> InputError:
    """Tell a value that is wrong at its place in ``search``, if it is there."""
    if error.path != document.path:
        return error
    key = own_key(error.key, index)
    for asked, value in settings.items():
        if within(key, canonical(asked)) or (key and within(canonical(asked), key)):
            at = next(
                i
                for i, one in enumerate(document.data["search"][asked])
                if one == value and type(one) is type(value)
            )
            return document.error(f"search.{asked}[{at}]", error.message)
    return document.error(key, error.message)
