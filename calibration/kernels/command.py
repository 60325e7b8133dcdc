"""What the verb ``calibrate`` does, between its options and its text."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from calibration.kernels import aiconfigurator, check, plain, rows, vidur
from calibration.kernels.device.run import Calibrated
from calibration.kernels.fits.held_out import Score
from calibration.kernels.input_columns import nearest
from calibration.kernels.output import table_of
from calibration.kernels.profile import fit_profile
from calibration.kernels.shipped import calibrate_shipped, shipped
from models import catalog
from models.hardware import Accelerator
from models.profile import Profile, Provenance
from models.schema import ModelError
from models.strict_yaml import InputError
from sim.manifest import speccast_version
from sim.staging import staged

FOLDER = Path(catalog.__file__).parent / "profiles"


class Source(NamedTuple):
    """Which timed kernels to fit: a system and engine of the tables, or files and their GPU."""

    system: str | None
    engine: str | None
    files: tuple[Path, ...] = ()
    gpu: str | None = None

    @property
    def names_rows(self) -> bool:
        """Whether it says what to fit; otherwise there are only tables to choose from."""
        return bool(self.files) or (self.system is not None and self.engine is not None)

    @property
    def command(self) -> str:
        """The command line that names it."""
        if self.files:
            given = "".join(f" --rows {path.name}" for path in self.files)
            return f"speccast calibrate kernels{given} --gpu {self.gpu}"
        return f"speccast calibrate kernels --system {self.system} --engine {self.engine}"


class Fitted(NamedTuple):
    """A profile, errors of the forms that were tried, and all rows with their flags."""

    profile: Profile
    scores: Sequence[Score]
    rows: pd.DataFrame


def check_options(
    source: Source, *, shipped: bool, out: str | None, date: str | None, as_json: bool
) -> None:
    """Refuse options of ``calibrate kernels`` that do not go together.

    Raises
    ------
    InputError
        That names the option.
    """
    choices = {"--rows": source.files, "--system": source.system, "--engine": source.engine}
    given = choices | {"--gpu": source.gpu, "--out": out, "--json": as_json}
    strange = [name for name, value in given.items() if value]
    chosen = [name for name in choices if name in strange]
    wrong, message = "", ""
    if shipped and strange:
        wrong, message = "--shipped", f"excludes {' and '.join(strange)}"
    elif source.files and len(chosen) > 1:
        wrong, message = "--rows", f"excludes {' and '.join(chosen[1:])}"
    elif source.files and source.gpu is None:
        wrong, message = "--gpu", "--rows needs the GPU they were timed on"
    elif source.gpu is not None and not source.files:
        wrong, message = "--gpu", "goes with --rows; --system names its own"
    elif not (shipped or source.names_rows) and (out or date):
        wrong = "--out" if out else "--date"
        message = "there is nothing to fit: give --system and --engine, or --rows and --gpu"
    if wrong:
        raise InputError("", None, wrong, message)


def fit(source: Source, out: Path | None = None, date: str | None = None) -> Fitted:
    """Read, check and fit timed kernels.

    Parameters
    ----------
    source : Source
    out : Path, optional
        File of the profile, which gives it its name and a table beside it; without one it has the
        name of the accelerator.
    date : str, optional
        Of the profile; default today.

    Raises
    ------
    InputError
        If a file, or an option that should say what it was timed on, is wrong.
    ModelError
        If there are no such tables, or too few usable rows.
    RuntimeError
        If the tables are not installed.
    """
    accelerator, timed = _read(source)
    checked = check.flag(timed, accelerator)
    if source.files:
        check.refuse_wrong_gpu(checked, accelerator)
    engine = source.engine and source.engine.replace("/", " ")
    package = "timings of one's own"
    if not source.files:
        package = f"{aiconfigurator.PACKAGE} {version(aiconfigurator.PACKAGE)}"
    return _fitted(checked, accelerator, out, _date(date), package, source.command, engine)


def fit_device(measured: Calibrated, out: Path, options: str) -> Fitted:
    """Fit a profile to the kernels timed on the device at hand.

    Parameters
    ----------
    measured : Calibrated
    out : Path
        File of the profile.
    options : str
        Those of the command line, for the record.
    """
    checked = check.flag(measured.rows, measured.accelerator)
    return _fitted(
        *(checked, measured.accelerator, out, _date(None), "torch on the device"),
        f"speccast calibrate device {options}",
        own_shapes=True,
    )


def _fitted(
    checked: pd.DataFrame,
    accelerator: Accelerator,
    out: Path | None,
    date: str,
    package: str,
    command: str,
    engine: str | None = None,
    own_shapes: bool = False,
) -> Fitted:
    if engine is None:
        engines = checked[["engine", "version"]].drop_duplicates().agg(" ".join, axis=1)
        engine = ", ".join(sorted({name.strip() for name in engines} - {""})) or "not said"
    profile, scores = fit_profile(
        checked,
        accelerator,
        name=accelerator.name if out is None else out.stem,
        engine=engine,
        date=date,
        source=f"kernels of {accelerator.title}: {package}, {engine}",
        provenance=Provenance(package=package, speccast=speccast_version(), command=command),
        table=None if out is None else table_of(out).name,
        own_shapes=own_shapes,
    )
    return Fitted(profile, scores, checked)


def write_shipped(date: str | None = None) -> list[Path]:
    """Write the profiles of the catalogue anew, without rows beside them.

    Returns
    -------
    list of Path
        The files.
    """
    with staged(FOLDER) as scratch:
        written = calibrate_shipped(scratch, speccast=speccast_version(), date=_date(date))
        return [path.replace(FOLDER / path.name) for path, _, _ in written]


def _date(asked: str | None) -> str:
    if asked is None:
        return datetime.date.today().isoformat()
    try:
        return datetime.date.fromisoformat(asked).isoformat()
    except ValueError:
        raise InputError("", None, "--date", f"must be as in 2026-01-31, got '{asked}'") from None


def _read(source: Source) -> tuple[Accelerator, pd.DataFrame]:
    if source.files:
        assert source.gpu is not None
        accelerator = catalog.hardware(source.gpu)
        parts = [_file(path, accelerator.name) for path in source.files]
        return accelerator, rows.join(parts)
    assert source.system is not None and source.engine is not None
    engine, separator, release = source.engine.partition("/")
    if not separator:
        raise InputError("", None, "--engine", f"must be as in vllm/0.24.0, got '{source.engine}'")
    timed = aiconfigurator.read(source.system, engine, release)
    return accelerator_of(source.system), timed


def accelerator_of(system: str) -> Accelerator:
    """Accelerator of a system of the tables; ModelError where the catalogue has none."""
    name = _accelerator_name(system)
    if name is None:
        raise ModelError(f"the catalogue has no accelerator for the tables of '{system}'")
    return catalog.hardware(name)


def _accelerator_name(system: str) -> str | None:
    named = {one.system: one.name for one in shipped()}
    name = named.get(system, system)
    return name if name in catalog.names("hardware") else None


def _file(path: Path, gpu: str) -> pd.DataFrame:
    """Rows of our own columns or of Vidur's; a row of our own may name its device and source."""
    if path.suffix != ".parquet" and _is_vidur(path):
        return vidur.read(path, gpu)
    read = plain.read(path)
    for device in read["device"].unique():
        if _accelerator_name(device) not in (None, gpu):
            message = f"rows were timed on '{device}', but --gpu says '{gpu}'"
            raise InputError(str(path), None, "device", message)
    named = {"device": gpu, "source": str(path)}
    return read.assign(**{key: read[key].replace("", name) for key, name in named.items()})


def _is_vidur(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return "time_stats." in file.readline()
    except OSError:
        return False


class Tables(NamedTuple):
    """Tables of an engine version on a system, and the operations they time."""

    system: str
    engine: str
    operations: Sequence[str]


def listing(system: str | None, engine: str | None) -> list[Tables]:
    """Tables that a profile can be fitted to.

    Parameters
    ----------
    system, engine : str, optional
        List only those of a system, or of an engine (``vllm``) or its version (``vllm/0.24.0``).

    Raises
    ------
    ModelError
        If there are none.
    RuntimeError
        If the tables are not installed.
    """
    systems = [system] if system is not None else aiconfigurator.systems()
    found = [
        Tables(name, version, operations)
        for name in systems
        for version, operations in aiconfigurator.versions(name).items()
        if _accelerator_name(name) is not None and {"gemm", "attention"} <= set(operations)
    ]
    if not found and system is not None:
        accelerator_of(system)
        raise ModelError(f"no kernel tables of '{system}' that a profile can be fitted to")
    chosen = [one for one in found if engine in (None, one.engine, one.engine.split("/")[0])]
    if not chosen and engine is not None:
        there = list(dict.fromkeys(one.engine for one in found))
        hint = nearest(engine, there)
        raise ModelError(f"no kernel tables of '{engine}'; there are {', '.join(there)}{hint}")
    return chosen


def as_json(fitted: Fitted) -> dict[str, Any]:
    """What ``calibrate kernels --json`` prints: ``profile``, ``held_out`` and ``flagged``."""
    return {
        "profile": fitted.profile.model_dump(mode="json", exclude_none=True),
        "held_out": [score._asdict() for score in fitted.scores],
        "flagged": check.flag_summary(fitted.rows).to_dict("records"),
    }
