"""A scenario written back as YAML, every default filled in; it loads again to an equal one."""

from __future__ import annotations

import re
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from models.strategies import Strategy
from models.strategies.modes import Switching
from sim.scenario.schema import Scenario

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*[A-Za-z0-9_]|[A-Za-z]")


class _Dumper(yaml.SafeDumper):
    """Quotes every string but plain words, and never writes an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def to_yaml(data: Any) -> str:
    """Write plain data as YAML the strict loader reads back unchanged."""
    return yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        width=100,
        allow_unicode=True,
    )


def plain(block: BaseModel) -> dict[str, Any]:
    """Return a block as plain data, its defaults filled in and empty keys left out."""
    data: dict[str, Any] = block.model_dump(mode="json", exclude_none=True)
    return data


def resolved_yaml(scenario: Scenario) -> str:
    """Write a scenario with all defaults filled in.

    Parameters
    ----------
    scenario : Scenario
        A point of a scenario file, or ``ScenarioFile.resolved`` for the whole grid.
    """
    data = plain(scenario)
    data["strategies"] = [_strategy(strategy) for strategy in scenario.strategies]
    if not scenario.vary:
        del data["vary"]
    return to_yaml(data)


def _strategy(strategy: Strategy) -> dict[str, Any]:
    """Plain data of a strategy; keys that exclude each other only where the user gave them."""
    full = plain(strategy)
    if isinstance(strategy, Switching):
        parts = {key: _parts(getattr(strategy, key)) for key in type(strategy).model_fields}
        return full | {key: part for key, part in parts.items() if part is not None}
    given: dict[str, Any] = strategy.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    full = {key: given.get(key, value) for key, value in full.items()}
    try:
        type(strategy).model_validate(full)
    except ValidationError:
        return {"kind": strategy.kind, **given}
    return full


def _parts(value: Any) -> Any:
    """Plain data of the strategies a key holds; None where it holds something else."""
    if isinstance(value, Strategy):
        return _strategy(value)
    if isinstance(value, tuple) and all(isinstance(one, Strategy) for one in value):
        return [_strategy(one) for one in value]
    return None
