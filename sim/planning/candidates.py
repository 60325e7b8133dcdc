"""From a plan file to candidates: strict YAML, ``--set``, and the product of the search keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from models.schema import ModelError
from models.strategies import Strategy
from models.strict_yaml import Document, InputError, read_yaml, show, validate
from sim.planning.scenario import scenario_data
from sim.planning.schema import Plan
from sim.planning.searched import check_search, explained, overridden, own_key, product
from sim.scenario.build import build
from sim.scenario.overrides import locate, replaced, within
from sim.scenario.paths import with_absolute_paths
from sim.scenario.schema import Scenario


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
    """Candidates that nobody can run, and why.

    Attributes
    ----------
    strategy, gpu, why : str
    key : str
        Dotted key at fault; empty where none is known.
    candidates : int
        How many have this reason.
    """

    strategy: str
    gpu: str
    why: str
    key: str = ""
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
    _check_kind(document)
    document = replace(document, data=overridden(document, overrides))
    plan = validate(Plan, document)
    check_search(document, plan)
    found: list[Candidate] = []
    failed: list[InputError] = []
    reasons: dict[tuple[str, str, str, str], int] = {}
    for index, strategy in enumerate(plan.strategies):
        for settings in product(plan.search, index):
            made = _candidate(document, plan, index, settings)
            if isinstance(made, Candidate):
                found.append(made)
                continue
            failed.append(explained(document, settings, index, made))
            gpu = str(settings.get("hardware.gpu", plan.hardware.gpu))
            reason = (strategy.name, gpu, made.message, made.key)
            reasons[reason] = reasons.get(reason, 0) + 1
    impossible = tuple(
        Impossible(strategy, gpu, why, key, count)
        for (strategy, gpu, why, key), count in reasons.items()
    )
    if not found:
        raise _none_can_run(document, plan, failed, impossible[0])
    return PlanFile(document, plan, tuple(found), impossible)


def _check_kind(document: Document) -> None:
    """Tell a scenario from a plan file that lacks a block."""
    workload = document.data.get("workload")
    if "demand" not in document.data and isinstance(workload, dict) and "arrivals" in workload:
        raise document.error(
            "demand", "is missing: this is a scenario (for run, sweep, capacity), no plan file"
        )


def _none_can_run(
    document: Document, plan: Plan, failed: Sequence[InputError], first: Impossible
) -> InputError:
    """The mistake all candidates share, at its own place; else that none can run, and one why."""
    one = failed[0]
    if one.key and all((one.key, one.message) == (each.key, each.message) for each in failed):
        return one
    key = "search" if plan.search else "model"
    why = f"{first.key}: {first.why}" if "." in first.key else first.why
    return document.error(key, f"no candidate can run; {first.strategy} on {first.gpu}: {why}")


def _candidate(
    document: Document, plan: Plan, index: int, settings: dict[str, Any]
) -> Candidate | InputError:
    """The candidate, or why it cannot run, with the key at fault.

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
        raise explained(document, settings, index, error) from None
    try:
        deployment = build(scenario)
    except ModelError as error:
        return document.error(own_key(error.key, index), str(error))
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
