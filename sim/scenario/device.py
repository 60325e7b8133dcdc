"""The device a scenario runs on: its numbers, the constants of its kernels, the measured rows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models import catalog
from models.hardware import Accelerator
from models.kernel_table import KernelTable
from models.profile import Profile, TableWhere
from models.schema import Basis, ModelError
from models.strict_yaml import InputError
from sim.scenario.checks import blame
from sim.scenario.schema import Hardware


class Device(NamedTuple):
    """An accelerator with what is known of its kernels.

    Attributes
    ----------
    table : KernelTable or None
        Measured rows; None where none are asked for, or none are of use.
    """

    accelerator: Accelerator
    profile: Profile
    table: KernelTable | None

    @property
    def basis(self) -> Basis:
        """``validated`` when the constants were measured on this device, else ``extrapolated``."""
        return "validated" if self.profile.device == self.accelerator.name else "extrapolated"


def device_of(hardware: Hardware, family: str = "") -> Device:
    """Resolve the GPU, or in its place the device that a profile was measured on.

    Parameters
    ----------
    hardware : Hardware
    family : str
        Engine family, which may bring its own kernels.

    Raises
    ------
    ModelError
        If a name is unknown, neither GPU nor profile is named, or measured rows are asked for
        that are not there; with the dotted key at fault.
    InputError
        If a file of the user's own is wrong.
    """
    asked = None
    if hardware.profile is not None:
        with blame("hardware.profile"):
            asked = catalog.profile(hardware.profile)
    accelerator = _accelerator(hardware, asked)
    if asked is None:
        with blame("hardware.gpu"):
            asked = catalog.profile(accelerator.profile_for(family))
    name = hardware.profile or asked.name
    return Device(accelerator, asked, _table(hardware, accelerator, asked, name))


def _accelerator(hardware: Hardware, profile: Profile | None) -> Accelerator:
    own = profile.accelerator if profile is not None else None
    if own is not None and hardware.gpu in (None, own.name):
        return own
    if hardware.gpu is not None:
        with blame("hardware.gpu"):
            return catalog.hardware(hardware.gpu)
    if profile is None:
        raise ModelError(
            "is missing: name a GPU, or in hardware.profile the profile of a device", "hardware.gpu"
        )
    with blame("hardware.profile"):
        return catalog.hardware(profile.device)


def _table(
    hardware: Hardware, accelerator: Accelerator, profile: Profile, name: str
) -> KernelTable | None:
    """Measured rows, where the scenario or the profile wants them and they are of this device."""
    file, demanded = catalog.table_file(name, profile), hardware.kernels == "table"
    if demanded and (file is None or profile.device != accelerator.name):
        raise ModelError(
            f"profile {profile.name} has no measured rows of {accelerator.name}; `speccast "
            "calibrate kernels --system ... --out mine.yaml` writes a profile with them, "
            f"got '{hardware.kernels}'",
            "hardware.kernels",
        )
    wanted = demanded or (hardware.kernels == "auto" and profile.table_where != TableWhere())
    if not wanted or file is None or profile.device != accelerator.name:
        return None
    return _read(file, name)


def _read(file: Path, profile: str) -> KernelTable:
    from sim.kernel_rows import kernel_table

    try:
        return kernel_table(file)
    except InputError as error:
        without = "`hardware.kernels: roofline` does without"
        raise InputError(profile, None, "table", f"{error}; {without}") from None
