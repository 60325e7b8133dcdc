"""From a plan file to candidates: strict YAML, ``--set``, and the product of the search keys."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from models import catalog
from models.schema import ModelError
from models.strategies import Strategy
from models.strict_yaml import Document, InputError, read_yaml, show, validate
from sim.planning.scenario import scenario_data
from sim.planning.schema import Plan
from sim.scenario.build import build
from sim.scenario.overrides import canonical, locate, parse_override, replaced, within
from sim.scenario.paths import with_absolute_paths
from sim.scenario.schema import Scenario

MAX_CANDIDATES = 20_000
BLOCKS = ("hardware", "model", "engine", "strategies")
TAKEN = ("model.replicas", "model.transformer", "hardware.gpus", "hardware.price_per_gpu_hour")

_STRATEGY = re.compile(r"strategies\[(\d+)\]")


class Candidate(NamedTuple):
    """One configuration that could be bought.

    Attributes
    ----------
    group : str
        Strategy as the plan file has it, before its keys were searched.
    gpu : str
    settings : dict
        Searched keys and their values here.
    scenario : Scenario
        One replica of it under the diurnal demand, with this strategy alone.
    """

    group: str
    gpu: str
    settings: dict[str, Any]
    scenario: Scenario

    @property
    def strategy(self) -> Strategy:
        """What it decodes with."""
        return self.scenario.strategies[-1]

    @property
    def stand_in(self) -> Candidate:
        """The same with the strategy that sequences start in, where they switch."""
        if not self.strategy.switches:
            return self
        start = self.strategy.modes[getattr(self.strategy, "start", 0)]
        scenario = self.scenario.model_copy(update={"strategies": (start,)})
        return self._replace(scenario=scenario)


class Impossible(NamedTuple):
    """Candidates that nobody can run, and why; ``candidates`` counts those of one reason."""

    strategy: str
    gpu: str
    why: str
    candidates: int = 1


@dataclass(frozen=True)
class PlanFile:
    """A loaded plan file.

    Attributes
    ----------
    document : Document
        The file as parsed.
    plan : Plan
    candidates : tuple of Candidate
        Those that can run, in the order of the strategies and of the search keys.
    impossible : tuple of Impossible
        Those that cannot.
    """

    document: Document
    plan: Plan
    candidates: tuple[Candidate, ...]
    impossible: tuple[Impossible, ...]

    @property
    def asked(self) -> int:
        """Candidates in all."""
        return len(self.candidates) + sum(one.candidates for one in self.impossible)


def load_plan(path: str | Path, overrides: Sequence[str] = ()) -> PlanFile:
    """Read a plan file and list what may be bought.

    Parameters
    ----------
    path : path-like
        The YAML file; paths inside it are relative to its folder.
    overrides : sequence of str
        ``key=value`` each; a searched key that is set is no longer searched.

    Raises
    ------
    InputError
        For anything wrong, in one line with file, line and dotted key; also where no candidate
        can run.
    """
    return parse_plan(read_yaml(path), overrides)


def parse_plan(document: Document, overrides: Sequence[str] = ()) -> PlanFile:
    """List the candidates of a plan file already parsed; see ``load_plan``."""
    if not isinstance(document.data, dict):
        raise document.error("", f"must be a mapping, got {show(document.data)}")
    document = replace(document, data=_overridden(document, overrides))
    plan = validate(Plan, document)
    _check_search(document, plan)
    found: list[Candidate] = []
    reasons: dict[tuple[str, str, str], int] = {}
    for index, strategy in enumerate(plan.strategies):
        for settings in _product(plan.search, index):
            made = _candidate(document, plan, index, settings)
            if isinstance(made, Candidate):
                found.append(made)
                continue
            gpu = str(settings.get("hardware.gpu", plan.hardware.gpu))
            reason = (strategy.name, gpu, made)
            reasons[reason] = reasons.get(reason, 0) + 1
    impossible = tuple(Impossible(*reason, count) for reason, count in reasons.items())
    if not found:
        first = impossible[0]
        where = "search" if plan.search else "model"
        raise document.error(
            where, f"no candidate can run; {first.strategy} on {first.gpu}: {first.why}"
        )
    return PlanFile(document, plan, tuple(found), impossible)


def _overridden(document: Document, overrides: Sequence[str]) -> dict[str, Any]:
    """The data with what is set, and without the searches of those keys."""
    data = dict(document.data)
    for item in [parse_override(text) for text in overrides]:
        if within(canonical(item.key), "search"):
            raise item.error(item.key, "set the searched key itself: one value ends its search")
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


def _check_search(document: Document, plan: Plan) -> None:
    """Refuse keys that are not for searching, values listed twice, and unknown names."""
    for key, values in plan.search.items():
        name, place = canonical(key), f"search.{key}"
        if name.split(".")[0].split("[")[0] not in BLOCKS:
            raise document.error(place, f"must begin with one of {', '.join(BLOCKS)}")
        if name in TAKEN:
            raise document.error(place, "is no key to search")
        asked = _STRATEGY.match(name)
        if name.startswith("strategies") and (
            asked is None or int(asked[1]) >= len(plan.strategies) or name == asked[0]
        ):
            last = len(plan.strategies) - 1
            raise document.error(place, f"names a key of strategies[0] to strategies[{last}]")
        for at, value in enumerate(values):
            if any(value == other and type(value) is type(other) for other in values[:at]):
                raise document.error(f"{place}[{at}]", f"is listed twice, got {show(value)}")
    for (key, _), (other, _) in itertools.combinations(plan.search.items(), 2):
        one, two = canonical(key), canonical(other)
        if within(one, two) or within(two, one):
            raise document.error(f"search.{other}", f"overlaps '{key}', which is searched too")
    for index in range(len(plan.strategies)):
        size = len(list(itertools.islice(_product(plan.search, index), MAX_CANDIDATES + 1)))
        if size > MAX_CANDIDATES:
            raise document.error("search", f"makes more than {MAX_CANDIDATES} candidates")
    _check_names(document, plan)


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


def _product(search: Mapping[str, Sequence[Any]], strategy: int) -> Iterator[dict[str, Any]]:
    """Settings of every candidate of one strategy, the last key fastest."""
    keys = [
        key
        for key in search
        if not (asked := _STRATEGY.match(canonical(key))) or int(asked[1]) == strategy
    ]
    for values in itertools.product(*(search[key] for key in keys)):
        yield dict(zip(keys, values, strict=True))


def _candidate(
    document: Document, plan: Plan, index: int, settings: dict[str, Any]
) -> Candidate | str:
    """The candidate, or why it cannot run.

    Raises
    ------
    InputError
        Where a value is none its key can have: that is the file's mistake.
    """
    data = document.data
    for key, value in settings.items():
        try:
            data = replaced(data, locate(data, key), value)
        except ValueError as error:
            raise document.error(f"search.{key}", str(error)) from None
    data = with_absolute_paths(data, document.path)
    shown = _shown(document, scenario_data(plan, data, index), index)
    try:
        scenario = validate(Scenario, shown)
    except InputError as error:
        raise _explained(document, settings, index, error) from None
    try:
        deployment = build(scenario)
    except ModelError as error:
        return str(error)
    gpu = deployment.accelerator.name
    return Candidate(plan.strategies[index].name, gpu, settings, scenario)


def _shown(document: Document, data: dict[str, Any], index: int) -> Document:
    """The scenario's data with the lines of the plan file."""
    own = f"strategies[{index}]"
    lines = {
        key.replace(own, "strategies[0]", 1) if key.startswith(own) else key: line
        for key, line in document.lines.items()
        if not key.startswith("strategies[") or within(key, own)
    }
    return Document(data, document.path, lines)


def _explained(
    document: Document, settings: Mapping[str, Any], index: int, error: InputError
) -> InputError:
    """Tell a value that is wrong at its place in ``search``, if it is there."""
    if error.path != document.path:
        return error
    key = re.sub(r"^strategies\[\d+\]", f"strategies[{index}]", error.key)
    for asked, value in settings.items():
        if within(key, canonical(asked)) or (key and within(canonical(asked), key)):
            at = next(
                i
                for i, one in enumerate(document.data["search"][asked])
                if one == value and type(one) is type(value)
            )
            return document.error(f"search.{asked}[{at}]", error.message)
    return document.error(key, error.message)
