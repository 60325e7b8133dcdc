"""Whole recorded runs in the simulator: time per token and speedup by strategy and domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.forecast.cases import overrides
from calibration.decoding.forecast.recorded import Recorded
from calibration.decoding.forecast.scenario import WHAT_IF, Chosen, Deployed
from calibration.validation.score import MARGIN
from sim import experiment
from sim.progress import OnProgress
from sim.scenario.load import load_scenario

DRAWS = 20
"""Replications of a run whose acceptance is drawn."""


def frame(
    recorded: Recorded, deployed: Deployed, chosen: Chosen, on_progress: OnProgress | None = None
) -> pd.DataFrame:
    """Measured and predicted runs.

    Returns
    -------
    DataFrame
        A row a strategy and domain: ``strategy``, ``domain``, ``requests``, and with the
        prefixes ``measured_``, ``replayed_`` (recorded acceptance) and ``fitted_`` (drawn from the
        fit) ``tau``, ``tpot_s`` [s], ``ttft_s`` [s] and ``speedup`` over plain decoding
        (NaN where it has answered other prompts).
    """
    labels = (BASELINE, *chosen.blocks)
    pairs = [
        (label, domain)
        for label in labels
        for domain in recorded.domains
        if len(recorded.of(label, domain))
    ]
    rows = []
    for place, (label, domain) in enumerate(pairs):
        if on_progress is not None:
            on_progress("forecast", place, len(pairs))
        row: dict[str, Any] = {"strategy": label, "domain": domain}
        row |= _measured(recorded, label, domain)
        for name, replay in (("replayed", True), ("fitted", False)):
            if label != BASELINE or replay:
                row |= _predicted(recorded, deployed, chosen, (label, domain), name, replay)
        rows.append(row)
    found = pd.DataFrame(rows)
    plain = found["strategy"] == BASELINE
    for what in ("tau", "tpot_s", "ttft_s"):
        column = f"fitted_{what}"
        found[column] = found.get(column, float("nan"))
        found.loc[plain, column] = found.loc[plain, f"replayed_{what}"]
    return _with_speedups(recorded, found)


def _measured(recorded: Recorded, label: str, domain: str) -> Iterator[tuple[str, Any]]:
    own = recorded.of(label, domain)
    steps = own["n_steps"].sum()
    yield "requests", len(own)
    yield "measured_tau", 1 + own["accepted"].sum() / steps if steps else None
    yield "measured_tpot_s", own["tpot_s"].mean()
    yield "measured_ttft_s", own["ttft_s"].mean()


def _predicted(
    recorded: Recorded,
    deployed: Deployed,
    chosen: Chosen,
    which: tuple[str, str],
    name: str,
    replay: bool,
) -> Iterator[tuple[str, Any]]:
    sets = overrides(recorded, deployed, chosen, *which, replay=replay)
    sets += ["run.band=false", *([] if replay else [f"run.replications={DRAWS}"])]
    loaded = load_scenario(recorded.folder / WHAT_IF, sets)
    row = experiment.run(loaded).document["rows"][-1]
    yield f"{name}_tau", row["tau"]
    yield f"{name}_tpot_s", row["tpot_s"]["mean"]
    yield f"{name}_ttft_s", row["ttft_s"]["mean"]


def _with_speedups(recorded: Recorded, found: pd.DataFrame) -> pd.DataFrame:
    """Plain decoding of the same prompts, at its own lengths, over each strategy."""
    plain = found[found["strategy"] == BASELINE].set_index("domain")
    pairs = zip(found["strategy"], found["domain"], strict=True)
    told = np.array([label != BASELINE and recorded.complete(label, d) for label, d in pairs])
    for name in ("measured", "replayed", "fitted"):
        column = f"{name}_tpot_s"
        base = found["domain"].map(plain[column])
        found[f"{name}_speedup"] = (base / found[column]).where(told)
    return found


def sides(found: pd.DataFrame, name: str = "fitted") -> tuple[int, int]:
    """Speedups told on the right side of 1, of those measured more than 5 % from it."""
    told = found[(found["measured_speedup"] - 1).abs() > MARGIN]
    right = (told["measured_speedup"] > 1) == (told[f"{name}_speedup"] > 1)
    return int(right.sum()), len(told)
