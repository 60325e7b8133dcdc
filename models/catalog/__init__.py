"""The catalogue: hardware, models, engines, profiles, residuals, acceptance, as YAML data."""

from __future__ import annotations

import copy
import difflib
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from models.engine import Engine
from models.hardware import Accelerator
from models.profile import Profile, profile_of
from models.residuals import Residuals
from models.schema import ModelError
from models.strict_yaml import Document, load_yaml, read_yaml, show, validate
from models.transformer import Transformer, from_hf_config

SECTIONS = ("hardware", "transformers", "engines", "profiles", "residuals", "acceptance")
_ONE = {"transformers": "transformer", "engines": "engine", "profiles": "profile"}


class Row(NamedTuple):
    """One line of ``speccast catalog``."""

    name: str
    title: str
    source: str


@cache
def names(section: str) -> list[str]:
    """Names of a section, sorted.

    Raises
    ------
    ModelError
        If there is no such section.
    """
    if section not in SECTIONS:
        raise ModelError(_unknown("catalogue section", section, list(SECTIONS)))
    folder = resources.files(__package__).joinpath(section)
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name[-5:] == ".yaml")


def entry(section: str, name: str) -> dict[str, Any]:
    """Raw data of one entry; the caller may change it.

    Raises
    ------
    ModelError
        If the name is unknown; the nearest name is suggested.
    """
    data: dict[str, Any] = copy.deepcopy(_document(section, name).data)
    return data


@cache
def hardware(name: str) -> Accelerator:
    """Accelerator by name; ModelError when unknown."""
    return validate(Accelerator, _document("hardware", name))


def transformer(name: str) -> Transformer:
    """Transformer by name, or from a ``config.json`` or the folder that holds one.

    Raises
    ------
    ModelError
        If the name is unknown, or the configuration cannot be read.
    """
    if name not in names("transformers") and _is_path(name):
        return from_hf_config(name)
    return _transformer(name)


@cache
def _transformer(name: str) -> Transformer:
    return validate(Transformer, _document("transformers", name))


def engine(name: str) -> Engine:
    """Engine version by name, or from a YAML file of the user's own.

    Raises
    ------
    ModelError
        If the name is unknown.
    InputError
        If the user's file is wrong.
    """
    if name not in names("engines") and _is_path(name):
        return validate(Engine, read_yaml(name))
    return _engine(name)


@cache
def _engine(name: str) -> Engine:
    return validate(Engine, _document("engines", name))


def profile(name: str) -> Profile:
    """Profile by name, or from a YAML file of the user's own.

    Raises
    ------
    ModelError
        If the name is unknown.
    InputError
        If the user's file is wrong.
    """
    if name not in names("profiles") and _is_path(name):
        return profile_of(read_yaml(name))
    return _profile(name)


@cache
def _profile(name: str) -> Profile:
    return profile_of(_document("profiles", name))


def table_file(name: str, profile: Profile) -> Path | None:
    """File of the measured rows beside the profile of this name; None where it has none."""
    if profile.table is None:
        return None
    if name not in names("profiles") and _is_path(name):
        return Path(name).parent / profile.table
    return Path(str(resources.files(__package__))) / "profiles" / profile.table


@cache
def residuals() -> Residuals:
    """Residuals of all engine families together."""
    entries = [validate(Residuals, _document("residuals", name)) for name in names("residuals")]
    return Residuals(
        steps=tuple(row for one in entries for row in one.steps),
        prefill=tuple(row for one in entries for row in one.prefill),
    )


def describe(section: str) -> list[Row]:
    """Name, title and source of every entry of a section."""
    rows = []
    for name in names(section):
        data = _document(section, name).data
        rows.append(Row(name, data.get("title") or data.get("device") or name, data["source"]))
    return rows


@cache
def _document(section: str, name: str) -> Document:
    known = names(section)
    if name not in known:
        near = _engine_before(name) if section == "engines" else None
        raise ModelError(_unknown(_ONE.get(section, section), name, known, near))
    file = resources.files(__package__).joinpath(section, f"{name}.yaml")
    return load_yaml(file.read_text(encoding="utf-8"), f"models/catalog/{section}/{name}.yaml")


def _is_path(name: str) -> bool:
    path = Path(name)
    if len(path.parts) > 1 or path.suffix in (".json", ".yaml", ".yml"):
        return True
    try:
        return name != "" and path.is_dir()
    except OSError:
        return False


def _unknown(what: str, name: str, known: list[str], near: str | None = None) -> str:
    close = [near] if near else difflib.get_close_matches(name, known, n=1)
    rest = f"did you mean '{close[0]}'?" if close else f"must be one of {', '.join(known)}"
    return f"unknown {what} {show(name)}; {rest}"


_VERSION = re.compile(r"[_ -]*v?(\d+(?:\.\d+)*)(?:\.?[a-z]+\d*)?")


def _engine_before(name: str) -> str | None:
    """Entry of the same engine that covers or precedes a version, the newest if none is asked."""
    first = {known: _first_version(known) for known in names("engines")}
    families = {re.sub(r"_v?\d.*", "", known) for known in first}
    family = max((f for f in families if name.lower().startswith(f)), key=len, default=None)
    if family is None:
        return None
    asked = name[len(family) :].lower()
    version = _VERSION.fullmatch(asked)
    if version is None and asked.strip("_ -"):
        return None
    own = [known for known in first if re.fullmatch(rf"{family}(_v?\d.*)?", known)]
    before = [n for n in own if version is None or first[n] <= _numbers(version[1])]
    return max(before, key=first.__getitem__) if before else min(own, key=first.__getitem__)


def _first_version(name: str) -> tuple[int, ...]:
    """First version an engine entry covers."""
    return _numbers(re.split(r"[^\d.]", _document("engines", name).data["versions"])[0])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)
