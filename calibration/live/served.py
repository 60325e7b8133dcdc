"""Which strategy of a scenario an observed server ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.live.recording import Observation
from models.strategies import Strategy
from models.strict_yaml import InputError, show
from sim.scenario.load import ScenarioFile

APART = frozenset({"kind", "label", "hypothetical", "acceptance"})
"""Keys that say nothing of how a server was set up, or are compared by themselves."""


def served(observation: Observation, file: ScenarioFile, asked: str | None = None) -> Strategy:
    """The strategy of a scenario that predicts an observation.

    Parameters
    ----------
    observation : Observation
    file : ScenarioFile
    asked : str, optional
        Name of the strategy to take, whatever the server ran.

    Raises
    ------
    InputError
        If no strategy, or more than one, has the block or the label of the observation; or none
        has the name asked for.
    """
    known = file.points[0].scenario.strategies
    named = {strategy.name: strategy for strategy in known}
    listed = ", ".join(show(name) for name in named)
    if asked is not None:
        if asked not in named:
            raise InputError("", None, "--strategy", f"must be one of {listed}, got {show(asked)}")
        return named[asked]
    same = [strategy for strategy in known if matches(strategy, observation.block)]
    called = named.get(observation.label)
    if len(same) == 1:
        return same[0]
    if called is not None and (called in same or called.kind == observation.block.get("kind")):
        return called
    which = "several of its strategies are" if same else "none of its strategies is"
    raise file.document.error(
        "strategies",
        f"{which} what the server ran, {show(observation.label)}; choose one of {listed} with "
        "--strategy",
    )


def matches(strategy: Strategy, block: Mapping[str, Any]) -> bool:
    """Whether a block, as an observation records it, sets a strategy up alike.

    Acceptance is left aside, and a key at its default is as good as none.
    """
    if strategy.kind != block.get("kind"):
        return False
    standard = {
        key: one.get_default(call_default_factory=True)
        for key, one in type(strategy).model_fields.items()
        if not one.is_required()
    }
    given = {key: value for key, value in block.items() if key not in APART}
    set_up = strategy.model_dump(mode="json", exclude_defaults=True, exclude=set(APART))
    return set_up == {k: v for k, v in given.items() if k not in standard or v != standard[k]}
