"""Where the time of a run went: drafting, verifying, sampling, and the host around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models import catalog
from models.engine import Engine
from sim.tables import Columns


def of_run(steps: Columns, scenario: Mapping[str, Any]) -> dict[str, float]:
    """Shares of the time of all steps; they sum to 1.

    Parameters
    ----------
    steps : Columns
        The step table of the strategy measured.
    scenario : mapping
        The scenario that was run, that strategy the last of its list.

    Notes
    -----
    A step that computes prompts is longer, and verification waits for it: at large batches the
    mean step of a run is not the decode step of that batch. Rejection sampling is charged with the
    host, and told apart here.
    """
    name, kind = scenario["engine"]["name"], scenario["strategies"][-1]["kind"]
    constants = scenario["engine"].get("constants", {})
    sampling_s = _sampling_s(catalog.engine(name).with_constants(constants), kind)
    whole, draft, host = (float(steps[part].sum()) for part in ("duration_s", "draft_s", "host_s"))
    sampling = min(sampling_s * len(steps["duration_s"]), host)
    parts = {"draft": draft, "sampling": sampling, "host": host - sampling}
    parts["verify"] = whole - draft - host
    return {part: seconds / whole for part, seconds in parts.items()}


def _sampling_s(engine: Engine, kind: str) -> float:
    """Rejection sampling of one step [s]."""
    if kind == "autoregressive" or engine.is_async(kind):
        return 0.0
    return engine.sampling_us.value * 1e-6
