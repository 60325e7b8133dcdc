"""Where the time of a run went: drafting, verifying, sampling, and the host around them."""

from __future__ import annotations

from models.engine import Engine
from models.gemm import US
from models.strategies import Strategy
from sim.scenario.build import build
from sim.scenario.schema import Scenario
from sim.tables import Columns


def of_run(steps: Columns, scenario: Scenario) -> dict[str, float]:
    """Shares of the time of all steps; they sum to 1.

    Parameters
    ----------
    steps : Columns
        The step table of the strategy measured.
    scenario : Scenario
        What was run, that strategy the last of its list.

    Notes
    -----
    A step that computes prompts is longer, and verification waits for it: at large batches the
    mean step of a run is not the decode step of that batch. The model charges the host with
    rejection sampling and with looking up n-grams; here one is sampling, the other drafting.
    """
    engine, strategy = build(scenario).engine, scenario.strategies[-1]
    whole, draft, host = (float(steps[part].sum()) for part in ("duration_s", "draft_s", "host_s"))
    sampling = lookup = 0.0
    if not strategy.scheduled_ahead(engine):
        sampling = _sampling_s(engine, strategy) * len(steps["duration_s"])
        fixed, each = strategy.host_draft_us()
        lookup = US * float((fixed + each * steps["n_decode"]).sum())
    parts = {"draft": draft + lookup, "sampling": sampling, "host": host - sampling - lookup}
    parts["verify"] = whole - draft - host
    return {part: seconds / whole for part, seconds in parts.items()}


def _sampling_s(engine: Engine, strategy: Strategy) -> float:
    """Rejection sampling of one step [s]."""
    return engine.sampling_us.value * US if strategy.drafted else 0.0
