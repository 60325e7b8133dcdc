"""Compare recorded decoding runs with what the simulator makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.forecast import cases, constants, report, runs, scenario, steps
from calibration.decoding.forecast.recorded import Recorded, read
from calibration.decoding.places import seen_here
from models import acceptance_file, catalog
from models.kernels import Kernels
from models.schema import ModelError
from models.step_time import StepTime
from sim.progress import OnProgress
from sim.scenario.build import build
from sim.scenario.device import device_of
from sim.scenario.load import load_scenario
from sim.scenario.schema import Hardware
from sim.setup import prepare


@dataclass(frozen=True)
class Comparison:
    """Recorded runs beside their prediction.

    Attributes
    ----------
    constants : dict
        Host constants taken from plain decoding [us].
    steps : DataFrame
        A row a step, see `steps.frame`.
    cells : DataFrame
        A row a strategy and domain: mean steps, see `steps.cells`.
    prefills : DataFrame
        A row a prompt, see `steps.prefills`.
    runs : DataFrame
        A row a strategy and domain: whole runs, see `runs.frame`.
    left_out : dict
        Strategies not forecast, and why.
    files : tuple of Path
        Scenario and cases written.
    """

    constants: dict[str, float]
    steps: pd.DataFrame
    cells: pd.DataFrame
    prefills: pd.DataFrame
    runs: pd.DataFrame
    left_out: dict[str, str]
    files: tuple[Path, ...]

    def text(self, width: int, colour: bool = False) -> str:
        """Tables for a terminal."""
        return report.text(self, width, colour)

    def as_json(self) -> dict[str, Any]:
        """Plain data: constants, errors, a row a strategy and domain."""
        return report.as_json(self)


def compare(
    folder: Path, profile: str, acceptance: Path, on_progress: OnProgress | None = None
) -> Comparison:
    """Predict the runs in a folder and lay the measured ones beside them.

    Writes ``whatif.yaml``, ``cases.csv`` and the traces both use into the folder. Of the runs only
    prompts, lengths, acceptance, and host times of plain decoding enter a prediction.

    Parameters
    ----------
    folder : Path
        Holds ``run.json``, ``requests.parquet`` and ``steps.parquet``.
    profile : str
        Of the device the runs were on: a file of ``speccast calibrate device``.
    acceptance : Path
        A file of ``speccast calibrate acceptance``, fitted to these runs.
    on_progress : callable, optional
        As for `experiment.run`.

    Raises
    ------
    InputError, ModelError
        In one line, for files that are missing, wrong or do not fit each other.
    """
    recorded, file = read(folder), acceptance_file.read(acceptance)
    chosen = scenario.choose(recorded, file)
    if not chosen.blocks:
        why = "; ".join(f"{label}: {reason}" for label, reason in chosen.left_out.items())
        raise ModelError(f"no strategy of {folder} can be forecast ({why or 'none has run'})")
    device = device_of(Hardware(profile=profile))
    kernels = Kernels(device.accelerator, device.profile, device.table)
    vocab = catalog.transformer(seen_here(folder, recorded.target)).vocab
    own = constants.of_runs(recorded, kernels, vocab)
    deployed = scenario.Deployed(profile, acceptance, own)
    files = (
        scenario.write(recorded, deployed, chosen),
        cases.write(recorded, deployed, chosen),
    )
    times = step_times(recorded, files[0])
    single = steps.frame(recorded, times)
    return Comparison(
        own,
        single,
        steps.cells(single),
        steps.prefills(recorded, times),
        runs.frame(recorded, deployed, chosen, on_progress),
        chosen.left_out,
        files,
    )


def step_times(recorded: Recorded, what_if: Path) -> dict[str, StepTime]:
    """Step times of every strategy of a scenario, by label."""
    loaded = load_scenario(what_if).points[0].scenario
    deployment = build(loaded)
    domains = loaded.workload.domain_names
    return {
        strategy.name: prepare(deployment, strategy, domains).step_time
        for strategy in loaded.strategies
        if strategy.name in (BASELINE, *recorded.labels)
    }
