"""What a recorder saw, as the request and step tables of one run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.engine.recorder import Recorder
from sim.engine.step_rows import StepRow
from sim.scenario.requests import Requests
from sim.tables import STEPS, Columns, Status

_STATUS = {status.name.lower(): int(status) for status in Status}
_TIMES = ("arrival_s", "schedule_s", "first_token_s", "finish_s")
_COUNTS = (
    "replica",
    "cached_tokens",
    "n_steps",
    "drafted",
    "accepted",
    "preemptions",
    "attempts",
    "discarded_tokens",
)
_STEP_COLUMNS = STEPS.names[STEPS.names.index("replica") :]


def request_columns(recorder: Recorder, requests: Requests) -> Columns:
    """The request table of one run; every column of shape (requests,)."""
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
    columns |= {name: np.array(getattr(log, name), dtype=np.float64) for name in _TIMES}
    return columns | {name: np.array(getattr(log, name), dtype=np.int64) for name in _COUNTS}


def step_columns(rows: Sequence[StepRow]) -> Columns:
    """Step rows as a table; every column of shape (steps,)."""
    by_column = list(zip(*rows, strict=True)) or [()] * len(_STEP_COLUMNS)
    return {name: np.array(column) for name, column in zip(_STEP_COLUMNS, by_column, strict=True)}


def timeline_columns(recorder: Recorder, n_blocks: int) -> Columns:
    """The timeline of one run, replica by replica; every column of shape (bins,)."""
    parts = [bins.columns(number, n_blocks) for number, bins in enumerate(recorder.bins)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
