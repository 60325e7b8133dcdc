"""How a sweep scales from one process to two: what ``make bench`` measures."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from models.strict_yaml import load_yaml
from sim.planning.sweep.whole import Wanted, sweep
from sim.scenario.load import Expansion, expand
from sim.scenario.vary import MAX_SWEEP

TEXT = """\
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 10}
  streams:
    - prompt_tokens: {kind: lognormal, mean: 500, cv: 0.8}
      output_tokens: {kind: lognormal, mean: 250, cv: 0.7}
strategies: [{kind: autoregressive}]
run: {band: false}
"""


def scaling(points: int = 1000, requests: int = 1000) -> tuple[float, float]:
    """Time the same sweep on one process and on two.

    Parameters
    ----------
    points : int
    requests : int
        Of each point.

    Returns
    -------
    tuple of float
        Wall time on one process and on two [s], from checking the points to the finished table.
        Scaling is the first over twice the second.
    """
    seeds = ", ".join(map(str, range(points)))
    document = load_yaml(f"{TEXT}vary: {{run.seed: [{seeds}]}}\n", "scaling")
    expansion = expand(document, [f"workload.requests={requests}"], MAX_SWEEP)
    return _seconds(expansion, 1), _seconds(expansion, 2)


def _seconds(expansion: Expansion, jobs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        sweep(expansion, Wanted(Path(folder) / "sweep", jobs))
        return time.perf_counter() - start
