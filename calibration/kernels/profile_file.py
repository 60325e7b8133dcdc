"""A profile as YAML that reads like the shipped ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from models.profile import VERSION, Profile

HEADLINE = ("version", "name", "device", "engine", "date", "source")
WIDTH = 120
EXACT = 1e6
"""Whole numbers below this are written without a decimal point."""


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as YAML; the same profile gives the same bytes."""
    Path(path).write_text(profile_text(profile), encoding="utf-8")


def profile_text(profile: Profile) -> str:
    """YAML of a profile: what equals its default is left out."""
    data = {"version": VERSION, **profile.model_dump(exclude_defaults=True)}
    sections = [{key: data.pop(key) for key in HEADLINE}, *({key: data[key]} for key in data)]
    return "\n".join(
        yaml.dump(_readable(section), Dumper=_Dumper, sort_keys=False, width=WIDTH)
        for section in sections
    )


class _Row(dict[str, Any]):
    """A table on one line."""


class _Numbers(list[Any]):
    """A list on one line."""


class _Dumper(yaml.SafeDumper):
    """Plain data, rows and lists of numbers on one line."""


def _one_line(dumper: yaml.SafeDumper, value: _Row | _Numbers) -> yaml.Node:
    if isinstance(value, _Row):
        return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(_Row, _one_line)
_Dumper.add_representer(_Numbers, _one_line)


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        if any(isinstance(inner, dict) for inner in value):
            return [_Row(_readable(inner)) for inner in value]
        return _Numbers(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    return value
