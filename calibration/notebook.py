"""What notebooks call of calibration: kernels timed here, and predictions beside measured runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd

from calibration.kernels import command, output, panels, report, show
from calibration.kernels.device.run import Options, calibrate_device
from calibration.kernels.show import Shown
from calibration.validation import command as validation
from calibration.validation import score
from models.schema import ModelError
from sim.analysis import kernel_plots
from sim.notebook import Shown as Picture
from sim.notebook import plain
from sim.notebook import show as shown

BUDGET_S = 60.0


def profile(name: str) -> Shown:
    """A profile by its catalogue name or file, and the rows it rests on.

    Raises
    ------
    ModelError, InputError
        If there is none, or it or its rows are wrong.
    """
    return show.load(name)


def constants(found: Shown) -> pd.DataFrame:
    """Every constant of a profile: value, standard error, and whether it was measured."""
    lines = [
        {
            "constant": one.key,
            "value": one.constant.value,
            "standard error": one.constant.se,
            "basis": "assumed" if one.constant.source.startswith("assumed") else "measured",
        }
        for one in report.constants(found.profile)
    ]
    return pd.DataFrame(lines).set_index("constant")


def time_kernels(out: str | Path, recorded: str | Path, device: str = "cpu") -> str:
    """Time a few kernels on this machine for a minute at most, and fit a profile to them.

    Parameters
    ----------
    out : path-like
        File of the profile; its rows go beside it.
    recorded : path-like
        Profile to take where torch is not installed, timed earlier and elsewhere.
    device : str
        ``cpu`` or ``cuda``.

    Returns
    -------
    str
        The file of the profile, as ``hardware.profile`` takes it.
    """
    if importlib.util.find_spec("torch") is None:
        return str(Path(recorded).resolve())
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = calibrate_device(device, None, 1, path, Options(quick=True, budget_s=BUDGET_S))
    fitted = command.fit_device(measured, path, f"--device {device} --quick")
    output.write(fitted.profile, fitted.rows, path)
    measured.partial.unlink(missing_ok=True)
    return str(path.resolve())


def picture(found: Shown) -> Picture:
    """Measured against fitted times of the kernels of a profile.

    Raises
    ------
    ModelError
        If the rows it was fitted to do not lie beside it.
    """
    if found.rows is None:
        raise ModelError(found.note, "profile")
    drawn = panels.panels(found.rows, found.profile, found.accelerator)
    return shown(kernel_plots.measured_against_fitted(drawn))


def compare(names: str, band: bool = True) -> pd.DataFrame:
    """Predictions beside what others measured, for the cases whose names begin so.

    Parameters
    ----------
    names : str
        Beginning of the names, as ``speccast validate --list`` prints them.
    band : bool
        Simulate both ends of the band too.

    Returns
    -------
    DataFrame
        A line a figure: ``measured`` and ``predicted`` in SI units, ends of the band, and how far
        off the prediction is [%].

    Raises
    ------
    ModelError
        If there is no such case.
    """
    cases = [case for case in validation.select() if case.name.startswith(names)]
    if not cases:
        raise ModelError(f"there is no case whose name begins with '{names}'", "names")
    frame = score.table(validation.run(cases, band, jobs=1).outcomes)
    frame["off %"] = 100 * frame["relative"]
    kept = frame.set_index(["case", "metric"])[["measured", "predicted", "lo", "hi", "off %"]]
    return plain(kept, 3)
