"""What ``speccast compare`` leaves behind: its figure, and whether it is good enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.live.compare.comparison import Comparison
from calibration.live.recording import ABOUT, STAGES, TABLE, Observation
from models.strict_yaml import InputError
from sim.interrupts import held
from sim.staging import obstacle, staged

KINDS = (".svg", ".png")


def check_out(file: str, observation: Observation, scenario: Path) -> Path:
    """Refuse a place for the figure that cannot be written, before anything is simulated.

    Raises
    ------
    InputError
        If its name ends in none of ``KINDS``, or it would replace something that is read.
    """
    path = Path(file)
    inputs = [scenario, *(observation.folder / name for name in (ABOUT, TABLE, STAGES))]
    problem: str | None = f"must end in .svg or .png, got '{file}'"
    if path.suffix in KINDS:
        problem = obstacle(path.parent, [path.name], *inputs)
    if problem is not None:
        raise InputError(file, None, "--figure", problem)
    return path


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Draw a comparison; the file appears only when complete."""
    from sim.analysis import live_plots, plots

    picture = plots.save(live_plots.compared(document), path.suffix[1:])
    with staged(path.parent) as staging:
        (staging / path.name).write_bytes(picture)
        with held():
            (staging / path.name).replace(path)


def failure(comparison: Comparison, most_percent: float) -> str | None:
    """Why predictions are farther off than that on average; None where they are not."""
    if comparison.overall is None:
        return "nothing was both measured and predicted, so --fail-over fails"
    if comparison.left_out:
        return f"{comparison.left_out[0]} is not compared, so --fail-over fails"
    if comparison.missing:
        point, metric = comparison.missing[0]
        where = " ".join(f"{key}={value}" for key, value in point.items())
        return f"no {metric} is predicted at {where}, so --fail-over fails"
    off = 100 * comparison.overall
    if off <= most_percent:
        return None
    return f"{off:.1f} % off on average, more than the {most_percent:g} % of --fail-over"
