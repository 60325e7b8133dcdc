"""Sequences that switch between modes, as tables and as keys of a result row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.strategies import Strategy
from models.strategies.adaptive import Adaptive
from models.strategies.dynamic_k import DynamicK, ProxyK
from models.strategies.oracle import Oracle
from sim.analysis.metrics import finished
from sim.analysis.modes import by_mode
from sim.engine.recorder import Recorder
from sim.run_tables import mode_columns, switch_columns
from sim.tables import Columns

FIRST = 10
"""Switches a result row tells one by one."""

Modes = tuple[Columns, Columns]
"""Modes of one run over time, and its switches."""


def switches_of(strategy: Strategy) -> str | None:
    """Whom a switch is for: ``request``, ``stream`` or ``engine``; None where none is decided.

    An oracle and a proxy for K choose anew for every sequence in every step.
    """
    if isinstance(strategy, Adaptive):
        return strategy.window_of
    apart = isinstance(strategy, DynamicK) and isinstance(strategy.rule, ProxyK)
    return None if apart or isinstance(strategy, Oracle) else "engine"


def mode_tables(recorder: Recorder, strategy: Strategy) -> Modes | None:
    """Tables of one run; None where sequences do not switch."""
    if not strategy.switches:
        return None
    return mode_columns(recorder), switch_columns(recorder, switches_of(strategy) or "engine")


def mode_row(
    strategy: Strategy,
    recorders: Sequence[Recorder],
    tables: Sequence[Modes],
    runs: Sequence[Columns],
    streams: Sequence[str],
) -> dict[str, Any]:
    """Keys of a result row that only a strategy of several modes has.

    Parameters
    ----------
    strategy : Strategy
    recorders : sequence of Recorder
        One a replication.
    tables : sequence of Modes
        Of each; empty where sequences do not switch.
    runs : sequence of Columns
        Request tables.
    streams : sequence of str
        Names of the streams.

    Returns
    -------
    dict
        ``modes`` as `sim.analysis.modes.by_mode` gives them, and ``gate``: ``measure`` and
        thresholds, where there is one. Where switches are decided, also
        ``switches`` (how many), ``switches_per_1000_tokens`` and ``switches_per_request`` over
        what finished, and ``first_switches`` of the first replication, streams by their names.
    """
    if not tables:
        return {}
    row: dict[str, Any] = {"modes": by_mode([modes for modes, _ in tables])}
    if isinstance(strategy, Adaptive):
        limits = {"leave_below": strategy.leave_below, "return_above": strategy.returns_at}
        row["gate"] = {"measure": strategy.measure, **limits}
    if switches_of(strategy) is None:
        return row
    count = sum(log.switched for recorder in recorders for log in recorder.modes.values())
    done = [finished(run) for run in runs]
    tokens = sum(int(run["output_tokens"][own].sum()) for run, own in zip(runs, done, strict=True))
    requests = sum(int(own.sum()) for own in done)
    first = tables[0][1]
    return row | {
        "switches": count,
        "switches_per_1000_tokens": 1000 * count / tokens if tokens else None,
        "switches_per_request": count / requests if requests else None,
        "first_switches": [
            _switch(first, place, streams) for place in range(min(FIRST, len(first["at_s"])))
        ],
    }


def _switch(table: Columns, place: int, streams: Sequence[str]) -> dict[str, Any]:
    """One row of a table of switches."""
    row = {name: np.asarray(column[place]).item() for name, column in table.items()}
    return row | ({"owner": streams[row["owner"]]} if row["of"] == "stream" else {})
