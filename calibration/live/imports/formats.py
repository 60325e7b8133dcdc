"""Which tool left a result, by what is in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from calibration.live.imports import aiperf, guidellm, table, vllm
from calibration.live.imports.choices import Format
from calibration.live.imports.fields import Fields, documents, read_text
from calibration.live.imports.requests import Load
from models.strict_yaml import InputError

USUAL = ("benchmarks.json", "profile_export.jsonl")
"""What tools call the file, in a folder given in its place."""

_IS: dict[str, Callable[[Any], bool]] = {
    "vllm": vllm.is_result,
    "guidellm": guidellm.is_result,
    "aiperf": aiperf.is_result,
}


def read(path: Path, wanted: Format = "auto") -> list[Load]:
    """The stages a result holds.

    Parameters
    ----------
    path : Path
        File, or the folder a tool left.
    wanted : str
        Its format, or ``auto``.

    Raises
    ------
    InputError
        If it is of no known format, or not of the one wanted; as the formats.
    """
    path = _file(path)
    if wanted == "csv" or (wanted == "auto" and read_text(path).lstrip()[:1] not in ("{", "[")):
        return table.read(path)
    found = documents(path)
    if not found:
        raise InputError(str(path), None, "", "is empty")
    name = _recognised(path, found[0][1], wanted)
    each = [Fields(data, str(path), line) for line, data in found]
    if name == "aiperf":
        return aiperf.read(path, each)
    reading = vllm.read if name == "vllm" else guidellm.read
    return [load for one in each for load in reading(one)]


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [path / name for name in USUAL if (path / name).is_file()]
    if len(found) > 1:
        names = " and ".join(USUAL)
        raise InputError(str(path), None, "", f"is a folder with {names}: name one of them")
    if not found:
        names = " or ".join(USUAL)
        raise InputError(str(path), None, "", f"is a folder without {names}: name the file")
    return found[0]


def _recognised(path: Path, document: Any, wanted: Format) -> str:
    if aiperf.is_summary(document):
        needs = "is the summary of AIPerf: give the profile_export.jsonl beside it"
        raise InputError(str(path), None, "", needs)
    name = next((name for name, is_it in _IS.items() if is_it(document)), None)
    if name is None or wanted not in ("auto", name):
        known = _listed([one for one in get_args(Format) if one != "auto"])
        what = f"is no result of {known if wanted == 'auto' else wanted}"
        raise InputError(str(path), None, "", what + (f" but of {name}" if name else ""))
    return name


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
