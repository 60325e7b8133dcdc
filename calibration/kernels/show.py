"""A profile and the rows it rests on, looked at again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from calibration.kernels.output import measured_rows
from models import catalog
from models.hardware import Accelerator
from models.profile import Profile
from models.strict_yaml import InputError
from sim.staging import obstacle, staged

PICTURES = ("svg", "png")


class Shown(NamedTuple):
    """A profile, its device, and the rows it was fitted to where they lie beside it."""

    profile: Profile
    accelerator: Accelerator
    rows: pd.DataFrame | None

    @property
    def note(self) -> str:
        """How to get the figure."""
        if self.rows is not None:
            return "--figure FILE.svg draws measured against fitted times."
        made = self.profile.provenance
        command = made.command if made else "speccast calibrate kernels --system ... --engine ..."
        return (
            "No figure: the rows it was fitted to do not lie beside it. "
            f"`{command} --out FILE.yaml` writes both."
        )


def load(name: str) -> Shown:
    """Read a profile by its catalogue name or file, and its rows.

    Raises
    ------
    ModelError, InputError
        If there is none, or it or its rows are wrong.
    """
    profile = catalog.profile(name)
    accelerator = profile.accelerator or catalog.hardware(profile.device)
    shipped = name in catalog.names("profiles")
    return Shown(
        profile, accelerator, None if shipped else measured_rows(profile, Path(name).parent)
    )


def as_json(shown: Shown) -> dict[str, Any]:
    """What ``calibrate show --json`` prints: the profile as plain data."""
    return shown.profile.model_dump(mode="json", exclude_none=True)


def check_figure(file: str, shown: Shown) -> Path:
    """Refuse a picture that cannot be drawn or written.

    Raises
    ------
    InputError
        If the rows are missing, the name does not end in ``.svg`` or ``.png``, or it cannot be
        written there.
    """
    path = Path(file)
    problem = None
    if path.suffix.removeprefix(".") not in PICTURES:
        problem = f"must end in {' or '.join(f'.{kind}' for kind in PICTURES)}, got '{file}'"
    elif shown.rows is None:
        problem = shown.note
    problem = problem or obstacle(path.parent, [path.name])
    if problem is not None:
        raise InputError("", None, "--figure", problem)
    return path


def draw(shown: Shown, path: Path) -> None:
    """Draw measured against fitted times; the same rows give the same bytes.

    Raises
    ------
    ModelError
        If the profile has no constants for any of the rows.
    """
    from calibration.kernels.panels import panels
    from sim.analysis import plots
    from sim.analysis.kernel_plots import measured_against_fitted

    assert shown.rows is not None
    figure = measured_against_fitted(panels(shown.rows, shown.profile, shown.accelerator))
    picture = plots.save(figure, path.suffix.removeprefix("."))
    with staged(path.parent) as scratch:
        (scratch / path.name).write_bytes(picture)
        (scratch / path.name).replace(path)
