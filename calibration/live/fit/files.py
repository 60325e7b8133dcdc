"""The files ``calibrate live`` leaves: a scenario ready to run, and what it names beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibration.kernels.profile_file import write_profile
from calibration.live.fit import constants as calibrated
from calibration.live.fit.command import Calibrated
from calibration.live.replay import STREAM, domain, domains_file, in_order, write_trace
from models import catalog
from models.acceptance_file import AcceptanceFile, dump
from models.strict_yaml import InputError
from sim.analysis.metrics import finished, joined, select
from sim.interrupts import held
from sim.scenario.dump import to_yaml
from sim.scenario.load import load_scenario
from sim.scenario.overrides import locate, parse_override, replaced
from sim.scenario.schema import BASELINE
from sim.staging import obstacle, staged
from sim.tables import Columns

SUFFIXES = (".yaml", ".yml")

LOADS = {"concurrency": ("closed_loop", "users"), "rate_per_s": ("poisson", "rate_per_s")}
"""Arrivals of a scenario that load a server as a stage did, and the key of the load."""


def check_out(file: str, folders: Sequence[Path]) -> Path:
    """Refuse a place for the scenario that cannot be written, before anything is fitted.

    Raises
    ------
    InputError
        If the name does not end in ``.yaml``, or what lies there may not be replaced.
    """
    path = Path(file)
    if path.suffix not in SUFFIXES:
        raise InputError(file, None, "--out", "must end in .yaml: a scenario ready to run")
    inputs = [folder for folder in folders if folder.exists()]
    problem = obstacle(path.parent, names_of(path), *inputs)
    if problem is not None:
        raise InputError(file, None, "--out", problem)
    return path


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

        profile = calibrated.fitted_profile(serving, fit, cases, f"{stem}_profile", command)
        write_profile(profile, scratch / f"{stem}_profile.yaml")
        names.append(f"{stem}_profile.yaml")
        if profile.table is not None:
            calibrated.write_kernel_rows(serving, fit, cases, scratch / profile.table)
            names.append(profile.table)
        engine = calibrated.fitted_engine(serving, fit, cases, f"{stem}_engine")
        text(f"{stem}_engine.yaml", calibrated.engine_text(engine))
        if told := _acceptance_text(found):
            text(f"{stem}_acceptance.yaml", told)
        lengths, sent = scratch / f"{stem}_lengths.csv", _requests(found)
        write_trace(lengths, sent)
        kinds = domain(sent, lengths)
        if isinstance(kinds, dict):
            kinds["file"] = domains_file(lengths).name
            names.append(kinds["file"])
        names.append(lengths.name)
        said = _head(found) + to_yaml(document(found, stem, kinds))
        (scratch / path.name).write_text(said, "utf-8")
        load_scenario(scratch / path.name)
        with held():
            for name in names_of(path):
                (path.parent / name).unlink(missing_ok=True)
            for name in names:
                (scratch / name).replace(path.parent / name)
    return [path.parent / name for name in names]


def document(found: Calibrated, stem: str, text: str | dict[str, Any]) -> dict[str, Any]:
    """The scenario: the server as calibrated, the requests it was sent, what it ran.

    Parameters
    ----------
    found : Calibrated
    stem : str
        Of the names of the files beside it.
    text : str or dict
        Domain of the requests as a stream states it.
    """
    base = found.deployed.document()
    base["model"]["transformer"] = _anywhere(base["model"]["transformer"])
    whole = {**base, **_workload(found, stem, text), "strategies": _strategies(found, stem)}
    for one in map(parse_override, found.deployed.overrides):
        whole = replaced(whole, locate(whole, one.key), one.value)
    whole["hardware"] = _fitted(whole["hardware"], f"{stem}_profile.yaml")
    whole["engine"]["name"] = f"{stem}_engine.yaml"
    return whole


def _strategies(found: Calibrated, stem: str) -> list[dict[str, Any]]:
    """Plain decoding, and what the servers ran with the acceptance they told."""
    strategies: list[dict[str, Any]] = [{"kind": BASELINE}]
    for label, block in found.blocks.items():
        if block["kind"] == BASELINE:
            continue
        told = found.acceptance[label]
        own = dict(told.block)
        if told.file is not None:
            own["file"], own["entry"] = f"{stem}_acceptance.yaml", label
        draft = {"draft": _anywhere(str(block["draft"]))} if "draft" in block else {}
        acceptance = {"acceptance": own} if own else {}
        strategies.append({**block, **draft, "label": label, **acceptance})
    return strategies


def _workload(found: Calibrated, stem: str, text: str | dict[str, Any]) -> dict[str, Any]:
    """The requests at the loads fitted; how they are run, and the loads to go through."""
    lengths = {"kind": "trace", "file": f"{stem}_lengths.csv", "format": "csv"}
    stream: dict[str, Any] = {"name": STREAM, "domain": text}
    points = [case.stage.point for case in found.cases]
    key = next(iter(points[0]))
    loads = sorted({point[key] for point in points if key in point})
    vary: dict[str, Any] = {}
    if key == "rate_scale":
        arrivals: dict[str, Any] = lengths
    else:
        stream["lengths"] = {**lengths, "order": "recorded"}
        kind, axis = LOADS[key]
        arrivals = {"kind": kind, axis: loads[-1]}
        vary = {"vary": {f"workload.arrivals.{axis}": loads}} if len(loads) > 1 else {}
    requests = len(_requests(found)["id"])
    workload = {"arrivals": arrivals, "requests": requests, "sampling": found.deployed.sampling}
    return {"workload": {**workload, "streams": [stream]}, "run": {"warmup": 0}, **vary}


def _anywhere(name: str) -> str:
    """A name of the catalogue as it is, a file by its whole path."""
    known = name in catalog.names("transformers") or not Path(name).exists()
    return name if known else str(Path(name).resolve())


def _fitted(hardware: dict[str, Any], profile: str) -> dict[str, Any]:
    """The device by its fitted profile, GPUs and prices as stated."""
    return {"profile": profile} | {k: v for k, v in hardware.items() if k not in ("gpu", "profile")}


def _requests(found: Calibrated) -> Columns:
    """All answered requests, stage by stage; of a trace those of its first stage alone."""
    runs = [run.columns for one in found.observations for run in one.runs]
    stages = [stage for one in found.observations for stage in one.stages]
    if "rate_scale" in stages[0].point:
        runs = runs[:1]
    return joined([in_order(select(columns, finished(columns))) for columns in runs])


def _acceptance_text(found: Calibrated) -> str:
    """Fits of all strategies that told their steps, as one file; empty where none did."""
    entries, files = {}, list[AcceptanceFile]()
    for label, told in found.acceptance.items():
        if told.file is not None:
            files.append(told.file)
            entries[label] = next(iter(told.file.entries.values()))
    return dump(files[0].model_copy(update={"entries": entries})) if files else ""


def _head(found: Calibrated) -> str:
    return (
        "# A server as it was observed: the requests it was sent, on the device and engine fitted\n"
        f"# to it ({calibrated.Loads.of(found.cases)}).\n"
        "# Other strategies, loads and lengths are yours to try here.\n"
    )
