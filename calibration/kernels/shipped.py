"""The profiles of the catalogue, and how they come from NVIDIA's tables."""

from __future__ import annotations

import datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from calibration.kernels import aiconfigurator
from calibration.kernels.check import flag
from calibration.kernels.fits.held_out import Score
from calibration.kernels.profile import fit_profile
from calibration.kernels.profile_file import write_profile
from models import catalog
from models.profile import Profile, Provenance


class Shipped(NamedTuple):
    """One profile, from the tables of one engine version on one system.

    It is named like its GPU, or like both where ``gpu`` runs it under that engine alone.
    """

    name: str
    system: str
    engine: str
    version: str
    gpu: str = ""

    @property
    def device(self) -> str:
        """Catalogue name of its GPU."""
        return self.gpu or self.name


class Calibrated(NamedTuple):
    """One profile written: its file, the profile itself, and the errors of its fits."""

    path: Path
    profile: Profile
    scores: list[Score]


def shipped() -> list[Shipped]:
    """Profiles of the catalogue that come from NVIDIA's tables."""
    return [
        Shipped("h100_sxm", "h100_sxm", "vllm", "0.24.0"),
        Shipped("h200_sxm", "h200_sxm", "vllm", "0.24.0"),
        Shipped("a100_80g_sxm", "a100_sxm", "vllm", "0.14.0"),
        Shipped("l40s", "l40s", "vllm", "0.24.0"),
        Shipped("b200_sxm", "b200_sxm", "vllm", "0.24.0"),
    ]


def of_engines() -> list[Shipped]:
    """Profiles of one engine alone, whose kernels are its own; beside those of ``shipped``."""
    return [
        Shipped("h100_sxm_trtllm", "h100_sxm", "trtllm", "1.3.0rc20", "h100_sxm"),
        Shipped("h200_sxm_trtllm", "h200_sxm", "trtllm", "1.3.0rc20", "h200_sxm"),
    ]


def calibrate(one: Shipped, *, date: str, speccast: str) -> tuple[Profile, list[Score]]:
    """Profile of one GPU from NVIDIA's tables, and the errors of its fits.

    Parameters
    ----------
    one : Shipped
    date, speccast : str
        Day and version that stand in the profile.

    Raises
    ------
    ModelError
        If there are no such tables.
    RuntimeError
        If the package of the tables is not installed.
    """
    accelerator = catalog.hardware(one.device)
    rows = flag(aiconfigurator.read(one.system, one.engine, one.version), accelerator)
    package = f"{aiconfigurator.PACKAGE} {version(aiconfigurator.PACKAGE)}"
    return fit_profile(
        rows,
        accelerator,
        name=one.name,
        engine=f"{one.engine} {one.version}",
        date=date,
        source=f"NVIDIA {package}, kernel tables of {one.system}, {one.engine} {one.version}",
        provenance=Provenance(
            package=package,
            speccast=speccast,
            command=f"speccast calibrate kernels --system {one.system}"
            f" --engine {one.engine}/{one.version}",
        ),
    )


def calibrate_shipped(
    folder: str | Path, *, speccast: str, date: str | None = None
) -> list[Calibrated]:
    """Write every profile of the catalogue into a folder.

    Parameters
    ----------
    folder : path
    speccast : str
        Version that stands in the profiles.
    date : str, optional
        Day that stands in them, by default today.
    """
    day = date or datetime.date.today().isoformat()
    written = []
    for one in (*shipped(), *of_engines()):
        profile, scores = calibrate(one, date=day, speccast=speccast)
        path = Path(folder) / f"{one.name}.yaml"
        write_profile(profile, path)
        written.append(Calibrated(path, profile, scores))
    return written
