"""What ``calibrate live`` does, between its options and its text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from calibration.live import recording
from calibration.live.fit.deployed import (
    Accepted,
    Deployed,
    accepted,
    sampling_of,
    strategy_block,
    summed,
)
from calibration.live.fit.document import checked
from calibration.live.fit.engines import engine_for
from calibration.live.fit.estimate import Fit, fit
from calibration.live.fit.prepared import Prepared, belonging
from calibration.live.fit.stages import Case, serving_of
from calibration.live.recording import Observation, Stage
from calibration.live.replay import usable
from calibration.live.stated import contradiction, drafts_told, stated_strategy
from models import catalog
from models.schema import ModelError
from models.strict_yaml import InputError, show
from sim.scenario.schema import BASELINE


class Asked(NamedTuple):
    """One calibration.

    Attributes
    ----------
    folders : tuple of Path
        Observations, of one server each.
    hardware, transformer : str
    tp : int
    engine : str or None
        Default what the server said it is.
    strategy : str or None
        What the server ran, where the observation does not say.
    k : int or None
    loads : tuple of float
        Concurrencies or rates to fit on; empty: all.
    overrides : tuple of str
    """

    folders: tuple[Path, ...]
    hardware: str
    transformer: str
    tp: int = 1
    engine: str | None = None
    strategy: str | None = None
    k: int | None = None
    loads: tuple[float, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calibrated(Prepared):
    """A fit with all it takes to write it down.

    Attributes
    ----------
    fit : Fit
    """

    fit: Fit


def loads_of(text: str) -> tuple[float, ...]:
    """Loads as the command line lists them: ``1,4``.

    Raises
    ------
    InputError
        If one is no number above 0.
    """
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < load < float("inf") for load in found):
        message = f"must be numbers above 0 as in 1,4, got {show(text)}"
        raise InputError("", None, "--loads", message)
    return found


def calibrate(asked: Asked, on_progress: Callable[[int], None] = lambda _: None) -> Calibrated:
    """Fit device and engine constants to recorded stages.

    Raises
    ------
    InputError, ModelError
        If an observation or an option is wrong, observations are not of one server, or no stage
        has an answered request.
    """
    observations = tuple(recording.read(folder) for folder in asked.folders)
    belonging(observations)
    if asked.strategy is not None and len(observations) > 1:
        raise ModelError("goes with one observation; several each say their own", "--strategy")
    engine = asked.engine or engine_for(observations[0], asked.hardware)
    described = Deployed(
        *(asked.hardware, asked.transformer, asked.tp, engine, asked.overrides),
        sampling=sampling_of(observations[0]),
    )
    with tempfile.TemporaryDirectory() as scratch:
        before = _prepared(asked, observations, described, Path(scratch))
        checked(before)
        fitted = fit(before.cases, before.serving, on_progress)
    return Calibrated(**vars(before), fit=fitted)


def _prepared(
    asked: Asked, observations: tuple[Observation, ...], described: Deployed, scratch: Path
) -> Prepared:
    first = observations[0]
    deployed = described.with_kv_cache(first, strategy_block(first, asked.strategy, asked.k))
    target = catalog.transformer(deployed.transformer).name
    cases: list[Case] = []
    blocks: dict[str, dict[str, Any]] = {}
    told: dict[str, Accepted] = {}
    for place, one in enumerate(observations):
        block = strategy_block(one, asked.strategy, asked.k)
        _bear_out(one, block)
        restated = asked.strategy is not None or asked.k is not None
        label = _label(one, block, restated)
        if label in blocks:
            label = f"{label} {place + 1}"
        folder = scratch / str(place)
        folder.mkdir()
        file = folder / "acceptance.yaml"
        told[label] = accepted(one, block, file, str(file), target)
        blocks[label] = block
        cases += _cases(one, deployed, _with(block, told[label], label), asked.loads, folder)
    missing = [load for load in asked.loads if load not in map(_load, (c.stage for c in cases))]
    if missing or not cases:
        where = "--loads" if missing else "requests"
        raise ModelError(_no_stage(observations, missing), where)
    serving = serving_of(deployed.scenario([{"kind": BASELINE}]), cases[0].deployment)
    return Prepared(deployed, serving, tuple(cases), observations, blocks, told)


def _bear_out(one: Observation, block: dict[str, Any]) -> None:
    """Refuse a strategy that the server's own counters contradict.

    Raises
    ------
    InputError
        With what to state instead.
    """
    every = (one.about.get("server") or {}).get("engine") == "vllm"
    wrong = contradiction(block, drafts_told(summed(one), every_position=every))
    if wrong:
        raise InputError(str(one.folder), None, "strategy", f"the server {wrong}")


def _label(one: Observation, block: dict[str, Any], restated: bool) -> str:
    """As recorded; as the simulator calls it where it is stated anew, or would be plain decoding's.

    Raises
    ------
    InputError
        If it is no strategy; key ``--strategy``.
    """
    if not restated and (block["kind"] == BASELINE or one.label != BASELINE):
        return one.label
    return stated_strategy(yaml.safe_dump(block, default_flow_style=True, width=10**6), None)[0]


def _with(block: dict[str, Any], told: Accepted, label: str) -> dict[str, Any]:
    acceptance = {"acceptance": told.block} if told.block else {}
    return {**block, "label": label, **acceptance}


def _cases(
    one: Observation,
    deployed: Deployed,
    block: dict[str, Any],
    loads: Sequence[float],
    folder: Path,
) -> list[Case]:
    texts = sorted({str(text) for run in one.runs for text in run.columns["domain"]})
    scenario = deployed.scenario([block], texts)
    return [
        Case.of(scenario, scenario.strategies[0], stage, run, folder)
        for stage, run in zip(one.stages, one.runs, strict=True)
        if (not loads or _load(stage) in loads) and usable(stage, run)
    ]


def _load(stage: Stage) -> float:
    return float(next(iter(stage.point.values())))


def _no_stage(observations: Sequence[Observation], missing: Sequence[float]) -> str:
    there = sorted(
        {
            _load(stage)
            for one in observations
            for stage, run in zip(one.stages, one.runs, strict=True)
            if usable(stage, run)
        }
    )
    known = ", ".join(f"{load:g}" for load in there)
    got = f", got {', '.join(f'{load:g}' for load in missing)}" if missing else ""
    return f"no such stage with an answered request; there are {known or 'none'}{got}"
