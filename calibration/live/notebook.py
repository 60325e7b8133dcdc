"""What notebooks call of a live server: what was observed, calibrated, and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from calibration.live import recording
from calibration.live.compare import stages as comparing
from calibration.live.compare.comparison import Comparison
from calibration.live.fit import files
from calibration.live.fit.command import Asked
from calibration.live.fit.command import calibrate as fit_to
from calibration.live.fit.report import WHAT, rows
from calibration.live.observe import report
from sim.analysis import live_plots
from sim.notebook import Shown, plain, show
from sim.scenario.load import load_scenario

MEASURES = {
    "TTFT ms": ("ttft_s_mean", 1e3),
    "TPOT ms": ("tpot_s_mean", 1e3),
    "tok/s": ("tok_per_s", 1.0),
    "tau": ("tau", 1.0),
}
"""Columns of a comparison: metric, and factor to the unit shown."""


def observed(folder: str | Path) -> pd.DataFrame:
    """What a server did under each load of an observation, a line a load.

    Raises
    ------
    InputError
        If the folder is none that ``speccast observe`` or ``calibrate import`` left.
    """
    seen = recording.read(Path(folder))
    said = report.document(seen.about, seen.stages, seen.runs)
    lines = [
        {
            "at": row["name"],
            "repeats": row["repeats"],
            "requests": row["requests"],
            "failed": row["requests"] - row["finished"] - row["unfinished"],
            "TTFT ms": 1e3 * (row["ttft_s"]["mean"] or float("nan")),
            "TPOT ms": 1e3 * (row["tpot_s"]["mean"] or float("nan")),
            "tok/s": row["tok_per_s"],
            "tau": row["tau"],
        }
        for row in said["stages"]
    ]
    return plain(pd.DataFrame(lines).set_index("at"), 2)


def calibrate(
    folder: str | Path,
    out: str | Path,
    *,
    hardware: str | Path,
    transformer: str,
    engine: str | None = None,
    tp: int = 1,
    loads: Sequence[float] = (),
) -> pd.DataFrame:
    """Fit device and engine to an observation, and write a scenario of it.

    Parameters
    ----------
    folder : path-like
        What ``speccast observe`` left.
    out : path-like
        File of the scenario; profile, engine and lengths go beside it.
    hardware : str or path-like
        GPU or profile: catalogue name, or a profile file.
    transformer : str
        Catalogue name, or a ``config.json``.
    engine : str, optional
        Default what the server said it is.
    tp : int
        Tensor-parallel GPUs a replica.
    loads : sequence of float
        Concurrencies or rates to fit on; default all.

    Returns
    -------
    DataFrame
        A line a constant: before, live, standard error; no live value where the observation does
        not tell it.
    """
    asked = Asked(
        (Path(folder),), str(hardware), transformer, tp, engine, loads=tuple(map(float, loads))
    )
    path = files.check_out(str(out), files.inputs_of(asked))
    found = fit_to(asked)
    files.write(found, path, "calibration.live.notebook.calibrate")
    lines = [
        {
            "constant": " ".join(filter(None, (what, unit and f"[{unit}]"))),
            "before": row.before,
            "live": row.after if row.estimate.identified else None,
            "standard error": row.error if row.estimate.identified else None,
        }
        for row in rows(found)
        for what, unit in [WHAT[row.estimate.name]]
    ]
    return plain(pd.DataFrame(lines).set_index("constant"), 3)


def compare(folder: str | Path, scenario: str | Path) -> Comparison:
    """An observation beside its prediction, with the acceptance its requests had."""
    seen = recording.read(Path(folder))
    return comparing.compare(seen, load_scenario(scenario), repeat=True)


def table(comparison: Comparison) -> pd.DataFrame:
    """Measured and predicted, a line a load."""
    lines = []
    for row in comparison.rows:
        line: dict[tuple[str, str], object] = {}
        for title, (metric, factor) in MEASURES.items():
            score = row.scores[metric]
            pairs = (("measured", score.measured), ("predicted", score.predicted))
            line |= {(title, k): None if v is None else factor * v for k, v in pairs}
        lines.append(line)
    names = [" ".join(f"{k}={v}" for k, v in row.point.items()) for row in comparison.rows]
    return plain(pd.DataFrame(lines, index=pd.Index(names, name="at")), 2)


def picture(comparison: Comparison) -> Shown:
    """The same over the load, repeats as dots, with the band of the prediction."""
    return show(live_plots.compared(comparison.document()))
