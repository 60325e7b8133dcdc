"""An observation is read back as it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.live import recording
from calibration.live.recording import Stage
from models.strict_yaml import InputError
from sim.tables import RunTable, Status

ABOUT = {"target": "m", "strategies": {"plain": {"kind": "autoregressive"}}}


def table(n: int) -> dict[str, np.ndarray]:
    counts = ("id", "session", "replica", "prompt_tokens", "cached_tokens", "output_tokens")
    more = ("n_steps", "drafted", "accepted", "preemptions", "attempts", "discarded_tokens")
    columns = {name: np.arange(n) for name in (*counts, *more)}
    columns |= {name: np.arange(n) + 0.5 for name in ("arrival_s", "first_token_s", "finish_s")}
    columns |= {"schedule_s": np.full(n, np.nan), "status": np.full(n, int(Status.FAILED))}
    return columns | {name: np.array(["a"] * n, dtype=object) for name in ("stream", "domain")}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    stages = [Stage({"concurrency": 1}, 0, "plain"), Stage({"concurrency": 2}, 0, "plain")]
    runs = [
        RunTable(stage.point, "plain", 0, table(n)) for stage, n in zip(stages, (2, 3), strict=True)
    ]
    errors = [dict.fromkeys(recording.ERROR_COLUMNS, "x, y")]
    samples = [{"point": "concurrency=1", "replication": 0, "at_s": 1.0, "name": "a", "value": 2.0}]
    files = recording.write(
        tmp_path, ABOUT, stages, runs, errors=errors, samples=samples, texts={"before.txt": "m 1\n"}
    )
    assert all(file.is_file() for file in files)
    seen = recording.read(tmp_path)
    assert (seen.label, seen.block, seen.stages) == (
        "plain",
        ABOUT["strategies"]["plain"],
        tuple(stages),
    )
    assert [run.columns["id"].tolist() for run in seen.runs] == [[0, 1], [0, 1, 2]]
    assert np.isnan(seen.runs[0].columns["schedule_s"]).all()
    assert set(seen.runs[1].columns["status"]) == {Status.FAILED}


def test_a_stage_without_its_table_is_told(tmp_path: Path) -> None:
    stages = [Stage({"concurrency": 1}, 0, "plain")]
    recording.write(tmp_path, ABOUT, stages, [])
    with pytest.raises(
        InputError, match=r"requests\.parquet: holds 0 stages, stages\.json names 1"
    ):
        recording.read(tmp_path)
