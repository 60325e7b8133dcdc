"""What ``calibrate live`` does, between its options and its text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibration.live import recording
from calibration.live.fit.deployed import (
    Accepted,
    Deployed,
    accepted,
    sampling_of,
    strategy_block,
)
from calibration.live.fit.engines import engine_for
from calibration.live.fit.estimate import Fit, fit
from calibration.live.fit.knobs import Serving
from calibration.live.fit.stages import Case, serving_of
from calibration.live.recording import Observation, Stage
from models.schema import ModelError
from models.strict_yaml import InputError, show
from sim.analysis.metrics import finished
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
class Calibrated:
    """A fit with all it takes to write it down.

    Attributes
    ----------
    deployed : Deployed
    serving : Serving
        Before the fit.
    fit : Fit
    cases : tuple of Case
        Stages it was fitted to.
    observations : tuple of Observation
    blocks : dict
        Strategies served, by label, without acceptance.
    acceptance : dict
        What the servers told of it, by label.
    """

    deployed: Deployed
    serving: Serving
    fit: Fit
    cases: tuple[Case, ...]
    observations: tuple[Observation, ...]
    blocks: dict[str, dict[str, Any]]
    acceptance: dict[str, Accepted]


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
        If an observation or an option is wrong, or no stage has an answered request.
    """
    observations = tuple(recording.read(folder) for folder in asked.folders)
    if asked.strategy is not None and len(observations) > 1:
        raise ModelError("goes with one observation; several each say their own", "--strategy")
    engine = asked.engine or engine_for(observations[0], asked.hardware)
    described = Deployed(
        *(asked.hardware, asked.transformer, asked.tp, engine, asked.overrides),
        sampling=sampling_of(observations[0]),
    )
    deployed = described.with_kv_cache(observations[0])
    cases: list[Case] = []
    blocks: dict[str, dict[str, Any]] = {}
    told: dict[str, Accepted] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for place, one in enumerate(observations):
            label, block = one.label, strategy_block(one, asked.strategy, asked.k)
            if label in blocks:
                label = f"{label} {place + 1}"
            folder = Path(scratch) / str(place)
            folder.mkdir()
            file = folder / "acceptance.yaml"
            told[label] = accepted(one, block, file, str(file))
            blocks[label] = block
            cases += _cases(one, deployed, _with(block, told[label], label), asked.loads, folder)
        if not cases:
            raise ModelError(_no_stage(observations, asked.loads), "--loads")
        scenario = deployed.scenario([{"kind": BASELINE}])
        serving = serving_of(scenario, cases[0].deployment)
        fitted = fit(cases, serving, on_progress)
    return Calibrated(deployed, serving, fitted, tuple(cases), observations, blocks, told)


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
        if (not loads or _load(stage) in loads) and finished(run.columns).any()
    ]


def _load(stage: Stage) -> float:
    return float(next(iter(stage.point.values())))


def _no_stage(observations: Sequence[Observation], loads: Sequence[float]) -> str:
    there = sorted({_load(stage) for one in observations for stage in one.stages})
    known = ", ".join(f"{load:g}" for load in there)
    got = f", got {', '.join(f'{load:g}' for load in loads)}" if loads else ""
    return f"no such stage with an answered request; there are {known or 'none'}{got}"
