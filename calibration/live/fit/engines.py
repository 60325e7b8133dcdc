"""Which engine entry of the catalogue speaks for a server observed."""

from __future__ import annotations

import re

from calibration.live.recording import Observation
from calibration.live.server.names import UNKNOWN
from models import catalog
from models.schema import ModelError

OPTION = "--engine"
CPU = "_cpu"
PROCESSORS = re.compile(r"\b(cpu|xeon|epyc|ryzen|graviton|threads)\b", re.IGNORECASE)
"""Words of which one is in the title of a processor and in none of a GPU's."""

Version = tuple[int, ...]


def engine_for(observation: Observation, hardware: str) -> str:
    """The engine entry that speaks for a server.

    It is the newest that is not newer than the server and was written of its minor version, or of
    versions on both sides of it.

    Parameters
    ----------
    observation : Observation
    hardware : str
        GPU or profile it is said to run on: an engine may have entries of its own for processors.

    Raises
    ------
    ModelError
        If the server did not say what it is, or there is no such entry; key ``--engine``.
    """
    server = observation.about.get("server") or {}
    name, version = str(server.get("engine") or UNKNOWN), str(server.get("version") or "")
    if name == UNKNOWN:
        message = f"must be given, the server did not say what it is; for example {_newest('')}"
        raise ModelError(message, OPTION)
    stem = name + CPU if _is_processor(hardware) and _entries(name + CPU) else name
    found, own = _numbers(version), _entries(stem)
    covering = {
        entry: first
        for entry in own
        for first, last in [_range(entry)]
        if first <= found and last[:2] >= found[:2]
    }
    if not found or not covering:
        known = ", ".join(own) or _newest(re.sub(r"\W", "_", name))
        what = f"there is no entry for {name} {version}".rstrip()
        if own and not found:
            what = f"the server is {name}, and did not say of which version"
        raise ModelError(f"{what}: choose the nearest of {known}", OPTION)
    return max(covering, key=covering.__getitem__)


def _entries(stem: str) -> list[str]:
    """Entries by the version of an engine, oldest first."""
    own = re.compile(rf"{re.escape(stem)}_[\d.]+")
    return sorted(filter(own.fullmatch, catalog.names("engines")), key=_written_of)


def _written_of(entry: str) -> Version:
    """The version in the name of an entry."""
    return _numbers(entry.rpartition("_")[2])


def _newest(stem: str) -> str:
    """The newest entry of every engine, or of those whose name begins so if there are any."""
    newest: dict[str, str] = {}
    for name in sorted(catalog.names("engines"), key=_written_of):
        newest[re.sub(r"_[\d.]+$", "", name)] = name
    alike = [name for engine, name in newest.items() if stem and engine.startswith(stem)]
    return ", ".join(sorted(alike or newest.values()))


def _range(entry: str) -> tuple[Version, Version]:
    """First and last version an entry is of."""
    first, _, last = catalog.engine(entry).versions.partition(" - ")
    return _numbers(first), _numbers(last or first)


def _numbers(version: str) -> Version:
    """Leading numbers of a version: ``0.32.0rc1`` counts as 0.32.0."""
    start = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, start[1].split("."))) if start else ()


def _is_processor(hardware: str) -> bool:
    """Whether a profile is of a processor; a GPU of the catalogue is none.

    A name that is nothing is refused where the device is looked up, under its key.
    """
    if hardware in catalog.names("hardware"):
        return False
    try:
        own = catalog.profile(hardware).accelerator
    except ModelError:
        return False
    return own is not None and bool(PROCESSORS.search(f"{own.name.replace('_', ' ')} {own.title}"))
