"""The files ``calibrate live`` leaves: a scenario ready to run, and what it names beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibration.kernels.profile_file import write_profile
from calibration.live.fit import constants as calibrated
from calibration.live.fit.command import Asked, Calibrated
from calibration.live.fit.document import acceptance_text, document, write_requests
from models.strict_yaml import InputError
from sim.interrupts import held
from sim.scenario.dump import to_yaml
from sim.scenario.load import load_scenario
from sim.scenario.overrides import parse_override
from sim.staging import obstacle, staged

SUFFIXES = (".yaml", ".yml")

HEAD = "# A server as it was observed: the requests it was sent, on the device and engine fitted\n"
"""First line of a scenario written here, by which it is known."""


def inputs_of(asked: Asked) -> list[Path]:
    """What a calibration reads and must not replace: recordings and files of the user's own."""
    given = [one.value for one in map(parse_override, asked.overrides)]
    names = [asked.hardware, asked.transformer, asked.engine, *given]
    return [*asked.folders, *(Path(name) for name in names if isinstance(name, str))]


def check_out(file: str, inputs: Sequence[Path]) -> Path:
    """Refuse a place for the scenario that cannot be written, before anything is fitted.

    Parameters
    ----------
    file : str
    inputs : sequence of Path
        Not to be replaced; those that are no files do not count.

    Raises
    ------
    InputError
        If the name does not end in ``.yaml``, or what lies there, or beside it, may not be
        replaced: only the files of an earlier calibration may.
    """
    path = Path(file)
    if path.suffix not in SUFFIXES:
        raise InputError(file, None, "--out", "must end in .yaml: a scenario ready to run")
    there = [one for one in inputs if _exists(one)]
    problem = obstacle(path.parent, names_of(path), *there) or _foreign(path)
    if problem is not None:
        raise InputError(file, None, "--out", problem)
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _foreign(path: Path) -> str | None:
    """What would be replaced that no calibration left, if anything."""
    if path.exists():
        with path.open("rb") as file:
            if file.readline(len(HEAD)) == HEAD.encode():
                return None
    kept = next((one for one in map(path.with_name, names_of(path)) if one.exists()), None)
    if kept is None:
        return None
    return f"would replace '{kept}', which no `speccast calibrate live` left"


def names_of(path: Path) -> list[str]:
    """Files it may write: scenario, profile and its rows, engine, acceptance, lengths."""
    stem = path.stem
    own = [f"{stem}_profile.yaml", f"{stem}_profile.parquet", f"{stem}_engine.yaml"]
    more = [f"{stem}_acceptance.yaml", f"{stem}_lengths.csv", f"{stem}_domains.csv"]
    return [path.name, *own, *more]


def write(found: Calibrated, path: Path, command: str) -> list[Path]:
    """Write scenario, profile, engine, acceptance and lengths; all appear together.

    Returns
    -------
    list of Path
        The files, the scenario first.
    """
    stem, serving, fit, cases = path.stem, found.serving, found.fit, found.cases
    names = [path.name]
    with staged(path.parent) as scratch:

        def text(name: str, content: str) -> None:
            (scratch / name).write_text(content, encoding="utf-8")
            names.append(name)

        origin = calibrated.Origin(found.origin, found.date, command)
        profile = calibrated.fitted_profile(serving, fit, cases, f"{stem}_profile", origin)
        write_profile(profile, scratch / f"{stem}_profile.yaml")
        names.append(f"{stem}_profile.yaml")
        if profile.table is not None:
            calibrated.write_kernel_rows(serving, fit, scratch / profile.table)
            names.append(profile.table)
        engine = calibrated.fitted_engine(serving, fit, cases, f"{stem}_engine", origin)
        text(f"{stem}_engine.yaml", calibrated.engine_text(engine))
        told, whole = acceptance_text(found)
        if told:
            text(f"{stem}_acceptance.yaml", told)
        kinds, made = write_requests(found, scratch, stem)
        names += made
        said = _head(found, whole) + to_yaml(document(found, stem, kinds))
        (scratch / path.name).write_text(said, "utf-8")
        load_scenario(scratch / path.name)
        with held():
            for name in names_of(path):
                (path.parent / name).unlink(missing_ok=True)
            for name in names:
                (scratch / name).replace(path.parent / name)
    return [path.parent / name for name in names]


def _head(found: Calibrated, whole: bool) -> str:
    bare = (
        "" if whole else "# Steps of single requests are left out of its acceptance: over 1 MB.\n"
    )
    return (
        f"{HEAD}# to it ({calibrated.Loads.of(found.cases)}).\n{bare}"
        "# Other strategies, loads and lengths are yours to try here. Users go on and on;\n"
        "# stages as they were measured are predicted by `speccast compare`.\n"
    )
