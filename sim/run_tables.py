"""What a recorder saw, as the tables of one run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.engine.mode_log import FIELDS, ModeLog
from sim.engine.recorder import COUNTS, TIMES, Recorder
from sim.engine.step_rows import StepRow
from sim.scenario.requests import Requests
from sim.tables import STEPS, Columns, Status

_STATUS = {status.name.lower(): int(status) for status in Status}
_STEP_COLUMNS = STEPS.names[STEPS.names.index("replica") :]


def request_columns(recorder: Recorder, requests: Requests) -> Columns:
    """The request table of one run; every column of shape (requests,).

    Columns share the memory of what was recorded and what was sent.
    """
    log = recorder.log
    columns: Columns = {
        "id": np.arange(log.total),
        "session": np.arange(log.total) - requests.turn,
        "stream": requests.stream,
        "domain": requests.domain,
        "status": np.array([_STATUS[status] for status in log.status], dtype=np.int8),
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
    }
    columns |= {name: np.frombuffer(getattr(log, name), dtype=np.float64) for name in TIMES}
    return columns | {name: np.frombuffer(getattr(log, name), dtype=np.int64) for name in COUNTS}


def step_columns(rows: Sequence[StepRow]) -> Columns:
    """Step rows as a table; every column of shape (steps,)."""
    by_column = list(zip(*rows, strict=True)) or [()] * len(_STEP_COLUMNS)
    return {name: np.array(column) for name, column in zip(_STEP_COLUMNS, by_column, strict=True)}


def timeline_columns(recorder: Recorder, n_blocks: int) -> Columns:
    """The timeline of one run, replica by replica; every column of shape (bins,)."""
    parts = [bins.columns(number, n_blocks) for number, bins in enumerate(recorder.bins)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def mode_columns(recorder: Recorder) -> Columns:
    """Modes over time, by replica, bin and mode; every column of shape (rows,).

    Bins of replicas may differ in width. Every mode has a row in every bin up to the last step.
    """
    parts = [_modes_of(number, log) for number, log in sorted(recorder.modes.items())]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _modes_of(replica: int, log: ModeLog) -> Columns:
    sums = log.sums()
    bins, modes, _ = sums.shape
    by_field = dict(zip(FIELDS, sums.reshape(bins * modes, len(FIELDS)).T, strict=True))
    running = by_field.pop("sequence_s") / log.width_s
    return {
        "replica": np.full(bins * modes, replica),
        "start_s": np.repeat(np.arange(bins) * log.width_s, modes),
        "width_s": np.full(bins * modes, log.width_s),
        "mode": np.tile(np.array(log.names, dtype=object), bins),
        "running": running,
        **{name: np.rint(values).astype(np.int64) for name, values in by_field.items()},
    }


def switch_columns(recorder: Recorder, of: str) -> Columns:
    """Switches between modes in order of time; every column of shape (switches,).

    Parameters
    ----------
    recorder : Recorder
    of : str
        Whom a switch is for: ``request``, ``stream`` or ``engine``.
    """
    rows = sorted(
        (switch.at_s, replica, number)
        for replica, log in recorder.modes.items()
        for number, switch in enumerate(log.switches)
    )
    logs = [recorder.modes[replica] for _, replica, _ in rows]
    switches = [log.switches[row[2]] for log, row in zip(logs, rows, strict=True)]
    names = [log.names for log in logs]
    owners = [s.owner if s.owner >= 0 else r for s, (_, r, _) in zip(switches, rows, strict=True)]
    left = [own[s.mode_from] for own, s in zip(names, switches, strict=True)]
    entered = [own[s.mode_to] for own, s in zip(names, switches, strict=True)]
    return {
        "replica": np.array([replica for _, replica, _ in rows], dtype=np.int64),
        "at_s": np.array([s.at_s for s in switches], dtype=np.float64),
        "of": np.full(len(rows), of, dtype=object),
        "owner": np.array(owners, dtype=np.int64),
        "mode_from": np.array(left, dtype=object),
        "mode_to": np.array(entered, dtype=object),
        "reading": np.array([s.reading for s in switches], dtype=np.float64),
    }
