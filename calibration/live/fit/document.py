"""The scenario that ``calibrate live`` writes: the server, its requests, what it ran."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from calibration.acceptance.command import readable
from calibration.live.fit.prepared import Prepared
from calibration.live.replay import STREAM, domain, domains_file, write_trace
from models import catalog
from models.acceptance_file import AcceptanceFile
from models.strict_yaml import InputError
from sim.analysis.metrics import joined
from sim.scenario.dump import to_yaml
from sim.scenario.load import load_scenario
from sim.scenario.overrides import locate, parse_override, replaced
from sim.scenario.schema import BASELINE
from sim.tables import Columns

LOADS = {"concurrency": ("closed_loop", "users"), "rate_per_s": ("poisson", "rate_per_s")}
"""Arrivals of a scenario that load a server as a stage did, and the key of the load."""


def checked(found: Prepared) -> None:
    """Refuse, before anything is fitted, what would make no scenario afterwards.

    Raises
    ------
    InputError, ModelError
        If an option, or a strategy beside the others, is wrong.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder, stem = Path(scratch), "live"
        text, _ = acceptance_text(found)
        (folder / f"{stem}_acceptance.yaml").write_text(text, "utf-8")
        kinds, _ = write_requests(found, folder, stem)
        path = folder / f"{stem}.yaml"
        path.write_text(to_yaml(document(found, stem, kinds, fitted=False)), "utf-8")
        try:
            load_scenario(path)
        except InputError as error:
            raise InputError("the scenario to write", None, error.key, error.message) from None


def document(
    found: Prepared, stem: str, text: str | dict[str, Any], fitted: bool = True
) -> dict[str, Any]:
    """The scenario: the server as calibrated, the requests it was sent, what it ran.

    Parameters
    ----------
    found : Prepared
    stem : str
        Of the names of the files beside it.
    text : str or dict
        Domain of the requests as a stream states it.
    fitted : bool
        On the fitted device and engine beside it; else on those known before.
    """
    base = found.deployed.document()
    base["model"]["transformer"] = _anywhere(base["model"]["transformer"], "transformers")
    whole = {**base, **_workload(found, stem, text), "strategies": _strategies(found, stem)}
    for one in map(parse_override, found.deployed.overrides):
        whole = replaced(whole, locate(whole, one.key), one.value)
    hardware, engine = dict(whole["hardware"]), dict(whole["engine"])
    if fitted:
        hardware = _fitted(found, hardware, f"{stem}_profile.yaml")
        engine["name"] = f"{stem}_engine.yaml"
    else:
        engine["name"] = _anywhere(engine["name"], "engines")
        if "profile" in hardware:
            hardware["profile"] = _anywhere(hardware["profile"], "profiles")
    return {**whole, "hardware": hardware, "engine": engine}


def _strategies(found: Prepared, stem: str) -> list[dict[str, Any]]:
    """Plain decoding, and what the servers ran with the acceptance they told."""
    strategies: list[dict[str, Any]] = [{"kind": BASELINE}]
    for label, block in found.blocks.items():
        if block["kind"] == BASELINE:
            continue
        told = found.acceptance[label]
        own = dict(told.block)
        if told.file is not None:
            own["file"], own["entry"] = f"{stem}_acceptance.yaml", label
        draft = (
            {"draft": _anywhere(str(block["draft"]), "transformers")} if "draft" in block else {}
        )
        acceptance = {"acceptance": own} if own else {}
        strategies.append({**block, **draft, "label": label, **acceptance})
    return strategies


def _workload(found: Prepared, stem: str, text: str | dict[str, Any]) -> dict[str, Any]:
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
    requests = len(sent(found)["id"])
    workload = {"arrivals": arrivals, "requests": requests, "sampling": found.deployed.sampling}
    return {"workload": {**workload, "streams": [stream]}, "run": {"warmup": 0}, **vary}


def _anywhere(name: str, section: str) -> str:
    """A name of the catalogue as it is, a file by its whole path."""
    known = name in catalog.names(section) or not Path(name).exists()
    return name if known else str(Path(name).resolve())


def _fitted(found: Prepared, hardware: dict[str, Any], profile: str) -> dict[str, Any]:
    """The device by its name and its fitted profile, number of GPUs and prices as stated."""
    name = found.serving.accelerator.name
    gpu = {"gpu": name} if name in catalog.names("hardware") else {}
    rest = {k: v for k, v in hardware.items() if k not in ("gpu", "profile")}
    return {**gpu, "profile": profile} | rest


def sent(found: Prepared) -> Columns:
    """The answered requests of the stages fitted, one stage after another; of a trace the first."""
    cases = found.cases
    if "rate_scale" in cases[0].stage.point:
        cases = cases[:1]
    tables, begin_s = [], 0.0
    for case in cases:
        shift_s = begin_s - float(case.columns["arrival_s"].min())
        times = {key: case.columns[key] + shift_s for key in ("arrival_s", "finish_s")}
        tables.append({**case.columns, **times})
        begin_s = float(np.nanmax(times["finish_s"]))
    return joined(tables)


def write_requests(
    found: Prepared, folder: Path, stem: str
) -> tuple[str | dict[str, Any], list[str]]:
    """Write lengths and kinds of text of the requests: their domain as stated, and the files."""
    lengths, requests = folder / f"{stem}_lengths.csv", sent(found)
    write_trace(lengths, requests)
    kinds, names = domain(requests, lengths), [lengths.name]
    if isinstance(kinds, dict):
        kinds["file"] = domains_file(lengths).name
        names.append(kinds["file"])
    return kinds, names


def acceptance_text(found: Prepared) -> tuple[str, bool]:
    """Fits of all strategies that told their steps, as one file; empty where none did.

    Returns
    -------
    str
    bool
        Whether the recorded requests are in it: a file over 1 MB could not be read back.
    """
    entries, files = {}, list[AcceptanceFile]()
    for label, told in found.acceptance.items():
        if told.file is not None:
            files.append(told.file)
            entries[label] = next(iter(told.file.entries.values()))
    if not files:
        return "", True
    return readable(files[0].model_copy(update={"entries": entries}))
