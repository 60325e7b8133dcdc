"""The two files of a calibration: the profile, and beside it the rows it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from calibration.kernels import rows
from calibration.kernels.fits.select import others_flagged
from calibration.kernels.profile_file import write_profile
from models.profile import Profile
from models.strict_yaml import InputError
from sim.interrupts import held
from sim.staging import obstacle, staged

SUFFIXES = (".yaml", ".yml")


def check_out(file: str, inputs: Sequence[Path] = ()) -> Path:
    """Refuse a place for a profile that cannot be written, before anything is measured.

    Parameters
    ----------
    file : str
        As the user gave it.
    inputs : sequence of Path
        Files that are read; neither the profile nor its table may replace one.

    Raises
    ------
    InputError
        If the name does not end in ``.yaml``, or a file there is one of the inputs or none to
        replace.
    """
    path = Path(file)
    there = [given for given in inputs if given.exists()]
    if path.suffix not in SUFFIXES:
        raise InputError(file, None, "--out", "must end in .yaml: the profile; rows go beside it")
    problem = obstacle(path.parent, [path.name, table_of(path).name], *there)
    if problem is not None:
        raise InputError(file, None, "--out", problem)
    return path


def table_of(path: Path) -> Path:
    """File of the measured rows beside a profile."""
    return path.with_suffix(".parquet")


def write(profile: Profile, measured: pd.DataFrame, path: Path) -> list[Path]:
    """Write a profile and the rows it rests on; both appear together, or neither.

    Returns
    -------
    list of Path
        The files.
    """
    table = table_of(path)
    with staged(path.parent) as scratch:
        rows.write(others_flagged(measured), scratch / table.name)
        write_profile(profile, scratch / path.name)
        with held():
            (scratch / table.name).replace(table)
            (scratch / path.name).replace(path)
    return [path, table]


def measured_rows(profile: Profile, folder: Path) -> pd.DataFrame | None:
    """Rows a profile was fitted to, if it names a table and that lies in the folder.

    Raises
    ------
    InputError
        If the table is there but cannot be read.
    """
    if profile.table is None or not (folder / profile.table).exists():
        return None
    return rows.read(folder / profile.table)
